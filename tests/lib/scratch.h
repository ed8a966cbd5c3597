/* A directory of a test's own, with files in it, and tables written byte by byte.
 * Thread: one at a time. Memory: none; deinit removes the directory. A failing call fails the
 * test. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define EB_SCRATCH_PATH_BYTES 512
#define EB_SCRATCH_TABLE_BYTES 4096

struct eb_scratch {
    char root[64];
};

/* A small file. */
struct eb_scratch_table {
    size_t size;
    uint8_t bytes[EB_SCRATCH_TABLE_BYTES];
};

void eb_scratch_init(struct eb_scratch *scratch);
void eb_scratch_deinit(struct eb_scratch *scratch);

/* For cmocka's setup: sets *state to one on the heap. */
int eb_scratch_set_up(void **state);
/* Removes the directory and frees *state. */
int eb_scratch_tear_down(void **state);

/* ROOT/name. */
void eb_scratch_path(
    const struct eb_scratch *scratch, const char *name, char out[EB_SCRATCH_PATH_BYTES]);
/* Makes ROOT/name and the directories above it. */
void eb_scratch_make_directory(const struct eb_scratch *scratch, const char *name);
/* Writes ROOT/name and makes the directories above it. */
void eb_scratch_write(
    const struct eb_scratch *scratch, const char *name, const void *bytes, size_t size);
/* Likewise a text, without its NUL. */
void eb_scratch_write_text(const struct eb_scratch *scratch, const char *name, const char *text);

/* An npy file of version MAJOR.0 around `dict` and a newline; its data counts 1, 2, 3 and so on. */
void eb_scratch_npy(
    struct eb_scratch_table *out, uint8_t major, const char *dict, size_t data_bytes);
/* A safetensors file, likewise. */
void eb_scratch_safetensors(struct eb_scratch_table *out, const char *json, size_t data_bytes);

/* Both in one step. */
void eb_scratch_write_npy(
    const struct eb_scratch *scratch, const char *name, const char *dict, size_t data_bytes);
void eb_scratch_write_safetensors(
    const struct eb_scratch *scratch, const char *name, const char *json, size_t data_bytes);

/* Fails the test, and shows the text, where it does not hold `part`. */
void eb_scratch_expect(const char *text, const char *part);
