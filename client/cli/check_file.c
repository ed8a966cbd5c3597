#include "client/cli/check_file.h"

#include "client/cli/output.h"
#include "client/cli/pack_keys.h"
#include "client/cli/progress_bar.h"
#include "kernels/key_index.h"
#include "kernels/row_format.h"
#include "server/tables/table_memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define KEYS_SUFFIX ".keys.npy"
/* Of an index, between two looks at how far it is. */
#define BUCKETS_AT_ONCE 65536
#define KEYS_AT_ONCE 4096

static bool is_keys(const char *path)
{
    size_t length = strlen(path);
    size_t suffix = strlen(KEYS_SUFFIX);
    return length > suffix && strcmp(path + length - suffix, KEYS_SUFFIX) == 0;
}

bool eb_check_file_is_known(const char *path)
{
    return eb_source_file_is_known(path);
}

static bool check_blocks(
    struct eb_packed_reader *reader, const char *path, struct eb_failure *failure)
{
    const struct eb_packed_format *format = &reader->format;
    struct eb_progress_bar bar;
    eb_progress_bar_init(&bar, path, format->file_bytes - format->head_bytes);
    uint64_t count = eb_packed_format_block_count(format);
    bool is_good = true;
    for (uint64_t block = 0; is_good && block < count; block++) {
        is_good = eb_packed_reader_check(reader, block, failure);
        eb_progress_bar_advance(&bar, eb_packed_format_block_bytes(format, block));
    }
    eb_progress_bar_end(&bar);
    return is_good;
}

/* What is read of a packed table's keys. */
struct keyed {
    struct eb_pack_keys keys;
    struct eb_table_memory memory; /* of what follows: lookups are slow in small pages */
    void *index;
    uint64_t index_bytes;
    uint64_t *seen;
};

static bool verify_index(const struct keyed *keyed, const struct eb_key_index *index,
    struct eb_progress_bar *bar, struct eb_failure *failure)
{
    const uint64_t bucket_count = eb_key_index_bucket_count(index);
    const uint64_t bucket_bytes = keyed->index_bytes / bucket_count;
    uint64_t bucket = 0;
    while (bucket < bucket_count) {
        const uint64_t first = bucket;
        const char *reason;
        if (!eb_key_index_verify(index, keyed->seen, &bucket, BUCKETS_AT_ONCE, &reason)) {
            return eb_failure_set(failure,
                "its key index, bucket %" PRIu64 ": %s; pack the table again", bucket, reason);
        }
        eb_progress_bar_advance(bar, (bucket - first) * bucket_bytes);
    }
    eb_progress_bar_advance(bar, keyed->index_bytes - bar->done_bytes);
    return true;
}

/* Whether every key of the file leads to its row. */
static bool find_file_rows(const struct eb_pack_keys *keys, const struct eb_key_index *index,
    struct eb_progress_bar *bar, struct eb_failure *failure)
{
    int64_t rows[KEYS_AT_ONCE];
    for (uint64_t first = 0; first < keys->count; first += KEYS_AT_ONCE) {
        uint64_t left = keys->count - first;
        uint64_t count = left < KEYS_AT_ONCE ? left : KEYS_AT_ONCE;
        memcpy(rows, keys->keys + first, count * sizeof rows[0]);
        eb_key_index_take_rows(index, -1, rows, count);
        for (uint64_t i = 0; i < count; i++) {
            if (rows[i] != (int64_t)(first + i)) {
                return eb_failure_set(failure,
                    "its key index leads key %" PRIi64 " of row %" PRIu64 " to row %" PRIi64
                    "; pack the table again",
                    keys->keys[first + i], first + i, rows[i]);
            }
        }
        eb_progress_bar_advance(bar, count * sizeof rows[0]);
    }
    return true;
}

/* Whether an index is sound and leads every key to its row, so that no two keys are the same. */
static bool check_file_index(const struct keyed *keyed, struct eb_failure *failure)
{
    const struct eb_pack_keys *keys = &keyed->keys;
    struct eb_progress_bar bar;
    struct eb_key_index index;
    const char *reason;
    if (!eb_key_index_open(&index, keyed->index, keyed->index_bytes, keys->count, &reason)) {
        return eb_failure_set(failure, "its key index: %s; pack the table again", reason);
    }
    eb_progress_bar_init(
        &bar, "index of keys", keyed->index_bytes + keys->count * sizeof *keys->keys);
    bool is_good =
        verify_index(keyed, &index, &bar, failure) && find_file_rows(keys, &index, &bar, failure);
    eb_progress_bar_end(&bar);
    return is_good;
}

static bool read_file_index(
    struct keyed *keyed, struct eb_packed_reader *reader, struct eb_failure *failure)
{
    const struct eb_packed_section *section = &reader->format.sections[EB_PACKED_KEY_INDEX];
    keyed->index_bytes = section->bytes;
    keyed->index = eb_table_memory_take(&keyed->memory, section->bytes, failure);
    keyed->seen = keyed->index ? eb_table_memory_take(&keyed->memory,
                                     eb_key_index_seen_bytes(keyed->keys.count) + 1, failure)
                               : NULL;
    if (!keyed->seen) {
        return false;
    }
    return eb_packed_reader_read(reader, section->offset, keyed->index, section->bytes, failure);
}

