/* Queries as a peer may write them, which must be read as protobuf-c reads them. */
#include "proto/guard.h"
#include "tests/lib/test_group.h"
#include "tests/unit/proto/request_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TRIALS 20000
#define FIELDS_MAX 7
#define ROOM 512

enum kind { NUMBER, BYTES, NAME, INTEGERS, FLOATS, UNKNOWN };

static const enum kind kinds[] = {UNKNOWN, NAME, NUMBER, NUMBER, BYTES, BYTES, INTEGERS, BYTES,
    BYTES, INTEGERS, NUMBER, BYTES, BYTES, INTEGERS, NUMBER, NUMBER, BYTES, NUMBER, FLOATS, NUMBER,
    NUMBER, NUMBER, BYTES, BYTES, UNKNOWN, UNKNOWN, NUMBER, NUMBER, NUMBER, NUMBER, UNKNOWN,
    UNKNOWN};

struct writer {
    uint8_t bytes[ROOM];
    size_t size;
};

static unsigned draw(unsigned end)
{
    return (unsigned)rand() % end;
}

static void put(struct writer *writer, unsigned byte)
{
    writer->bytes[writer->size++] = (uint8_t)byte;
}

/* Writes a varint of any length, even longer than necessary. */
static void put_varint(struct writer *writer)
{
    for (unsigned more = draw(3) > 0 ? draw(3) : draw(10); more > 0; more--) {
        put(writer, 0x80 | draw(128));
    }
    put(writer, draw(2));
}

static void put_content(struct writer *writer, enum kind kind)
{
    struct writer content = {.size = 0};
    for (unsigned left = draw(4); left > 0; left--) {
        if (kind == INTEGERS) {
            put_varint(&content);
        } else if (kind == FLOATS) {
            memcpy(content.bytes + content.size, "\x00\x00\x80\x3F", 4);
            content.size += 4;
        } else {
            put(&content, 'a' + draw(26));
        }
    }
    put(writer, (unsigned)content.size);
    memcpy(writer->bytes + writer->size, content.bytes, content.size);
    writer->size += content.size;
}

static void put_field(struct writer *writer)
{
    unsigned number = 1 + draw(sizeof kinds / sizeof *kinds - 1);
    enum kind kind = kinds[number];
    bool is_packed = draw(2) == 0;
    unsigned wire_type = 2;
    if (kind == NUMBER || kind == UNKNOWN || (kind == INTEGERS && !is_packed)) {
        wire_type = 0;
    } else if (kind == FLOATS && !is_packed) {
        wire_type = 5;
    }
    unsigned tag = number << 3 | wire_type;
    if (tag >= 0x80) {
        put(writer, 0x80 | (tag & 0x7F));
    }
    put(writer, tag >= 0x80 ? tag >> 7 : tag);
    if (wire_type == 0) {
        put_varint(writer);
    } else if (wire_type == 5) {
        memcpy(writer->bytes + writer->size, "\x00\x00\x00\x40", 4);
        writer->size += 4;
    } else {
        put_content(writer, kind);
    }
}

/* Writes a request with one query of random fields. */
static void put_request(struct writer *writer)
{
    struct writer query = {.size = 0};
    for (unsigned left = draw(FIELDS_MAX); left > 0; left--) {
        put_field(&query);
    }
    writer->size = 0;
    put(writer, 0x22);
    if (query.size >= 0x80) {
        put(writer, 0x80 | (unsigned)(query.size & 0x7F));
    }
    put(writer, (unsigned)(query.size >= 0x80 ? query.size >> 7 : query.size));
    memcpy(writer->bytes + writer->size, query.bytes, query.size);
    writer->size += query.size;
}

static void assert_bytes(
    const struct eb_wire_array *array, const char *field, const void *data, size_t bytes)
{
    if (array->field && strcmp(array->field, field) == 0) {
        assert_int_equal(array->bytes, bytes);
        assert_memory_equal(array->data, data, bytes);
    } else {
        assert_int_equal(bytes, 0);
    }
}

