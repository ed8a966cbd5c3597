/* Packs a table: its rows, stored as they are or otherwise, go into one file or into several of
 * which each has some that follow one another. The files get their names when all of them are
 * complete.
 * Thread: one at a time. Memory: some MiB, and the head of each file, on the heap. */
#pragma once

#include "client/cli/pack_error.h"
#include "client/cli/pack_keys.h"
#include "client/cli/progress_bar.h"
#include "server/formats/packed_writer.h"

/* Five digits number the files. */
#define EB_PACK_TABLE_FILES_MAX 99999

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
