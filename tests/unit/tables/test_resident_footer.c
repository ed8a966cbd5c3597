#include "server/tables/resident_footer.h"

#include "kernels/table.h"
#include "server/tables/numa_policy.h"
#include "tests/lib/faults.h"
#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include <cmocka.h>

#define FILE_BYTES (2 * EB_RESIDENT_PAGE_BYTES)

static const uint64_t hashes[] = {11, 12, 13};

/* A table of 3 rows of 4 f32, one row a chunk, and a keyed one behind it. */
static const struct eb_resident_table tables[] = {
    {.name = "users",
        .type = EB_F32,
        .storage = EB_STORAGE_F32,
        .rank = 2,
        .dims = {3, 4},
        .row_stride_bytes = 64,
        .rows_bytes = 192,
        .source_key = 7,
        .digest = 8,
        .chunk_rows = 1,
        .chunk_count = 3,
        .chunk_hashes = hashes},
    {.name = "items",
        .type = EB_F32,
        .storage = EB_STORAGE_INT8,
        .rank = 2,
        .dims = {2, 4},
        .row_offset_bytes = 8,
        .row_stride_bytes = 12,
        .rows_offset = 192,
        .rows_bytes = 24,
        .index_offset = 256,
        .index_bytes = 100,
        .index_hash = 9,
        .chunk_rows = 2,
        .chunk_count = 1,
        .chunk_hashes = hashes},
};

static const struct eb_resident_footer sample = {.numa = 1,
    .embag_version = "1.2.3",
    .source = "/models/m/1",
    .table_count = 2,
    .tables = tables};

/* Returns the encoded footer, which the caller frees. */
static uint8_t *encode(const struct eb_resident_footer *footer, uint32_t *size)
{
    *size = (uint32_t)eb_resident_footer_bytes(footer);
    uint8_t *bytes = malloc(*size);
    assert_non_null(bytes);
    eb_resident_footer_encode(footer, bytes + *size);
    return bytes;
}

static enum eb_resident_footer_outcome decode(const uint8_t *bytes, uint32_t size)
{
    struct eb_resident_footer footer;
    struct eb_failure failure = {.text = ""};
    enum eb_resident_footer_outcome outcome =
        eb_resident_footer_decode(bytes, size, FILE_BYTES, &footer, &failure);
    if (outcome != EB_RESIDENT_FOOTER_GOOD) {
        assert_null(footer.tables);
    }
    assert_true(outcome != EB_RESIDENT_FOOTER_DAMAGED || failure.text[0] != '\0');
    eb_resident_footer_deinit(&footer);
    return outcome;
}

/* Gives a changed footer the digest that fits it. */
static void sign(uint8_t *bytes, uint32_t size)
{
    uint8_t *trailer = bytes + size - EB_RESIDENT_TRAILER_BYTES;
    uint64_t seed = XXH3_64bits(bytes, size - EB_RESIDENT_TRAILER_BYTES);
    uint64_t digest = XXH3_64bits_withSeed(
        trailer + sizeof digest, EB_RESIDENT_TRAILER_BYTES - sizeof digest, seed);
    memcpy(trailer, &digest, sizeof digest);
}

static void decodes_what_it_encoded(void **state)
{
    (void)state;
    uint32_t size;
    uint32_t found;
    uint8_t *bytes = encode(&sample, &size);
    struct eb_resident_footer footer;
    struct eb_failure failure;
    assert_true(
        eb_resident_footer_find(bytes + size - EB_RESIDENT_TRAILER_BYTES, FILE_BYTES, &found));
    assert_int_equal(found, size);
    assert_int_equal(eb_resident_footer_decode(bytes, size, FILE_BYTES, &footer, &failure),
        EB_RESIDENT_FOOTER_GOOD);
    assert_int_equal(footer.numa, 1);
    assert_string_equal(footer.embag_version, "1.2.3");
    assert_string_equal(footer.source, "/models/m/1");
    assert_int_equal(footer.table_count, 2);
    for (size_t i = 0; i < 2; i++) {
        struct eb_resident_table read = footer.tables[i];
        assert_string_equal(read.name, tables[i].name);
        assert_memory_equal(read.chunk_hashes, hashes, read.chunk_count * sizeof hashes[0]);
        read.name = tables[i].name;
        read.chunk_hashes = hashes;
        assert_memory_equal(&read, &tables[i], sizeof read);
    }
    eb_resident_footer_deinit(&footer);
    free(bytes);
}