static void assert_arrays(const struct eb_wire_query *query, const Embag__V1__BagQuery *message)
{
    assert_bytes(
        &query->indices, "indices_i64", message->indices_i64.data, message->indices_i64.len);
    assert_bytes(
        &query->indices, "indices_i32", message->indices_i32.data, message->indices_i32.len);
    assert_bytes(&query->indices, "indices", message->indices, 8 * message->n_indices);
    assert_bytes(
        &query->offsets, "offsets_i64", message->offsets_i64.data, message->offsets_i64.len);
    assert_bytes(
        &query->offsets, "offsets_i32", message->offsets_i32.data, message->offsets_i32.len);
    assert_bytes(&query->offsets, "offsets", message->offsets, 8 * message->n_offsets);
    assert_bytes(
        &query->lengths, "lengths_i64", message->lengths_i64.data, message->lengths_i64.len);
    assert_bytes(
        &query->lengths, "lengths_i32", message->lengths_i32.data, message->lengths_i32.len);
    assert_bytes(&query->segment_ids, "segment_ids_i64", message->segment_ids_i64.data,
        message->segment_ids_i64.len);
    assert_bytes(&query->segment_ids, "segment_ids_i32", message->segment_ids_i32.data,
        message->segment_ids_i32.len);
    assert_bytes(
        &query->segment_ids, "segment_ids", message->segment_ids, 8 * message->n_segment_ids);
}

static void assert_same(const struct eb_wire_query *query, const Embag__V1__BagQuery *message)
{
    bool has_floats = message->n_weights_f32 > 0;
    assert_string_equal(query->table, message->table);
    assert_int_equal(query->reduction, (int32_t)message->reduction);
    assert_int_equal(query->missing, (int32_t)message->missing);
    assert_int_equal(query->indices_per_bag, message->indices_per_bag);
    assert_true(query->num_segments == message->num_segments);
    assert_true(query->num_bags == message->num_bags);
    assert_int_equal(query->include_last_offset, message->include_last_offset);
    assert_int_equal(query->has_default, message->default_row_case != 0);
    assert_true(!query->has_default || query->default_index == message->default_index);
    assert_int_equal(query->sequence.max_len, message->max_len);
    assert_int_equal(query->sequence.keep_first, message->keep_first);
    assert_int_equal(query->sequence.pad, message->pad);
    assert_int_equal(query->sequence.unique, message->unique);
    assert_int_equal(
        query->weights_bytes, has_floats ? 4 * message->n_weights_f32 : message->weights.len);
    assert_memory_equal(query->weights,
        has_floats ? (const void *)message->weights_f32 : message->weights.data,
        query->weights_bytes);
    assert_arrays(query, message);
}

static void reads_queries_as_protobuf_does(void **state)
{
    (void)state;
    struct eb_arena arena;
    eb_arena_init(&arena, &eb_memory_heap);
    size_t good_count = 0;
    srand(20240301);
    for (int i = 0; i < TRIALS; i++) {
        struct writer writer;
        struct eb_decode_failure failure;
        put_request(&writer);
        eb_arena_reset(&arena, 1 << 20);
        const struct eb_wire_request *request =
            eb_lookup_request_decode(&arena, writer.bytes, writer.size, &fixture_limits, &failure);
        Embag__V1__LookupRequest *message =
            embag__v1__lookup_request__unpack(NULL, writer.size, writer.bytes);
        assert_non_null(message);
        assert_non_null(request);
        assert_string_equal(request->queries[0].table, message->queries[0]->table);
        if (!request->queries[0].error) {
            assert_same(&request->queries[0], message->queries[0]);
            good_count++;
        }
        embag__v1__lookup_request__free_unpacked(message, NULL);
    }
    eb_arena_deinit(&arena);
    printf("%zu queries without fault\n", good_count);
    assert_true(good_count > TRIALS / 100);
}

