/* Decodes a LookupRequest as protobuf-c packs it. */
#pragma once

#include "proto/codec.h"
#include "tests/unit/proto/lender.h"

#include "embag/v1/embedding_bag.pb-c.h"

struct fixture {
    struct lender lender;
    struct eb_arena arena;
    uint8_t *bytes;
    size_t size;
    struct eb_decode_failure failure;
    struct eb_wire_request *request;
};

/* At most 40 queries, names of at most 255 bytes. */
extern const struct eb_codec_limits fixture_limits;

/* Packs the message, and does not decode it yet. `fixture` must not move. */
void fixture_init(struct fixture *fixture, const Embag__V1__LookupRequest *message);
void fixture_decode(struct fixture *fixture);
/* Checks that all memory was given back. */
void fixture_deinit(struct fixture *fixture);

/* Packs and decodes a message that must be accepted. The caller deinitialises the fixture. */
void fixture_accept(struct fixture *fixture, const Embag__V1__LookupRequest *message);
/* Expects this error, of the request or of its last query. Uses a fixture of its own. */
void fixture_refuse(
    const Embag__V1__LookupRequest *message, enum eb_status status, const char *text);

/* A query on table "t", alone in a request of id 77. */
struct lone_query {
    Embag__V1__BagQuery query;
    Embag__V1__BagQuery *queries[1];
    Embag__V1__LookupRequest request;
};

/* `lone` must not move. */
void lone_query_init(struct lone_query *lone);

/* Returns the bytes in the form that protobuf-c packs. Packing does not write to them. */
ProtobufCBinaryData lone_query_binary(const void *data, size_t size);

/* A group of two features, "user" and "item", with two bags each, alone in a request of id 77. */
struct lone_group {
    Embag__V1__FeatureGroup group;
    Embag__V1__FeatureGroup *groups[1];
    Embag__V1__LookupRequest request;
};

/* `lone` must not move. */
void lone_group_init(struct lone_group *lone);

/* The same four numbers in both widths, for arrays of indices, offsets and lengths. */
extern const int64_t fixture_wide[4];
extern const int32_t fixture_narrow[4];

/* Expects the array, decoded from the field of that name, to have these four numbers. */
void fixture_expect_array(const struct eb_wire_array *array, uint32_t width, const char *field);
void fixture_expect_absent(const struct eb_wire_array *array);
