#include "proto/grpc_message.h"
#include "tests/lib/test_group.h"
#include "tests/unit/grpc/host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static struct eb_grpc_reader make_reader(struct lender *lender, uint32_t bytes_max)
{
    lender_init(lender, 0);
    return (struct eb_grpc_reader){.memory = &lender->memory, .bytes_max = bytes_max};
}

/* Reads the bytes in two portions and checks that they are `count` messages of 0, 1, 2, ...
 * bytes. */
static void read_in_two(const struct frames *wire, size_t cut, size_t count)
{
    struct lender lender;
    struct eb_grpc_reader reader = make_reader(&lender, 1000);
    size_t seen = 0;
    size_t at = 0;
    while (at < wire->size) {
        struct eb_grpc_message message;
        size_t step = (at < cut ? cut : wire->size) - at;
        enum eb_grpc_read read = eb_grpc_message_read(&reader, wire->bytes + at, &step, &message);
        at += step;
        if (read == EB_GRPC_READ_MESSAGE) {
            assert_non_null(message.bytes);
            assert_int_equal(message.size, seen);
            assert_memory_equal(message.bytes, "\0\1\2\3\4\5\6\7", seen);
            seen++;
            eb_grpc_message_give(&lender.memory, &message);
        } else {
            assert_int_equal(read, EB_GRPC_READ_MORE);
            assert_true(at == cut || at == wire->size);
        }
    }
    assert_int_equal(seen, count);
    assert_false(eb_grpc_message_is_partial(&reader));
    assert_int_equal(lender.lent_count, 0);
}

static void reads_messages_cut_anywhere(void **state)
{
    (void)state;
    struct frames wire = {0};
    for (size_t size = 0; size < 8; size++) {
        struct eb_outgoing *message = host_outgoing(size);
        frames_put(&wire, message->bytes, message->size);
        eb_outgoing_drop(message);
    }
    for (size_t cut = 0; cut <= wire.size; cut++) {
        read_in_two(&wire, cut, 8);
    }
    frames_deinit(&wire);
}

static void sees_whole_messages_where_they_lie(void **state)
{
    (void)state;
    struct lender lender;
    struct eb_grpc_reader reader = make_reader(&lender, 7);
    const uint8_t wire[] = {0, 0, 0, 0, 7, 1, 2, 3, 4, 5, 6, 7, 0, 0, 0, 0, 8};
    const uint8_t empty[] = {0, 0, 0, 0, 0, 9};
    const uint8_t large[] = {0, 0, 0, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8};
    const uint8_t packed[] = {1, 0, 0, 0, 1, 9};
    for (size_t count = 0; count < 12; count++) {
        assert_int_equal(eb_grpc_message_peek(&reader, wire, count), 0);
    }
    assert_int_equal(eb_grpc_message_peek(&reader, wire, 12), 12);
    assert_int_equal(eb_grpc_message_peek(&reader, wire, sizeof wire), 12);
    assert_int_equal(eb_grpc_message_peek(&reader, empty, sizeof empty), 5);
    assert_int_equal(eb_grpc_message_peek(&reader, large, sizeof large), 0);
    assert_int_equal(eb_grpc_message_peek(&reader, packed, sizeof packed), 0);
    struct eb_grpc_message message;
    size_t step = 1;
    assert_int_equal(eb_grpc_message_read(&reader, wire, &step, &message), EB_GRPC_READ_MORE);
    assert_int_equal(eb_grpc_message_peek(&reader, wire, sizeof wire), 0);
    eb_grpc_message_discard(&reader);
}

static void takes_memory_as_bytes_arrive(void **state)
{
    (void)state;
    struct lender lender;
    struct eb_grpc_reader reader = make_reader(&lender, 64u << 20);
    struct eb_grpc_message message;
    size_t step = EB_GRPC_PREFIX_BYTES;
    const uint8_t prefix[] = {0, 4, 0, 0, 0};
    assert_int_equal(eb_grpc_message_read(&reader, prefix, &step, &message), EB_GRPC_READ_MORE);
    assert_true(lender.lent_bytes <= 256u << 10);
    struct eb_outgoing *content = host_outgoing(1u << 20);
    for (int i = 0; i < 63; i++) {
        step = 1u << 20;
        assert_int_equal(
            eb_grpc_message_read(&reader, content->bytes + 5, &step, &message), EB_GRPC_READ_MORE);
        assert_int_equal(step, 1u << 20);
        assert_true(lender.lent_bytes <= ((size_t)i + 2) * (4u << 20));
    }
    step = 1u << 20;
    assert_int_equal(
        eb_grpc_message_read(&reader, content->bytes + 5, &step, &message), EB_GRPC_READ_MESSAGE);
    assert_int_equal(message.size, 64u << 20);
    assert_memory_equal(message.bytes + (5u << 20), content->bytes + 5, 1u << 20);
    assert_memory_equal(message.bytes + (63u << 20), content->bytes + 5, 1u << 20);
    eb_grpc_message_give(&lender.memory, &message);
    eb_outgoing_drop(content);
    assert_int_equal(lender.lent_count, 0);
}

