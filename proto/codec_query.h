/* BagQuery, within a LookupRequest.
 * Thread: pure. Memory: a query that is read takes its table's name, and numbers of repeated
 * fields, from the arena; arrays that come as bytes are borrowed from the message. */
#pragma once

#include "proto/codec_form.h"

/* Fills in *out, but for its fault, from a BagQuery's bytes, and the place's name. false: the
 * place's error says what is wrong. */
bool eb_codec_query_read(
    struct eb_codec_place *place, struct eb_field_reader bytes, struct eb_wire_query *out);

/* Writes or counts the query's fields. */
void eb_codec_query_write(struct eb_field_writer *writer, const struct eb_wire_query *query);
