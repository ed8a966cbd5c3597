#include "proto/gzip.h"

#include "tests/lib/test_group.h"
#include "tests/unit/proto/lender.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include <cmocka.h>

#define CONTENT_BYTES 100000
#define PACKED_BYTES (CONTENT_BYTES + 1000)
#define BOMB_BYTES ((size_t)16 << 20)

/* A gzip member and its content. */
struct member {
    uint8_t content[CONTENT_BYTES];
    uint8_t packed[PACKED_BYTES];
    size_t packed_bytes;
};

static size_t pack(const uint8_t *content, size_t content_bytes, uint8_t *packed, size_t room)
{
    z_stream stream = {.next_in = (z_const Bytef *)content,
        .avail_in = (uInt)content_bytes,
        .next_out = packed,
        .avail_out = (uInt)room};
    assert_int_equal(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    assert_int_equal(deflateEnd(&stream), Z_OK);
    return room - stream.avail_out;
}

static void member_init(struct member *member, size_t content_bytes)
{
    for (size_t i = 0; i < content_bytes; i++) {
        member->content[i] = (uint8_t)(i * i >> 5);
    }
    member->packed_bytes =
        pack(member->content, content_bytes, member->packed, sizeof member->packed);
}

/* Returns the outcome of inflating these bytes, and checks that all memory was given back. */
static enum eb_gzip try_inflate(const uint8_t *bytes, size_t size, uint32_t bytes_max)
{
    struct lender lender;
    struct eb_gzip_bytes out;
    lender_init(&lender, 0);
    enum eb_gzip outcome = eb_gzip_inflate(&lender.memory, bytes, size, bytes_max, &out);
    if (outcome == EB_GZIP_DONE) {
        lender.memory.give(lender.memory.context, out.bytes, out.taken_bytes);
    }
    assert_int_equal(lender.lent_count, 0);
    return outcome;
}

static void gives_what_was_compressed(void **state)
{
    static const size_t sizes[] = {0, 1, 2, 100, 4096, 65535, CONTENT_BYTES};
    static struct member member;
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct lender lender;
        struct eb_gzip_bytes out;
        lender_init(&lender, 0);
        member_init(&member, sizes[i]);
        assert_int_equal(eb_gzip_inflate(&lender.memory, member.packed, member.packed_bytes,
                             (uint32_t)sizes[i], &out),
            EB_GZIP_DONE);
        assert_int_equal(out.size, sizes[i]);
        assert_memory_equal(out.bytes, member.content, sizes[i]);
        assert_int_equal(lender.lent_count, 1);
        lender.memory.give(lender.memory.context, out.bytes, out.taken_bytes);
    }
}

static void refuses_one_byte_past_the_limit(void **state)
{
    static struct member member;
    (void)state;
    member_init(&member, 5000);
    assert_int_equal(try_inflate(member.packed, member.packed_bytes, 5000), EB_GZIP_DONE);
    assert_int_equal(try_inflate(member.packed, member.packed_bytes, 4999), EB_GZIP_TOO_LARGE);
    assert_int_equal(try_inflate(member.packed, member.packed_bytes, 0), EB_GZIP_TOO_LARGE);
}

static void takes_nothing_for_what_is_too_large(void **state)
{
    (void)state;
    static uint8_t packed[BOMB_BYTES / 500];
    uint8_t *zeroes = calloc(1, BOMB_BYTES);
    struct lender lender;
    struct eb_gzip_bytes out;
    assert_non_null(zeroes);
    size_t size = pack(zeroes, BOMB_BYTES, packed, sizeof packed);
    free(zeroes);
    lender_init(&lender, 0);
    assert_int_equal(
        eb_gzip_inflate(&lender.memory, packed, size, 1u << 20, &out), EB_GZIP_TOO_LARGE);
    assert_int_equal(lender.taken_count, 0);
}

