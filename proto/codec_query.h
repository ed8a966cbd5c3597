/* Reads and writes the elements of a LookupRequest: BagQuery and FeatureGroup.
 * Thread: pure. Memory: names and the numbers of repeated fields are taken from the arena; arrays
 * that come as bytes are borrowed from the message. */
#pragma once

#include "proto/codec_common.h"

/* Fills in queries[position->index], ..., queries[count - 1], except their errors, from the next
 * BagQueries of a LookupRequest, which must have that many. Moves the message and the index past
 * them. If a query has an error, returns false with the position's error set; position->index is
 * then the index of that query. */
bool eb_codec_query_read_all(struct eb_codec_position *position, struct eb_field_reader *message,
    struct eb_wire_query *queries, size_t count);

/* Writes the query's fields, or counts their bytes. */
void eb_codec_query_write(struct eb_field_writer *writer, const struct eb_wire_query *query);

/* Fills in *out, except its error, from the bytes of a FeatureGroup. Also sets position->name.
 * Returns false with the position's error set. */
bool eb_codec_group_read(
    struct eb_codec_position *position, struct eb_field_reader bytes, struct eb_wire_group *out);

/* Writes the group's fields, or counts their bytes. Its lengths, if any, must have width 4. */
void eb_codec_group_write(struct eb_field_writer *writer, const struct eb_wire_group *group);
