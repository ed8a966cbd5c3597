/* FeatureGroup, within a LookupRequest.
 * Thread: pure. Memory: a translated group borrows from protobuf-c's, and takes none of its own,
 * however many features and values it has. */
#pragma once

#include "proto/codec_form.h"

#include "embag/v1/embedding_bag.pb-c.h"

/* Fills in *out, but for its fault. false: the place's error says what is wrong with the group. */
bool eb_codec_group_translate(const struct eb_codec_place *place,
    const Embag__V1__FeatureGroup *group, struct eb_wire_group *out);

/* Writes or counts the group's fields. Its lengths, where it has any, are of width 4. */
void eb_codec_group_write(struct eb_field_writer *writer, const struct eb_wire_group *group);
