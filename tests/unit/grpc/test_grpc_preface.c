#include "proto/grpc_guard.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static const uint8_t preface_bytes[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n and more";

static void takes_a_preface_in_any_two_pieces(void **state)
{
    (void)state;
    for (size_t cut = 0; cut <= EB_GRPC_PREFACE_BYTES; cut++) {
        struct eb_grpc_preface preface = {0};
        assert_true(eb_grpc_preface_check(&preface, preface_bytes, cut));
        assert_int_equal(eb_grpc_preface_is_whole(&preface), cut == EB_GRPC_PREFACE_BYTES);
        assert_true(
            eb_grpc_preface_check(&preface, preface_bytes + cut, sizeof preface_bytes - cut));
        assert_true(eb_grpc_preface_is_whole(&preface));
        assert_true(eb_grpc_preface_check(&preface, (const uint8_t *)"anything", 8));
    }
}

static void refuses_any_other_byte(void **state)
{
    (void)state;
    for (size_t place = 0; place < EB_GRPC_PREFACE_BYTES; place++) {
        uint8_t bytes[EB_GRPC_PREFACE_BYTES];
        struct eb_grpc_preface preface = {0};
        memcpy(bytes, preface_bytes, sizeof bytes);
        bytes[place] ^= 1;
        assert_false(eb_grpc_preface_check(&preface, bytes, sizeof bytes));
        assert_false(eb_grpc_preface_is_whole(&preface));
    }
}

static void answers_those_who_speak_http_1(void **state)
{
    (void)state;
    const char *answer = eb_grpc_preface_answer('G');
    const char *body = strstr(answer, "\r\n\r\n") + 4;
    assert_memory_equal(answer, "HTTP/1.1 400 ", 13);
    assert_int_equal(strlen(body), 34);
    for (const char *method = "CDGHOPT"; *method; method++) {
        assert_string_equal(eb_grpc_preface_answer((uint8_t)*method), answer);
    }
    assert_string_equal(eb_grpc_preface_answer('Z'), "");
    assert_string_equal(eb_grpc_preface_answer(0x16), "");
    assert_string_equal(eb_grpc_preface_answer('g'), "");
}

EB_TEST_GROUP(grpc_preface)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_a_preface_in_any_two_pieces),
        cmocka_unit_test(refuses_any_other_byte),
        cmocka_unit_test(answers_those_who_speak_http_1),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