/* Each request has one or two bytes replaced. */
static void takes_nothing_that_the_guard_refuses(void **state)
{
    (void)state;
    struct eb_guard_limits limits = {.fields_max = UINT32_MAX,
        .name_bytes_max = fixture_limits.name_bytes_max,
        .submessages_max = fixture_limits.queries_max};
    struct eb_arena arena;
    eb_arena_init(&arena, &eb_memory_heap);
    size_t refused_count = 0;
    srand(20240302);
    for (int i = 0; i < TRIALS; i++) {
        struct writer writer;
        struct eb_decode_failure failure;
        struct eb_error error;
        put_request(&writer);
        for (unsigned left = 1 + draw(2); left > 0; left--) {
            writer.bytes[draw((unsigned)writer.size)] = (uint8_t)draw(256);
        }
        eb_arena_reset(&arena, 1 << 20);
        const struct eb_wire_request *request =
            eb_lookup_request_decode(&arena, writer.bytes, writer.size, &fixture_limits, &failure);
        if (eb_guard_check(&embag__v1__lookup_request__descriptor, writer.bytes, writer.size,
                &limits, &error)) {
            assert_true(request || !failure.undecodable);
        } else {
            assert_null(request);
            assert_string_equal(failure.error.text, error.text);
            refused_count++;
        }
    }
    eb_arena_deinit(&arena);
    assert_in_range(refused_count, TRIALS / 10, TRIALS - TRIALS / 10);
}

/* Expects the decoder to accept or refuse a name exactly as the guard does, and to keep an accepted
 * name unchanged. The name is a query's table or, if `table` is false, a group's feature. */
static void assert_name_agrees(struct eb_arena *arena, const uint8_t *name, size_t size, bool table)
{
    struct eb_guard_limits limits = {
        .fields_max = UINT32_MAX, .name_bytes_max = 255, .submessages_max = 40};
    struct writer writer = {.size = 0};
    struct eb_decode_failure failure;
    struct eb_error error;
    put(&writer, table ? 0x22 : 0x42);
    put(&writer, (unsigned)size + 2);
    put(&writer, table ? 0x0A : 0x12);
    put(&writer, (unsigned)size);
    memcpy(writer.bytes + writer.size, name, size);
    writer.size += size;
    eb_arena_reset(arena, 1 << 20);
    const struct eb_wire_request *request =
        eb_lookup_request_decode(arena, writer.bytes, writer.size, &fixture_limits, &failure);
    if (!eb_guard_check(
            &embag__v1__lookup_request__descriptor, writer.bytes, writer.size, &limits, &error)) {
        assert_null(request);
        assert_string_equal(failure.error.text, error.text);
        return;
    }
    assert_non_null(request);
    const char *kept = table ? request->queries[0].table : request->groups[0].features[0];
    assert_int_equal(strlen(kept), size);
    assert_memory_equal(kept, name, size);
}

/* Tries each length, with each byte that may end a run of ASCII at each position. */
static void keeps_names_of_all_lengths(void **state)
{
    (void)state;
    const uint8_t others[] = {'a', 0x7F, 0x80, 0xC3, 0xFF, 0x00};
    struct eb_arena arena;
    eb_arena_init(&arena, &eb_memory_heap);
    for (size_t size = 1; size <= 40; size++) {
        for (size_t i = 0; i < size * sizeof others; i++) {
            uint8_t name[41];
            memset(name, 'n', sizeof name);
            name[i / sizeof others] = others[i % sizeof others];
            assert_name_agrees(&arena, name, size, true);
            assert_name_agrees(&arena, name, size, false);
            /* After 0xC3, this byte completes a character. */
            name[i / sizeof others + 1] = 0xA9;
            assert_name_agrees(&arena, name, size, true);
            assert_name_agrees(&arena, name, size, false);
        }
    }
    eb_arena_deinit(&arena);
}

EB_TEST_GROUP(codec_query)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_queries_as_protobuf_does),
        cmocka_unit_test(takes_nothing_that_the_guard_refuses),
        cmocka_unit_test(keeps_names_of_all_lengths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
