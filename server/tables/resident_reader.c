#include "server/tables/resident_reader.h"

#include "proto/splitmix64.h"
#include "server/base/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#define INDEX_CHUNK_BYTES (UINT64_C(512) << 10)

bool eb_resident_reader_open(struct eb_resident_reader *reader, struct eb_resident_dir *dir,
    const char *name, struct eb_failure *failure)
{
    *reader = (struct eb_resident_reader){.dir = dir};
    *failure = (struct eb_failure){0};
    (void)snprintf(reader->name, sizeof reader->name, "%s", name);
    reader->descriptor = eb_resident_dir_find(dir, name, &reader->bytes, failure);
    if (reader->descriptor < 0) {
        return false;
    }
    enum eb_resident_footer_outcome outcome =
        eb_resident_dir_read_footer(reader->descriptor, reader->bytes, &reader->footer, failure);
    if (outcome == EB_RESIDENT_FOOTER_OTHER_LAYOUT) {
        eb_failure_set(failure, "it was made by a version of embag with another layout");
    }
    if (outcome != EB_RESIDENT_FOOTER_GOOD) {
        (void)close(reader->descriptor);
        return false;
    }
    return true;
}

void eb_resident_reader_close(struct eb_resident_reader *reader)
{
    (void)close(reader->descriptor);
    eb_resident_footer_deinit(&reader->footer);
}

uint64_t eb_resident_reader_chunk_count(const struct eb_resident_reader *reader)
{
    uint64_t count = 0;
    for (size_t i = 0; i < reader->footer.table_count; i++) {
        count += reader->footer.tables[i].chunk_count;
    }
    return count;
}

/* Compares chunks of the table, from `first` on in steps of `step`, with their hashes. */
static bool check_file_chunks(const struct eb_resident_table *table, int descriptor, uint64_t first,
    uint64_t step, struct eb_failure *failure)
{
    uint64_t chunk_bytes = table->chunk_rows * table->row_stride_bytes;
    uint8_t *buffer = malloc(chunk_bytes + 1);
    bool is_good = buffer || eb_failure_set(failure, "out of memory");
    for (uint64_t i = first; is_good && i < table->chunk_count; i += step) {
        uint64_t offset = i * chunk_bytes;
        uint64_t left = table->rows_bytes - offset;
        uint64_t bytes = left < chunk_bytes ? left : chunk_bytes;
        is_good =
            eb_resident_dir_read_range(
                descriptor, table->rows_offset + offset, buffer, bytes, failure) &&
            (XXH3_64bits(buffer, bytes) == table->chunk_hashes[i] ||
                eb_failure_set(failure,
                    "rows %" PRIu64 " to %" PRIu64 " of table '%.64s' differ "
                    "from their hash",
                    i * table->chunk_rows,
                    i * table->chunk_rows + bytes / table->row_stride_bytes - 1, table->name));
    }
    free(buffer);
    return is_good;
}

/* Compares the whole index of a keyed table with its hash. */
static bool check_file_index(
    const struct eb_resident_table *table, int descriptor, struct eb_failure *failure)
{
    XXH3_state_t *state = XXH3_createState();
    uint8_t *buffer = malloc(INDEX_CHUNK_BYTES);
    bool is_good = (state && buffer) || eb_failure_set(failure, "out of memory");
    if (is_good) {
        (void)XXH3_64bits_reset(state);
    }
    for (uint64_t done = 0; is_good && done < table->index_bytes; done += INDEX_CHUNK_BYTES) {
        uint64_t left = table->index_bytes - done;
        uint64_t bytes = left < INDEX_CHUNK_BYTES ? left : INDEX_CHUNK_BYTES;
        is_good = eb_resident_dir_read_range(
            descriptor, table->index_offset + done, buffer, bytes, failure);
        if (is_good) {
            (void)XXH3_64bits_update(state, buffer, bytes);
        }
    }
    if (is_good && table->index_bytes > 0 && XXH3_64bits_digest(state) != table->index_hash) {
        is_good = eb_failure_set(
            failure, "the index of table '%.64s' differs from its hash", table->name);
    }
    (void)XXH3_freeState(state);
    free(buffer);
    return is_good;
}

bool eb_resident_reader_check(
    const struct eb_resident_reader *reader, uint64_t step, struct eb_failure *failure)
{
    uint64_t state = eb_clock_unix_ms();
    for (size_t i = 0; i < reader->footer.table_count; i++) {
        const struct eb_resident_table *table = &reader->footer.tables[i];
        uint64_t most = step < table->chunk_count ? step : table->chunk_count;
        uint64_t first = most > 1 ? eb_splitmix64_next(&state) % most : 0;
        if (!check_file_chunks(table, reader->descriptor, first, step, failure) ||
            (step == 1 && !check_file_index(table, reader->descriptor, failure))) {
            return false;
        }
    }
    return true;
}

struct eb_table_mapping *eb_resident_reader_map(
    const struct eb_resident_reader *reader, struct eb_failure *failure)
{
    return eb_table_mapping_open_file(
        reader->dir, reader->name, reader->descriptor, reader->bytes, failure);
}
