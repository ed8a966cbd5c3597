/* FeatureGroup, within a LookupRequest.
 * Thread: pure. Memory: a group that is read takes its names from the arena and borrows its arrays
 * from the message, however many values they have. */
#pragma once

#include "proto/codec_common.h"

/* Fills in *out, but for its error, from a FeatureGroup's bytes, and the place's name. false: the
 * place's error says what is wrong. */
bool eb_codec_group_read(
    struct eb_codec_place *place, struct eb_field_reader bytes, struct eb_wire_group *out);

/* Writes or counts the group's fields. Its lengths, where it has any, are of width 4. */
void eb_codec_group_write(struct eb_field_writer *writer, const struct eb_wire_group *group);
