#include "tests/lib/scratch.h"

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

void eb_scratch_init(struct eb_scratch *scratch)
{
    snprintf(scratch->root, sizeof scratch->root, "/tmp/embag-test-XXXXXX");
    assert_non_null(mkdtemp(scratch->root));
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *place)
{
    (void)status;
    (void)type;
    (void)place;
    return remove(path);
}

void eb_scratch_deinit(struct eb_scratch *scratch)
{
    assert_int_equal(nftw(scratch->root, remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
}

int eb_scratch_set_up(void **state)
{
    struct eb_scratch *scratch = malloc(sizeof *scratch);
    if (!scratch) {
        return -1;
    }
    eb_scratch_init(scratch);
    *state = scratch;
    return 0;
}

int eb_scratch_tear_down(void **state)
{
    eb_scratch_deinit(*state);
    free(*state);
    return 0;
}

void eb_scratch_path(
    const struct eb_scratch *scratch, const char *name, char out[EB_SCRATCH_PATH_BYTES])
{
    int length = snprintf(out, EB_SCRATCH_PATH_BYTES, "%s/%s", scratch->root, name);
    assert_in_range(length, 1, EB_SCRATCH_PATH_BYTES - 1);
}

/* Creates the parent directories of a path. */
static void make_parents(const struct eb_scratch *scratch, char *path)
{
    for (char *at = path + strlen(scratch->root) + 1; (at = strchr(at, '/')); at++) {
        *at = '\0';
        (void)mkdir(path, 0755); /* May exist already. Any other error fails the next step. */
        *at = '/';
    }
}

void eb_scratch_make_directory(const struct eb_scratch *scratch, const char *name)
{
    char path[EB_SCRATCH_PATH_BYTES];
    eb_scratch_path(scratch, name, path);
    make_parents(scratch, path);
    assert_int_equal(mkdir(path, 0755), 0);
}

void eb_scratch_write(
    const struct eb_scratch *scratch, const char *name, const void *bytes, size_t size)
{
    char path[EB_SCRATCH_PATH_BYTES];
    eb_scratch_path(scratch, name, path);
    make_parents(scratch, path);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

void eb_scratch_write_text(const struct eb_scratch *scratch, const char *name, const char *text)
{
    eb_scratch_write(scratch, name, text, strlen(text));
}

static void append(struct eb_scratch_table *out, const void *bytes, size_t size)
{
    assert_true(size <= sizeof out->bytes - out->size);
    memcpy(out->bytes + out->size, bytes, size);
    out->size += size;
}

static void append_number(struct eb_scratch_table *out, uint64_t number, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        uint8_t byte = (uint8_t)(number >> (8 * i));
        append(out, &byte, 1);
    }
}

static void append_data(struct eb_scratch_table *out, size_t data_bytes)
{
    for (size_t i = 0; i < data_bytes; i++) {
        append_number(out, i + 1, 1);
    }
}

void eb_scratch_npy(
    struct eb_scratch_table *out, uint8_t major, const char *dict, size_t data_bytes)
{
    size_t length = strlen(dict);
    out->size = 0;
    append(out, "\x93NUMPY", 6);
    append_number(out, major, 2);
    append_number(out, length + 1, major == 1 ? 2 : 4);
    append(out, dict, length);
    append(out, "\n", 1);
    append_data(out, data_bytes);
}

void eb_scratch_safetensors(struct eb_scratch_table *out, const char *json, size_t data_bytes)
{
    size_t length = strlen(json);
    out->size = 0;
    append_number(out, length, 8);
    append(out, json, length);
    append_data(out, data_bytes);
}

void eb_scratch_write_npy(
    const struct eb_scratch *scratch, const char *name, const char *dict, size_t data_bytes)
{
    struct eb_scratch_table table;
    eb_scratch_npy(&table, 1, dict, data_bytes);
    eb_scratch_write(scratch, name, table.bytes, table.size);
}

void eb_scratch_write_safetensors(
    const struct eb_scratch *scratch, const char *name, const char *json, size_t data_bytes)
{
    struct eb_scratch_table table;
    eb_scratch_safetensors(&table, json, data_bytes);
    eb_scratch_write(scratch, name, table.bytes, table.size);
}

void eb_scratch_expect(const char *text, const char *part)
{
    if (!strstr(text, part)) {
        fail_msg("\"%s\" does not contain \"%s\"", text, part);
    }
}
