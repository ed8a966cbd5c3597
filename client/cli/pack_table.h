/* Packs a table: its rows, stored as they are or otherwise, go into one file or into several of
 * which each has some that follow one another. The files get their names when all of them are
 * complete.
 * Thread: one at a time. Memory: some MiB, the head of each file and a sample of bags, on the heap.
 */
#pragma once

#include "client/cli/pack_keys.h"
#include "client/cli/progress_bar.h"
#include "server/formats/packed_writer.h"

/* Five digits number the files. */
#define EB_PACK_TABLE_FILES_MAX 99999
/* Rows of a bag of the sample. */
#define EB_PACK_ERROR_BAG_ROWS 20
/* Bags of the sample, fewer where their sums would take more than this memory, but one at least. */
#define EB_PACK_ERROR_BAGS_MAX 256
#define EB_PACK_ERROR_BYTES_MAX (UINT64_C(64) << 20)

struct eb_pack_plan {
    struct eb_source_file *source;
    const struct eb_source_table *table; /* one of the source's */
    const struct eb_pack_keys *keys;     /* of all its rows; NULL: it has none */
    enum eb_storage storage;             /* of the packed rows, one that T may have */
    uint32_t parts;                      /* the rows r with r mod parts = part are taken */
    uint32_t part;
    int64_t unknown_row;
    const char *path; /* TABLE.embag */
    uint32_t file_count;
    double error_max; /* a value that is off by more refuses all; INFINITY: none does */
};

/* Absolute errors. A value that is not finite has none where it is what it was, an infinite one
 * otherwise. */
struct eb_pack_deviation {
    double max;
    uint64_t max_row; /* of values: where it is */
    double sum;
    uint64_t count;
};

struct eb_pack_result {
    uint64_t row_count;
    uint64_t source_bytes; /* of the rows */
    uint64_t rows_bytes;   /* of the packed ones, what lies between them included */
    uint64_t file_bytes;   /* of all files */
    bool is_converted;     /* otherwise there are no errors */
    struct eb_pack_deviation values;
    struct eb_pack_deviation bags;
    size_t bag_count;
};

/* false: *error, with the path of the file that it is about; nothing is left, unless it was a name
 * that could not be given, when those before it have been. */
bool eb_pack_table(
    const struct eb_pack_plan *plan, struct eb_pack_result *result, struct eb_failure *failure);

/* "TABLE-00003-of-00016.embag" for number 3 of 16 of TABLE.embag, itself where there is one file;
 * to be freed. NULL: out of memory. */
char *eb_pack_table_path(const char *path, uint32_t number, uint32_t file_count);

/* The mean error of a packed table's values or sums. */
double eb_pack_error_mean(const struct eb_pack_deviation *deviation);

/* ---- what is lost ---- */

struct eb_pack_draw;

/* What a table loses by being stored otherwise: the errors of its values, and of sums of bags of
 * its rows, drawn at random. All zero is an empty one. The sample of bags is on the heap. */
struct eb_pack_error {
    uint32_t elements;
    struct eb_pack_deviation values;
    size_t bag_count;
    size_t draw_count;
    size_t next_draw;
    struct eb_pack_draw *draws; /* which row goes to which bag, by row */
    double *exact_sums;         /* [bag_count][elements] */
    double *stored_sums;        /* [bag_count][elements] */
};

/* Of a table of so many rows. false: out of memory. */
bool eb_pack_error_init(struct eb_pack_error *error, uint64_t row_count, uint32_t elements);
/* Accepts a zeroed struct. */
void eb_pack_error_deinit(struct eb_pack_error *error);

/* Counts a row, of which there are the values and what is read back; rows come in order, from 0. */
void eb_pack_error_add(
    struct eb_pack_error *error, uint64_t row, const float *exact, const float *stored);

/* The errors of the bags' sums. */
struct eb_pack_deviation eb_pack_error_bags(const struct eb_pack_error *error);