static void refuses_bad_prefixes(void **state)
{
    (void)state;
    static const struct {
        uint8_t prefix[EB_GRPC_PREFIX_BYTES];
        enum eb_grpc_read read;
    } cases[] = {
        {{1, 0, 0, 0, 1}, EB_GRPC_READ_COMPRESSED},
        {{2, 0, 0, 0, 1}, EB_GRPC_READ_BAD_FLAG},
        {{255, 0, 0, 0, 0}, EB_GRPC_READ_BAD_FLAG},
        {{0, 0, 0, 3, 233}, EB_GRPC_READ_TOO_LARGE},
        {{0, 255, 255, 255, 255}, EB_GRPC_READ_TOO_LARGE},
        {{0, 0, 0, 3, 232}, EB_GRPC_READ_MORE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct lender lender;
        struct eb_grpc_reader reader = make_reader(&lender, 1000);
        struct eb_grpc_message message;
        size_t step = EB_GRPC_PREFIX_BYTES;
        assert_int_equal(
            eb_grpc_message_read(&reader, cases[i].prefix, &step, &message), cases[i].read);
        assert_true(eb_grpc_message_is_partial(&reader));
        eb_grpc_message_discard(&reader);
        assert_false(eb_grpc_message_is_partial(&reader));
        assert_int_equal(lender.lent_count, 0);
    }
}

/* Stands in for eb_gzip_inflate: repeats the input, which need not be compressed. */
static enum eb_gzip inflate_twofold(const struct eb_memory *memory, const uint8_t *bytes,
    size_t size, uint32_t bytes_max, struct eb_gzip_bytes *out)
{
    if (2 * size > bytes_max) {
        return EB_GZIP_TOO_LARGE;
    }
    if (bytes[0] == 'x') {
        return EB_GZIP_BROKEN;
    }
    *out = (struct eb_gzip_bytes){memory->take(memory->context, 2 * size), 2 * size, 2 * size};
    if (!out->bytes) {
        return EB_GZIP_NO_MEMORY;
    }
    memcpy(out->bytes, bytes, size);
    memcpy(out->bytes + size, bytes, size);
    return EB_GZIP_DONE;
}

static void decompresses_messages_that_say_so(void **state)
{
    (void)state;
    static const uint8_t wire[] = {1, 0, 0, 0, 2, 'a', 'b', 0, 0, 0, 0, 1, 'c'};
    for (size_t cut = 0; cut < sizeof wire; cut++) {
        struct lender lender;
        struct eb_grpc_reader reader = make_reader(&lender, 4);
        struct eb_grpc_message messages[2];
        size_t seen = 0;
        reader.inflate = inflate_twofold;
        for (size_t at = 0; at < sizeof wire;) {
            size_t step = (at < cut ? cut : sizeof wire) - at;
            if (eb_grpc_message_read(&reader, wire + at, &step, &messages[seen]) ==
                EB_GRPC_READ_MESSAGE) {
                seen++;
            }
            at += step;
        }
        assert_int_equal(seen, 2);
        assert_int_equal(messages[0].size, 4);
        assert_memory_equal(messages[0].bytes, "abab", 4);
        assert_int_equal(messages[0].wire_bytes, 2);
        assert_memory_equal(messages[1].bytes, "c", 1);
        assert_int_equal(messages[1].wire_bytes, 1);
        eb_grpc_message_give(&lender.memory, &messages[0]);
        eb_grpc_message_give(&lender.memory, &messages[1]);
        assert_int_equal(lender.lent_count, 0);
    }
}

static void refuses_what_cannot_be_decompressed(void **state)
{
    (void)state;
    static const struct {
        const char *wire;
        size_t size;
        enum eb_grpc_read read;
    } cases[] = {
        {"\1\0\0\0\2ab", 7, EB_GRPC_READ_MESSAGE},
        {"\1\0\0\0\3abc", 8, EB_GRPC_READ_TOO_LARGE},
        {"\1\0\0\0\1x", 6, EB_GRPC_READ_BROKEN},
        {"\1\0\0\0\5", 5, EB_GRPC_READ_TOO_LARGE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct lender lender;
        struct eb_grpc_reader reader = make_reader(&lender, 4);
        struct eb_grpc_message message = {0};
        size_t step = cases[i].size;
        reader.inflate = inflate_twofold;
        assert_int_equal(
            eb_grpc_message_read(&reader, (const uint8_t *)cases[i].wire, &step, &message),
            cases[i].read);
        eb_grpc_message_give(&lender.memory, &message);
        eb_grpc_message_discard(&reader);
        assert_int_equal(lender.lent_count, 0);
    }
}

static void reports_every_failing_allocation(void **state)
{
    (void)state;
    struct eb_outgoing *content = host_outgoing(3u << 20);
    size_t failures = 0;
    enum eb_grpc_read read = EB_GRPC_READ_NO_MEMORY;
    for (size_t fail_at = 1; read == EB_GRPC_READ_NO_MEMORY; fail_at++) {
        struct lender lender;
        struct eb_grpc_reader reader = make_reader(&lender, 16u << 20);
        lender.fail_at = fail_at;
        struct eb_grpc_message message = {0};
        size_t step = content->size;
        read = eb_grpc_message_read(&reader, content->bytes, &step, &message);
        failures += read == EB_GRPC_READ_NO_MEMORY;
        eb_grpc_message_discard(&reader);
        eb_grpc_message_give(&lender.memory, &message);
        assert_int_equal(lender.lent_count, 0);
    }
    assert_int_equal(read, EB_GRPC_READ_MESSAGE);
    assert_int_equal(failures, 3);
    eb_outgoing_drop(content);
}

EB_TEST_GROUP(grpc_message)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_messages_cut_anywhere),
        cmocka_unit_test(sees_whole_messages_where_they_lie),
        cmocka_unit_test(takes_memory_as_bytes_arrive),
        cmocka_unit_test(refuses_bad_prefixes),
        cmocka_unit_test(decompresses_messages_that_say_so),
        cmocka_unit_test(refuses_what_cannot_be_decompressed),
        cmocka_unit_test(reports_every_failing_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
