/* Packs a table: writes its rows, in their own storage or another, into one file, or into several
 * files of consecutive rows. The files get their names when all of them are complete.
 * Thread: one at a time; it starts the threads that convert rows, and joins them. Memory: some MiB
 * for each thread, the head of each file and a sample of bags, on the heap. */
#pragma once

#include "client/cli/pack_keys.h"
#include "client/cli/progress_bar.h"
#include "server/formats/packed_writer.h"

/* The number of a file has five digits. */
#define EB_PACK_TABLE_FILES_MAX 99999
/* Rows of each bag in the sample. */
#define EB_PACK_ERROR_BAG_ROWS 20
/* Most bags in the sample. There are fewer, but at least one, if their sums would take more than
 * EB_PACK_ERROR_BYTES_MAX. */
#define EB_PACK_ERROR_BAGS_MAX 256
#define EB_PACK_ERROR_BYTES_MAX (UINT64_C(64) << 20)

/* A tensor with one number for each row: the scales or the biases of rows that hold only codes. */
struct eb_pack_numbers {
    struct eb_source_file *source; /* file with the tensor; NULL if there are no numbers */
    const struct eb_source_table *table;
};

struct eb_pack_plan {
    struct eb_source_file *source;
    const struct eb_source_table *table; /* one of the source's tables */
    struct eb_pack_numbers scales;       /* of a table with has_scales */
    struct eb_pack_numbers biases;       /* without a source, every bias is 0 */
    const struct eb_pack_keys *keys;     /* keys of all its rows; NULL: none */
    enum eb_storage storage; /* storage of the packed rows, one that the table's type may have */
    uint32_t parts;          /* the rows r with r mod parts == part are packed */
    uint32_t part;
    int64_t unknown_row;
    const char *path; /* TABLE.embag */
    uint32_t file_count;
    unsigned thread_count; /* threads that pack rows; 0 means one */
    double error_max;      /* largest error of a value with which packing succeeds; INFINITY: any */
};

/* Absolute errors. A value that is not finite has no error if it is unchanged, and an infinite
 * error otherwise. */
struct eb_pack_deviation {
    double max;
    uint64_t max_row; /* row with the largest error; set for values only */
    double sum;
    uint64_t count;
};

struct eb_pack_result {
    uint64_t row_count;
    uint64_t source_bytes; /* bytes of the rows */
    uint64_t rows_bytes;   /* bytes of the packed rows, including the gaps between them */
    uint64_t file_bytes;   /* bytes of all files */
    bool is_converted;     /* the storage has changed; if not, there are no errors */
    struct eb_pack_deviation values;
    struct eb_pack_deviation bags;
    size_t bag_count;
};

/* Packs a table. The files and the result do not depend on the number of threads. Returns false
 * with *failure set, including the path of the file that caused the error. No file is left then,
 * with one exception: if a file cannot be renamed to its final name, the files that were renamed
 * before it stay. */
bool eb_pack_table(
    const struct eb_pack_plan *plan, struct eb_pack_result *result, struct eb_failure *failure);

/* Returns "TABLE-00003-of-00016.embag" for number 3 of 16 of TABLE.embag, or a copy of `path` if
 * there is one file; the caller frees it. Returns NULL if out of memory. */
char *eb_pack_table_path(const char *path, uint32_t number, uint32_t file_count);

/* Returns the mean error of a packed table's values or sums. */
double eb_pack_error_mean(const struct eb_pack_deviation *deviation);

/* Adds the errors of a row: its exact values, and the values that will be read back. */
void eb_pack_deviation_add(struct eb_pack_deviation *deviation, uint64_t row, uint32_t elements,
    const float *exact, const float *stored);
/* Adds the errors of rows that come after those in *deviation. */
void eb_pack_deviation_join(
    struct eb_pack_deviation *deviation, const struct eb_pack_deviation *part);

/* ---- the errors of a conversion ---- */

struct eb_pack_draw;

/* The errors that come from converting a table to another storage: errors of its values, and of
 * sums of bags of its rows, drawn at random. Empty if zeroed. The sample of bags is on the heap. */
struct eb_pack_error {
    uint32_t elements;
    struct eb_pack_deviation values;
    size_t bag_count;
    size_t draw_count;
    size_t next_draw;
    struct eb_pack_draw *draws; /* assigns rows to bags; sorted by row */
    double *exact_sums;         /* [bag_count][elements] */
    double *stored_sums;        /* [bag_count][elements] */
};

/* Draws the sample for a table of row_count rows. Returns false if out of memory. */
bool eb_pack_error_init(struct eb_pack_error *error, uint64_t row_count, uint32_t elements);
/* Accepts a zeroed struct. */
void eb_pack_error_deinit(struct eb_pack_error *error);

/* Returns the next row of the sample if it comes before row `end`; otherwise returns `end`. */
uint64_t eb_pack_error_next_row(const struct eb_pack_error *error, uint64_t end);
/* Adds a row to the bags that have it: its exact values, and the values that will be read back.
 * Rows come in order; those that are not in the sample may be left out. */
void eb_pack_error_add_row(
    struct eb_pack_error *error, uint64_t row, const float *exact, const float *stored);

/* Returns the errors of the bags' sums. */
struct eb_pack_deviation eb_pack_error_bags(const struct eb_pack_error *error);
