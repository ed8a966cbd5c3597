/* The elements of a LookupRequest: BagQuery and FeatureGroup.
 * Thread: pure. Memory: what is read takes names, and numbers of repeated fields, from the arena;
 * arrays that come as bytes are borrowed from the message. */
#pragma once

#include "proto/codec_common.h"

/* Fills in queries[place->index], ..., queries[count - 1], but for their errors, from the next
 * BagQueries of a LookupRequest's message, which has as many, and moves past them and the index on.
 * false: place->index is that of a query, of which the place's error says what is wrong. */
bool eb_codec_query_read_all(struct eb_codec_position *position, struct eb_field_reader *message,
    struct eb_wire_query *queries, size_t count);

/* Writes or counts the query's fields. */
void eb_codec_query_write(struct eb_field_writer *writer, const struct eb_wire_query *query);

/* Fills in *out, but for its error, from a FeatureGroup's bytes, and the place's name. false: the
 * place's error says what is wrong. */
bool eb_codec_group_read(
    struct eb_codec_position *position, struct eb_field_reader bytes, struct eb_wire_group *out);

/* Writes or counts the group's fields. Its lengths, where it has any, are of width 4. */
void eb_codec_group_write(struct eb_field_writer *writer, const struct eb_wire_group *group);
