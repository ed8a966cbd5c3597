/* Scales and biases in separate tensors, for a table whose rows hold only codes. TorchRec writes
 * such tensors: weight, weight_qscale, weight_qbias. model.yaml names those of scales and biases.
 * They are not tables. Thread: one at a time. Memory: names are borrowed from the configuration; a
 * reader has 12 bytes of the heap for each row of a chunk. */
#pragma once

#include "kernels/table.h"
#include "server/base/load_meter.h"
#include "server/contents/piece_reader.h"
#include "server/tables/planned_table.h"

/* ---- planning ---- */

/* Names of the tensors that are scales or biases of a table. */
struct eb_scale_names {
    const char **names; /* sorted */
    size_t count;
};

/* Collects the names in `config`, which may be NULL. Returns false with *failure set if out of
 * memory. */
bool eb_scale_names_init(
    struct eb_scale_names *names, const struct eb_model_config *config, struct eb_failure *failure);
bool eb_scale_names_has(const struct eb_scale_names *names, const char *name);
/* Accepts zeroed names. */
void eb_scale_names_deinit(struct eb_scale_names *names);

/* Returns whether a tensor has one f32 or f16 for each of `rows` rows. Its shape must be (rows,) or
 * (rows, 1). If not, *failure describes the tensor and says what is expected, without its name. */
bool eb_scale_tensors_check(
    const struct eb_tensor *tensor, uint64_t rows, struct eb_failure *failure);

/* Returns a tensor of the scan whose name says that it has the scales of table `name`, such as
 * NAME_scale, or NULL if there is none. If there is such a tensor, the caller refuses a table
 * of fp8, and one of bytes that model.yaml does not describe: its values would be wrong without the
 * scales. */
const struct eb_piece *eb_scale_tensors_find(const struct eb_version_scan *scan, const char *name);
/* Returns whether the name of a tensor, `scales`, says that it has the scales of table `name`. */
bool eb_scale_tensors_is_of(const char *scales, const char *name);

/* ---- reading ---- */

/* A position in the pieces of a tensor. */
struct eb_scale_cursor {
    const struct eb_piece_range *range;
    bool is_bias;
    size_t piece;       /* the next piece, or the open one */
    uint64_t row_first; /* the row with which that piece begins */
    struct eb_piece_reader reader;
    bool is_open;
};

/* Reads the scales and biases of consecutive rows. Must not move until it is closed. */
struct eb_scale_reader {
    const struct eb_version_scan *scan;
    struct eb_load_meter *meter;
    struct eb_scale_cursor scales;
    struct eb_scale_cursor biases;
    uint8_t *raw;              /* numbers as in the file */
    struct eb_row_scale *rows; /* scales and biases of the rows that were read last */
};

/* Opens a reader of a table with has_scales, for at most `rows_max` rows at a time. All of the
 * arguments must outlive it. Returns false with *failure set if out of memory. */
bool eb_scale_reader_open(struct eb_scale_reader *reader, const struct eb_table_plan *plan,
    const struct eb_planned_table *table, uint64_t rows_max, struct eb_load_meter *meter,
    struct eb_failure *failure);
/* Accepts a zeroed reader. */
void eb_scale_reader_close(struct eb_scale_reader *reader);
/* Reads the scales and biases of `count` rows from `row` on into reader->rows. No row may precede
 * the rows that were read last. Returns false with *failure set, including the path. */
bool eb_scale_reader_read(
    struct eb_scale_reader *reader, uint64_t row, uint64_t count, struct eb_failure *failure);