static void describes_a_table_without_rows(void **state)
{
    (void)state;
    static const struct eb_resident_table none = {.name = "none",
        .type = EB_F32,
        .storage = EB_STORAGE_F32,
        .rank = 2,
        .dims = {0, 4},
        .row_stride_bytes = 16,
        .chunk_rows = 32768};
    struct eb_resident_footer footer = sample;
    footer.table_count = 1;
    footer.tables = &none;
    uint32_t size;
    uint8_t *bytes = encode(&footer, &size);
    assert_int_equal(decode(bytes, size), EB_RESIDENT_FOOTER_GOOD);
    free(bytes);
}

static void finds_every_flipped_bit(void **state)
{
    (void)state;
    uint32_t size;
    uint8_t *bytes = encode(&sample, &size);
    for (uint32_t bit = 0; bit < size * 8; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(decode(bytes, size), EB_RESIDENT_FOOTER_DAMAGED);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    assert_int_equal(decode(bytes, size), EB_RESIDENT_FOOTER_GOOD);
    free(bytes);
}

static void finds_every_cut(void **state)
{
    (void)state;
    uint32_t size;
    uint8_t *bytes = encode(&sample, &size);
    for (uint32_t left = 0; left < size; left++) {
        uint8_t *cut = malloc(left + 1u); /* so that the sanitizers see a read behind it */
        assert_non_null(cut);
        memcpy(cut, bytes, left);
        assert_int_equal(decode(cut, left), EB_RESIDENT_FOOTER_DAMAGED);
        memcpy(cut, bytes + size - left, left);
        assert_int_equal(decode(cut, left), EB_RESIDENT_FOOTER_DAMAGED);
        free(cut);
    }
    free(bytes);
}

/* With a digest that fits, the footer may be another one, but then it is one that the encoder would
 * write. */
static void accepts_only_what_the_encoder_writes(void **state)
{
    (void)state;
    uint32_t size;
    uint8_t *bytes = encode(&sample, &size);
    uint8_t *changed = malloc(size);
    assert_non_null(changed);
    unsigned good = 0;
    for (uint32_t bit = 0; bit < (size - EB_RESIDENT_TRAILER_BYTES) * 8; bit++) {
        struct eb_resident_footer footer;
        struct eb_failure failure;
        memcpy(changed, bytes, size);
        changed[bit / 8] ^= (uint8_t)(1u << bit % 8);
        sign(changed, size);
        if (eb_resident_footer_decode(changed, size, FILE_BYTES, &footer, &failure) ==
            EB_RESIDENT_FOOTER_GOOD) {
            uint32_t again_size;
            uint8_t *again = encode(&footer, &again_size);
            assert_int_equal(again_size, size);
            assert_memory_equal(again, changed, size);
            free(again);
            good++;
        }
        eb_resident_footer_deinit(&footer);
    }
    assert_true(good > 64 * 5); /* such as each bit of a hash */
    free(changed);
    free(bytes);
}

/* Expects a footer with the first table changed to be refused, though its digest is right. */
static void expect_damaged(const struct eb_resident_table *changed)
{
    struct eb_resident_table list[] = {*changed, tables[1]};
    struct eb_resident_footer footer = sample;
    footer.tables = list;
    uint32_t size;
    uint8_t *bytes = encode(&footer, &size);
    assert_int_equal(decode(bytes, size), EB_RESIDENT_FOOTER_DAMAGED);
    free(bytes);
}

static void refuses_tables_that_cannot_be(void **state)
{
    (void)state;
    struct eb_resident_table table = tables[0];
    table.type = EB_TYPE_UNSPECIFIED;
    expect_damaged(&table);
    table = tables[0];
    table.storage = EB_STORAGE_COUNT;
    expect_damaged(&table);
    table = tables[0];
    table.rank = 0;
    expect_damaged(&table);
    table = tables[0];
    table.dims[0] = UINT64_MAX;
    expect_damaged(&table);
    table = tables[0];
    table.dims[1] = 17; /* a row of 68 bytes */
    expect_damaged(&table);
    table = tables[0];
    table.row_offset_bytes = 49;
    expect_damaged(&table);
    table = tables[0];
    table.storage = EB_STORAGE_INT8; /* whose scale and bias come before the values */
    table.row_offset_bytes = sizeof(struct eb_row_scale) - 1;
    expect_damaged(&table);
    table = tables[0];
    table.row_stride_bytes = 0;
    expect_damaged(&table);
    table = tables[0];
    table.rows_bytes = 191;
    expect_damaged(&table);
    table = tables[0];
    table.chunk_rows = 0;
    expect_damaged(&table);
    table = tables[0];
    table.chunk_count = 2;
    expect_damaged(&table);
    table = tables[0];
    table.type = EB_I32; /* which the storage f32 does not hold */
    expect_damaged(&table);
    table = tables[0];
    table.index_offset = 192; /* of a table without an index */
    expect_damaged(&table);
    table = tables[0];
    table.index_hash = 1;
    expect_damaged(&table);
}

static void refuses_names_that_cannot_be(void **state)
{
    (void)state;
    static const char *const names[] = {"", "a\nb", "\xff", "\xc0\x80", "\xed\xa0\x80", "caf\xc3"};
    struct eb_resident_table table = tables[0];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        table.name = names[i];
        expect_damaged(&table);
    }
}

