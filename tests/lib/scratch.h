/* A temporary directory of a test with files in it, and table files written byte by byte.
 * Thread: one at a time. Memory: none; deinit removes the directory. A call that fails also fails
 * the test. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define EB_SCRATCH_PATH_BYTES 512
#define EB_SCRATCH_TABLE_BYTES 4096

struct eb_scratch {
    char root[64];
};

/* Content of a small table file. */
struct eb_scratch_table {
    size_t size;
    uint8_t bytes[EB_SCRATCH_TABLE_BYTES];
};

void eb_scratch_init(struct eb_scratch *scratch);
void eb_scratch_deinit(struct eb_scratch *scratch);

/* For cmocka's setup: sets *state to a scratch directory on the heap. */
int eb_scratch_set_up(void **state);
/* For cmocka's teardown: removes the directory and frees *state. */
int eb_scratch_tear_down(void **state);

/* Sets `out` to ROOT/name. */
void eb_scratch_path(
    const struct eb_scratch *scratch, const char *name, char out[EB_SCRATCH_PATH_BYTES]);
/* Creates the directory ROOT/name and its parents. */
void eb_scratch_make_directory(const struct eb_scratch *scratch, const char *name);
/* Writes the file ROOT/name and creates its parent directories. */
void eb_scratch_write(
    const struct eb_scratch *scratch, const char *name, const void *bytes, size_t size);
/* Writes a text in the same way, without its NUL. */
void eb_scratch_write_text(const struct eb_scratch *scratch, const char *name, const char *text);

/* Builds an npy file of version MAJOR.0 with the header `dict` and a newline. The bytes of its data
 * are 1, 2, 3 and so on. */
void eb_scratch_npy(
    struct eb_scratch_table *out, uint8_t major, const char *dict, size_t data_bytes);
/* Builds a safetensors file with the header `json` and the same data. */
void eb_scratch_safetensors(struct eb_scratch_table *out, const char *json, size_t data_bytes);

/* Build such a file and write it to ROOT/name. */
void eb_scratch_write_npy(
    const struct eb_scratch *scratch, const char *name, const char *dict, size_t data_bytes);
void eb_scratch_write_safetensors(
    const struct eb_scratch *scratch, const char *name, const char *json, size_t data_bytes);

/* Fails the test and prints the text if it does not contain `part`. */
void eb_scratch_expect(const char *text, const char *part);