/* Checks the keys of a packed table that has some, and says what their index takes. */
static bool check_packed_keys(
    struct eb_packed_reader *reader, uint64_t *index_bytes, struct eb_failure *failure)
{
    struct keyed keyed = {0};
    bool has_index = reader->format.sections[EB_PACKED_KEY_INDEX].bytes > 0;
    bool is_good = eb_pack_keys_unpack(&keyed.keys, reader, failure);
    if (is_good && has_index) {
        is_good = read_file_index(&keyed, reader, failure) && check_file_index(&keyed, failure);
    } else if (is_good) {
        is_good = eb_pack_keys_index(&keyed.keys, failure);
    }
    *index_bytes = has_index ? keyed.index_bytes : keyed.keys.index_bytes;
    eb_pack_keys_deinit(&keyed.keys);
    eb_table_memory_deinit(&keyed.memory);
    return is_good;
}

/* What a file has of its table, where that is not all: ", from row 5 of part 1 of 3 of 100". */
static void print_place(const struct eb_packed_format *format)
{
    if (eb_packed_format_is_whole(format)) {
        return;
    }
    printf(", from row %" PRIu64 " of", format->row_first);
    if (format->parts > 1) {
        printf(" part %" PRIu32 " of %" PRIu32 " of", format->part, format->parts);
    }
    printf(" %" PRIu64, format->rows_total);
}

/* "PATH: table NAME, (5, 2) of f32, stored as int8", without an end of line. */
static void print_table(const char *path, const struct eb_source_table *table)
{
    char shape[EB_TENSOR_SHAPE_BYTES];
    eb_tensor_shape_text(&table->tensor, shape);
    printf("%s: table %s, %s of %s, stored as %s", eb_output_printable(path).bytes,
        eb_output_printable(table->name).bytes, shape, eb_type_name(table->type),
        eb_storage_name(table->tensor.storage));
}

static bool check_file_packed(
    struct eb_source_file *source, const char *path, struct eb_failure *failure)
{
    struct eb_packed_reader *reader = &source->reader;
    const struct eb_packed_format *format = &reader->format;
    uint64_t index_bytes = 0;
    bool is_keyed = eb_packed_format_is_keyed(format);
    if (!check_blocks(reader, path, failure) ||
        (is_keyed && !check_packed_keys(reader, &index_bytes, failure))) {
        return false;
    }
    uint64_t footprint =
        eb_table_memory_footprint(eb_table_memory_join(format->tensor.data_bytes, index_bytes));
    print_table(path, &source->tables[0]);
    print_place(format);
    printf("%s, %" PRIu64 " bytes of memory; digest %016" PRIx64 ", every byte is sound\n",
        is_keyed ? ", keyed" : "", footprint, format->digest);
    return true;
}

/* Tables without checksums. */
static bool check_plain(
    const struct eb_source_file *source, const char *path, struct eb_failure *failure)
{
    for (size_t i = 0; i < source->table_count; i++) {
        const struct eb_source_table *table = &source->tables[i];
        if (table->unfit) {
            printf("%s: tensor %s is passed over: %s\n", eb_output_printable(path).bytes,
                eb_output_printable(table->name).bytes, table->unfit);
            continue;
        }
        uint64_t elements = eb_tensor_row_elements(&table->tensor);
        if (elements > UINT32_MAX) {
            return eb_failure_set(failure,
                "rows of table '%.64s' have %" PRIu64 " values, at most 2^32 - 1 can be",
                table->name, elements);
        }
        uint64_t stride = eb_row_format_of(table->tensor.storage, (uint32_t)elements).stride_bytes;
        print_table(path, table);
        printf(", %" PRIu64 " bytes of memory; no checksums, its header is sound\n",
            eb_table_memory_footprint(table->tensor.dims[0] * stride));
    }
    return true;
}

static bool check_file_keys(const char *path, struct eb_failure *failure)
{
    struct eb_pack_keys keys;
    bool is_good = eb_pack_keys_read(&keys, path, failure) && eb_pack_keys_index(&keys, failure);
    if (is_good) {
        printf("%s: %" PRIu64 " keys, %" PRIu64 " bytes of memory; no two are the same\n",
            eb_output_printable(path).bytes, keys.count,
            eb_table_memory_footprint(keys.index_bytes));
    }
    eb_pack_keys_deinit(&keys);
    return is_good;
}

bool eb_check_file(const char *path, struct eb_failure *failure)
{
    if (is_keys(path)) {
        return check_file_keys(path, failure);
    }
    struct eb_source_file source;
    bool is_good = eb_source_file_open(&source, path, failure) &&
                   (source.is_packed ? check_file_packed(&source, path, failure)
                                     : check_plain(&source, path, failure));
    eb_source_file_close(&source);
    return is_good;
}