/* Expects the sample to be refused after `count` bytes at `offset` were changed. */
static void expect_damaged_at(uint32_t offset, const void *to, uint32_t count)
{
    uint32_t size;
    uint8_t *bytes = encode(&sample, &size);
    assert_memory_not_equal(bytes + offset, to, count);
    memcpy(bytes + offset, to, count);
    sign(bytes, size);
    assert_int_equal(decode(bytes, size), EB_RESIDENT_FOOTER_DAMAGED);
    free(bytes);
}

static void refuses_numbers_and_texts_that_the_encoder_does_not_write(void **state)
{
    (void)state;
    /* numa; "1.2.3" as its size and 8 bytes; "/models/m/1" as its size and 16 bytes; the number of
     * tables; the first table's name */
    uint32_t version = 8;
    uint32_t count = 8 + 16 + 24;
    expect_damaged_at(0, &(uint64_t){EB_NUMA_COUNT}, 8);
    expect_damaged_at(version, &(uint64_t){EB_RESIDENT_TEXT_BYTES_MAX + 1}, 8);
    expect_damaged_at(version, &(uint64_t){UINT64_MAX}, 8);
    expect_damaged_at(version, &(uint64_t){4}, 8); /* the text goes on behind its end */
    expect_damaged_at(version, &(uint64_t){7}, 8); /* zeros are a part of the text */
    expect_damaged_at(version + 8 + 7, "x", 1);    /* in the padding */
    expect_damaged_at(count, &(uint64_t){0}, 8);
    expect_damaged_at(count, &(uint64_t){1}, 8); /* a table is left over */
    expect_damaged_at(count, &(uint64_t){3}, 8);
    expect_damaged_at(count, &(uint64_t){EB_RESIDENT_TABLES_MAX + 1}, 8);
    expect_damaged_at(count, &(uint64_t){UINT64_MAX}, 8);
}

static void refuses_bytes_behind_the_last_table(void **state)
{
    (void)state;
    uint32_t size;
    uint8_t *bytes = encode(&sample, &size);
    for (uint32_t more = 1; more <= 8; more++) {
        uint8_t *longer = calloc(1, size + more);
        assert_non_null(longer);
        uint32_t body = size - EB_RESIDENT_TRAILER_BYTES;
        uint32_t longer_size = size + more;
        memcpy(longer, bytes, body);
        memcpy(longer + body + more, bytes + body, EB_RESIDENT_TRAILER_BYTES);
        memcpy(longer + body + more + 8, &longer_size, sizeof longer_size);
        sign(longer, longer_size);
        assert_int_equal(decode(longer, longer_size), EB_RESIDENT_FOOTER_DAMAGED);
        free(longer);
    }
    free(bytes);
}

/* A reader copies a chunk to check it, so the size of a chunk is limited. */
static void limits_the_bytes_of_a_chunk(void **state)
{
    (void)state;
    struct eb_resident_table table = tables[1];
    struct eb_resident_footer footer = sample;
    footer.table_count = 1;
    footer.tables = &table;
    table.row_stride_bytes = 64;
    table.rows_bytes = 128;
    table.index_offset = 320;
    uint32_t size;
    table.chunk_rows = EB_RESIDENT_CHUNK_BYTES_MAX / 64;
    uint8_t *bytes = encode(&footer, &size);
    assert_int_equal(decode(bytes, size), EB_RESIDENT_FOOTER_GOOD);
    free(bytes);
    const uint64_t wrong[] = {EB_RESIDENT_CHUNK_BYTES_MAX / 64 + 1, UINT64_MAX / 64, UINT64_MAX};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        table.chunk_rows = wrong[i];
        bytes = encode(&footer, &size);
        assert_int_equal(decode(bytes, size), EB_RESIDENT_FOOTER_DAMAGED);
        free(bytes);
    }
}

