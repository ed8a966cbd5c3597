/* Fails the n-th request for memory of a load, for each n: the linker sends those of
 * server/models here (--wrap), and jansson is asked to. */
#include "server/models/repository.h"

#include "tests/unit/models/scratch.h"

#include <errno.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t bytes);
int __real_mprotect(void *at, size_t bytes, int protection);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t bytes);
int __wrap_mprotect(void *at, size_t bytes, int protection);

static unsigned request_count;
static unsigned fail_at; /* 0: none */

static bool is_refused(void)
{
    bool refused = ++request_count == fail_at;
    if (refused) {
        errno = ENOMEM;
    }
    return refused;
}

void *__wrap_malloc(size_t bytes)
{
    return is_refused() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    return is_refused() ? NULL : __real_calloc(count, bytes);
}

void *__wrap_realloc(void *memory, size_t bytes)
{
    return is_refused() ? NULL : __real_realloc(memory, bytes);
}

char *__wrap_strdup(const char *text)
{
    return is_refused() ? NULL : __real_strdup(text);
}

char *__wrap_strndup(const char *text, size_t bytes)
{
    return is_refused() ? NULL : __real_strndup(text, bytes);
}

int __wrap_mprotect(void *at, size_t bytes, int protection)
{
    return is_refused() ? -1 : __real_mprotect(at, bytes, protection);
}

static void survives_every_refused_request(void **state)
{
    (void)state;
    struct eb_scratch scratch;
    eb_scratch_init(&scratch);
    eb_scratch_write_npy(
        &scratch, "m/1/n.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (5, 2), }", 40);
    eb_scratch_write_safetensors(&scratch, "m/1/s.safetensors",
        "{\"a\":{\"dtype\":\"F16\",\"shape\":[2,2],\"data_offsets\":[0,8]}}", 8);
    json_set_alloc_funcs(__wrap_malloc, free);
    const struct eb_table_options limits = {.row_bytes_max = 65536, .name_bytes_max = 255};
    bool is_open = false;
    unsigned tries = 0;
    while (!is_open && tries < 1000) {
        struct eb_repository repository;
        struct eb_file_fault fault = {""};
        request_count = 0;
        fail_at = ++tries;
        is_open = eb_repository_open(scratch.root, &limits, NULL, &repository, &fault);
        fail_at = 0;
        assert_int_equal(repository.count, is_open ? 1 : 0);
        /* jansson takes some of its own refused requests for a broken header. */
        if (!is_open && !strstr(fault.text, "memory") && !strstr(fault.text, "read-only") &&
            !strstr(fault.text, "no JSON")) {
            fail_msg("request %u refused: %s", tries, fault.text);
        }
        eb_repository_close(&repository);
    }
    print_message("%u requests refused in turn\n", tries - 1);
    assert_in_range(tries, 20, 999);
    json_set_alloc_funcs(malloc, free);
    eb_scratch_deinit(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(survives_every_refused_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