static void refuses_what_is_large_and_compressed_too_well(void **state)
{
    static uint8_t packed[EB_GZIP_FREE_BYTES];
    static uint8_t content[2 * EB_GZIP_FREE_BYTES];
    (void)state;
    size_t size = pack(content, EB_GZIP_FREE_BYTES, packed, sizeof packed);
    assert_int_equal(try_inflate(packed, size, sizeof content), EB_GZIP_DONE);
    size = pack(content, EB_GZIP_FREE_BYTES + 1, packed, sizeof packed);
    assert_int_equal(try_inflate(packed, size, sizeof content), EB_GZIP_TOO_DENSE);
    /* Add bytes that do not compress until the compressed size just suffices. */
    size_t least = sizeof content / EB_GZIP_RATIO_MAX;
    uint32_t noise = 1;
    size = 0;
    for (size_t i = 0; size < least; i++) {
        noise = noise * 1664525u + 1013904223u;
        content[i] = (uint8_t)(noise >> 24);
        if (i % 256 == 0) {
            size = pack(content, sizeof content, packed, sizeof packed);
            assert_int_equal(try_inflate(packed, size, sizeof content),
                size < least ? EB_GZIP_TOO_DENSE : EB_GZIP_DONE);
        }
    }
}

/* Whatever size the end of a member claims, no byte is written past that size. A claim out of
 * proportion to the member's size is refused before memory is taken. */
static void refuses_an_end_that_lies(void **state)
{
    static const int lies[] = {-1, 1, -4999, 2000};
    static struct member member;
    (void)state;
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        member_init(&member, 5000);
        uint32_t claim = (uint32_t)(5000 + lies[i]);
        memcpy(member.packed + member.packed_bytes - 4, &claim, 4);
        assert_int_equal(try_inflate(member.packed, member.packed_bytes, 8000), EB_GZIP_BROKEN);
    }
    struct lender lender;
    struct eb_gzip_bytes out;
    lender_init(&lender, 0);
    member_init(&member, 5);
    memset(member.packed + member.packed_bytes - 4, 0x7f, 4);
    assert_int_equal(
        eb_gzip_inflate(&lender.memory, member.packed, member.packed_bytes, UINT32_MAX, &out),
        EB_GZIP_BROKEN);
    assert_int_equal(lender.taken_count, 0);
}

static void refuses_every_cut_and_what_follows_the_end(void **state)
{
    static struct member member;
    (void)state;
    member_init(&member, 300);
    for (size_t size = 0; size < member.packed_bytes; size++) {
        assert_int_not_equal(try_inflate(member.packed, size, UINT32_MAX), EB_GZIP_DONE);
    }
    memmove(member.packed + member.packed_bytes, member.packed, member.packed_bytes);
    assert_int_equal(try_inflate(member.packed, 2 * member.packed_bytes, 1000), EB_GZIP_BROKEN);
    member.packed[member.packed_bytes] = 0;
    assert_int_not_equal(try_inflate(member.packed, member.packed_bytes + 1, 1000), EB_GZIP_DONE);
}

static void refuses_every_flipped_byte_of_its_head_and_end(void **state)
{
    static struct member member;
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        member_init(&member, 300);
        member.packed[i] ^= 0x40;
        assert_int_equal(try_inflate(member.packed, member.packed_bytes, 1000), EB_GZIP_BROKEN);
    }
    for (size_t i = 5; i <= 8; i++) {
        member_init(&member, 300);
        member.packed[member.packed_bytes - i] ^= 0x40;
        assert_int_equal(try_inflate(member.packed, member.packed_bytes, 1000), EB_GZIP_BROKEN);
    }
}

static void reports_every_failing_allocation(void **state)
{
    static struct member member;
    (void)state;
    member_init(&member, 300);
    for (size_t fail_at = 1; fail_at <= 2; fail_at++) {
        struct lender lender;
        struct eb_gzip_bytes out;
        lender_init(&lender, fail_at);
        assert_int_equal(
            eb_gzip_inflate(&lender.memory, member.packed, member.packed_bytes, 1000, &out),
            EB_GZIP_NO_MEMORY);
        assert_int_equal(lender.taken_count, fail_at);
        assert_int_equal(lender.lent_count, 0);
    }
}

EB_TEST_GROUP(gzip)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_what_was_compressed),
        cmocka_unit_test(refuses_one_byte_past_the_limit),
        cmocka_unit_test(takes_nothing_for_what_is_too_large),
        cmocka_unit_test(refuses_what_is_large_and_compressed_too_well),
        cmocka_unit_test(refuses_an_end_that_lies),
        cmocka_unit_test(refuses_every_cut_and_what_follows_the_end),
        cmocka_unit_test(refuses_every_flipped_byte_of_its_head_and_end),
        cmocka_unit_test(reports_every_failing_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