static void refuses_tables_that_overlap_or_lie_outside(void **state)
{
    (void)state;
    struct eb_resident_table table = tables[0];
    table.rows_offset = 64; /* its rows reach into the second table */
    expect_damaged(&table);
    table.rows_offset = 32; /* not aligned */
    expect_damaged(&table);
    table.rows_offset = FILE_BYTES;
    expect_damaged(&table);
    table.rows_offset = UINT64_MAX - 63;
    expect_damaged(&table);
}

/* Returns how a file of one page is decoded whose second table has its index at `offset`. */
static enum eb_resident_footer_outcome decode_with_index(uint64_t offset, uint64_t bytes)
{
    struct eb_resident_table list[] = {tables[0], tables[1]};
    struct eb_resident_footer footer = sample;
    struct eb_failure failure;
    footer.tables = list;
    list[1].index_offset = offset;
    list[1].index_bytes = bytes;
    uint32_t size;
    uint8_t *encoded = encode(&footer, &size);
    enum eb_resident_footer_outcome outcome =
        eb_resident_footer_decode(encoded, size, EB_RESIDENT_PAGE_BYTES, &footer, &failure);
    eb_resident_footer_deinit(&footer);
    free(encoded);
    return outcome;
}

static void refuses_an_index_that_reaches_into_rows_or_the_footer(void **state)
{
    (void)state;
    uint64_t data_bytes = EB_RESIDENT_PAGE_BYTES - eb_resident_footer_bytes(&sample);
    uint64_t last = data_bytes / 64 * 64 - 64;
    assert_int_equal(decode_with_index(last, data_bytes - last), EB_RESIDENT_FOOTER_GOOD);
    assert_int_equal(decode_with_index(last, data_bytes - last + 1), EB_RESIDENT_FOOTER_DAMAGED);
    assert_int_equal(decode_with_index(256, UINT64_MAX), EB_RESIDENT_FOOTER_DAMAGED);
    assert_int_equal(decode_with_index(257, 100), EB_RESIDENT_FOOTER_DAMAGED);
    assert_int_equal(decode_with_index(192, 100), EB_RESIDENT_FOOTER_DAMAGED);
    assert_int_equal(decode_with_index(0, 100), EB_RESIDENT_FOOTER_DAMAGED);
}

static void tells_another_layout_from_damage(void **state)
{
    (void)state;
    uint32_t size;
    uint8_t *bytes = encode(&sample, &size);
    bytes[size - 20]++;
    assert_int_equal(decode(bytes, size), EB_RESIDENT_FOOTER_DAMAGED);
    sign(bytes, size);
    assert_int_equal(decode(bytes, size), EB_RESIDENT_FOOTER_OTHER_LAYOUT);
    /* The bytes before the trailer of another layout are not read. */
    memset(bytes, 0xff, size - EB_RESIDENT_TRAILER_BYTES);
    sign(bytes, size);
    assert_int_equal(decode(bytes, size), EB_RESIDENT_FOOTER_OTHER_LAYOUT);
    bytes[size - 1]++;
    sign(bytes, size);
    assert_int_equal(decode(bytes, size), EB_RESIDENT_FOOTER_DAMAGED);
    free(bytes);
}

