#include "server/rpc/auth.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static struct eb_secret_digest digest_of(const char *secret)
{
    struct eb_secret_digest digest;
    eb_secret_digest(secret, strlen(secret), &digest);
    return digest;
}

static void digests_as_sha256_does(void **state)
{
    (void)state;
    static const uint8_t abc[] = {0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea, 0x41, 0x41, 0x40,
        0xde, 0x5d, 0xae, 0x22, 0x23, 0xb0, 0x03, 0x61, 0xa3, 0x96, 0x17, 0x7a, 0x9c, 0xb4, 0x10,
        0xff, 0x61, 0xf2, 0x00, 0x15, 0xad};
    struct eb_secret_digest digest = digest_of("abc");
    assert_memory_equal(digest.bytes, abc, sizeof abc);
}

static void tells_digests_apart_by_every_byte(void **state)
{
    (void)state;
    struct eb_secret_digest digest = digest_of("abc");
    struct eb_secret_digest other = digest;
    assert_true(eb_secret_is_same(&digest, &other));
    for (size_t i = 0; i < EB_SECRET_DIGEST_BYTES; i++) {
        other.bytes[i] ^= 1;
        assert_false(eb_secret_is_same(&digest, &other));
        other.bytes[i] ^= 1;
    }
}

static bool has_name(const void *peer, const char *name)
{
    return strcmp(peer, name) == 0;
}

static void finds_principals_by_token_and_by_name(void **state)
{
    (void)state;
    struct eb_principal principals[] = {
        {.name = "a", .client_name = "a.example"},
        {.name = "b", .has_token = true, .token = digest_of("token of b")},
        {.name = "c", .client_name = "c.example", .has_token = true, .token = digest_of("of c")},
    };
    struct eb_auth auth = {.count = 3, .principals = principals};
    struct eb_secret_digest token = digest_of("token of b");
    assert_ptr_equal(eb_auth_find_token(&auth, &token), &principals[1]);
    token = digest_of("of c");
    assert_ptr_equal(eb_auth_find_token(&auth, &token), &principals[2]);
    token = digest_of("of C");
    assert_null(eb_auth_find_token(&auth, &token));
    /* A principal without a token is not found by a digest of zeros. */
    assert_null(eb_auth_find_token(&auth, &(struct eb_secret_digest){{0}}));
    assert_ptr_equal(eb_auth_find_named(&auth, has_name, "a.example"), &principals[0]);
    assert_ptr_equal(eb_auth_find_named(&auth, has_name, "c.example"), &principals[2]);
    assert_null(eb_auth_find_named(&auth, has_name, "b.example"));
}

static void decides_by_model(void **state)
{
    (void)state;
    char first[] = "first";
    char second[] = "second";
    char *models[] = {first, second};
    struct eb_principal some = {.models = models, .model_count = 2};
    struct eb_principal all = {.has_all_models = true};
    struct eb_principal admin = {.is_admin = true};
    assert_true(eb_principal_may_look_up(&some, "first"));
    assert_true(eb_principal_may_look_up(&some, "second"));
    assert_false(eb_principal_may_look_up(&some, "third"));
    assert_false(eb_principal_may_look_up(&some, ""));
    assert_false(eb_principal_may_see(&some, "third"));
    assert_true(eb_principal_may_look_up(&all, "third"));
    assert_false(eb_principal_may_look_up(&admin, "first"));
    assert_true(eb_principal_may_see(&admin, "first"));
    assert_true(eb_principal_may_look_up(&eb_auth_anybody, "first"));
    assert_true(eb_auth_anybody.is_admin && eb_auth_anybody.is_router);
}

EB_TEST_GROUP(auth)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(digests_as_sha256_does),
        cmocka_unit_test(tells_digests_apart_by_every_byte),
        cmocka_unit_test(finds_principals_by_token_and_by_name),
        cmocka_unit_test(decides_by_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