static void finds_footers_up_to_the_largest(void **state)
{
    (void)state;
    uint32_t size;
    uint32_t found;
    uint8_t *bytes = encode(&sample, &size);
    uint8_t *trailer = bytes + size - EB_RESIDENT_TRAILER_BYTES;
    uint32_t most = EB_RESIDENT_FOOTER_BYTES_MAX;
    const struct {
        uint32_t bytes;
        uint64_t file_bytes;
        bool is_found;
    } cases[] = {
        {EB_RESIDENT_TRAILER_BYTES - 1, FILE_BYTES, false},
        {EB_RESIDENT_TRAILER_BYTES, FILE_BYTES, true},
        {FILE_BYTES, FILE_BYTES, true},
        {FILE_BYTES + 1, FILE_BYTES, false},
        {most, UINT64_MAX, true},
        {most + 1, UINT64_MAX, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        memcpy(trailer + 8, &cases[i].bytes, sizeof cases[i].bytes);
        assert_int_equal(
            eb_resident_footer_find(trailer, cases[i].file_bytes, &found), cases[i].is_found);
        assert_int_equal(found, cases[i].bytes);
    }
    free(bytes);
}

static void is_empty_after_a_refused_allocation(void **state)
{
    (void)state;
    uint32_t size;
    uint8_t *bytes = encode(&sample, &size);
    unsigned number = 0;
    enum eb_resident_footer_outcome outcome = EB_RESIDENT_FOOTER_DAMAGED;
    while (outcome == EB_RESIDENT_FOOTER_DAMAGED && number < 10) {
        eb_faults_fail_allocation(++number);
        outcome = decode(bytes, size);
        eb_faults_fail_allocation(0);
    }
    assert_int_equal(outcome, EB_RESIDENT_FOOTER_GOOD);
    assert_int_equal(number, 3); /* the footer's copy and the list of tables */
    free(bytes);
}

static void counts_whole_pages(void **state)
{
    (void)state;
    uint64_t bytes = eb_resident_footer_bytes(&sample);
    uint64_t page = EB_RESIDENT_PAGE_BYTES;
    assert_int_equal(eb_resident_footer_file_bytes(&sample, 0), page);
    assert_int_equal(eb_resident_footer_file_bytes(&sample, page - bytes), page);
    assert_int_equal(eb_resident_footer_file_bytes(&sample, page - bytes + 1), 2 * page);
    assert_true(eb_resident_footer_file_bytes(&sample, UINT64_MAX) == UINT64_MAX);
}

static void refuses_to_exceed_its_limits(void **state)
{
    (void)state;
    char *text = calloc(1, EB_RESIDENT_TEXT_BYTES_MAX + 2);
    assert_non_null(text);
    memset(text, 'a', EB_RESIDENT_TEXT_BYTES_MAX);
    struct eb_resident_footer footer = sample;
    footer.source = text;
    assert_true(eb_resident_footer_bytes(&footer) != UINT64_MAX);
    uint32_t size;
    uint8_t *bytes = encode(&footer, &size);
    assert_int_equal(decode(bytes, size), EB_RESIDENT_FOOTER_GOOD);
    free(bytes);
    text[EB_RESIDENT_TEXT_BYTES_MAX] = 'a';
    assert_true(eb_resident_footer_bytes(&footer) == UINT64_MAX);
    footer = sample;
    footer.table_count = EB_RESIDENT_TABLES_MAX + 1;
    struct eb_resident_table *many = calloc(footer.table_count, sizeof *many);
    assert_non_null(many);
    for (size_t i = 0; i < footer.table_count; i++) {
        many[i] = (struct eb_resident_table){.name = "t"};
    }
    footer.tables = many;
    assert_true(eb_resident_footer_bytes(&footer) == UINT64_MAX);
    footer.table_count--;
    assert_true(eb_resident_footer_bytes(&footer) != UINT64_MAX);
    footer.table_count = 0;
    assert_true(eb_resident_footer_bytes(&footer) == UINT64_MAX);
    free(many);
    free(text);
}

static void refuses_to_exceed_the_largest_footer(void **state)
{
    (void)state;
    struct eb_resident_table table = tables[0];
    struct eb_resident_footer footer = sample;
    footer.table_count = 1;
    footer.tables = &table;
    table.chunk_count = 0;
    uint64_t room = EB_RESIDENT_FOOTER_BYTES_MAX - eb_resident_footer_bytes(&footer);
    table.chunk_count = room / sizeof(uint64_t);
    assert_true(eb_resident_footer_bytes(&footer) == EB_RESIDENT_FOOTER_BYTES_MAX);
    table.chunk_count++;
    assert_true(eb_resident_footer_bytes(&footer) == UINT64_MAX);
    table.chunk_count = UINT64_MAX / sizeof(uint64_t) + 1; /* whose bytes are 0 in 64 bits */
    assert_true(eb_resident_footer_bytes(&footer) == UINT64_MAX);
}

EB_TEST_GROUP(resident_footer)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decodes_what_it_encoded),
        cmocka_unit_test(describes_a_table_without_rows),
        cmocka_unit_test(finds_every_flipped_bit),
        cmocka_unit_test(finds_every_cut),
        cmocka_unit_test(accepts_only_what_the_encoder_writes),
        cmocka_unit_test(refuses_tables_that_cannot_be),
        cmocka_unit_test(refuses_names_that_cannot_be),
        cmocka_unit_test(refuses_numbers_and_texts_that_the_encoder_does_not_write),
        cmocka_unit_test(refuses_bytes_behind_the_last_table),
        cmocka_unit_test(limits_the_bytes_of_a_chunk),
        cmocka_unit_test(refuses_tables_that_overlap_or_lie_outside),
        cmocka_unit_test(refuses_an_index_that_reaches_into_rows_or_the_footer),
        cmocka_unit_test(tells_another_layout_from_damage),
        cmocka_unit_test(finds_footers_up_to_the_largest),
        cmocka_unit_test_teardown(is_empty_after_a_refused_allocation, eb_faults_tear_down),
        cmocka_unit_test(counts_whole_pages),
        cmocka_unit_test(refuses_to_exceed_its_limits),
        cmocka_unit_test(refuses_to_exceed_the_largest_footer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
