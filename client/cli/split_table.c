#include "client/cli/split_table.h"

#include "server/base/directory.h"
#include "server/formats/packed_writer.h"
#include "server/tables/key_load.h"
#include "server/tables/row_load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of rows that are read at once. */
#define WINDOW_BYTES (UINT64_C(64) << 20)
/* Keys that are read at once when there are no rows to read with them. */
#define KEYS_AT_ONCE (UINT64_C(1) << 20)

/* A table whose rows are being dealt to files. */
struct dealer {
    const struct eb_split_job *job;
    struct eb_part_rule rule;
    bool by_key; /* the rows of a keyed table are divided */
    uint32_t file_count;
    struct eb_packed_writer *writers; /* [file_count] */
    uint64_t *row_counts;             /* [file_count] */
    struct eb_row_load load;
    struct eb_load_meter meter;
    uint64_t window_rows;
    uint8_t *rows;        /* [window_rows] rows */
    int64_t *keys;        /* [window_rows or KEYS_AT_ONCE, the larger] */
    uint8_t *unknown_row; /* the last row of every part; NULL if the table has no unknown row */
    int64_t unknown_key;
    struct eb_failure *failure;
};

/* Rows [first, first + count) of the table. */
struct window {
    uint64_t first;
    uint64_t count;
};

uint32_t eb_split_job_files(const struct eb_split_job *job)
{
    return job->placement == EB_PLACEMENT_ROWS ? job->parts : 1;
}

static bool is_unknown_row(const struct dealer *dealer, uint64_t row)
{
    int64_t unknown = dealer->job->table->unknown_row;
    return dealer->by_key && unknown >= 0 && (uint64_t)unknown == row;
}

/* Returns the number of the file that a row belongs to. `keys` are those of the window. */
static uint32_t find_file(const struct dealer *dealer, const struct window *window, uint64_t i)
{
    int64_t index = dealer->by_key ? dealer->keys[i] : (int64_t)(window->first + i);
    return dealer->file_count == 1 ? 0 : eb_part_of(&dealer->rule, index);
}

static bool read_keys(struct dealer *dealer, const struct window *window)
{
    struct eb_key_load load = {dealer->job->plan, dealer->job->table, NULL, &dealer->meter};
    return eb_key_load_read(&load, window->first, window->count, dealer->keys, dealer->failure);
}

/* Calls `take` for windows of at most `step` rows of the whole table. */
static bool walk_windows(struct dealer *dealer, uint64_t step,
    bool (*take)(struct dealer *dealer, const struct window *window))
{
    uint64_t rows = dealer->job->table->tensor.dims[0];
    bool is_good = true;
    for (uint64_t first = 0; is_good && first < rows; first += step) {
        struct window window = {first, rows - first < step ? rows - first : step};
        is_good = take(dealer, &window);
    }
    return is_good;
}

/* ---- the sizes of the files ---- */

static bool count_keys(struct dealer *dealer, const struct window *window)
{
    if (!read_keys(dealer, window)) {
        return false;
    }
    for (uint64_t i = 0; i < window->count; i++) {
        if (is_unknown_row(dealer, window->first + i)) {
            dealer->unknown_key = dealer->keys[i];
        } else {
            dealer->row_counts[find_file(dealer, window, i)]++;
        }
    }
    return true;
}

/* Counts the rows of each file. */
static bool count_rows(struct dealer *dealer)
{
    const struct eb_planned_table *table = dealer->job->table;
    uint64_t rows = table->tensor.dims[0];
    for (uint32_t i = 0; i < dealer->file_count && !dealer->by_key; i++) {
        dealer->row_counts[i] = eb_packed_format_part_rows(rows, dealer->file_count, i);
    }
    if (!dealer->by_key) {
        return true;
    }
    if (!walk_windows(dealer, KEYS_AT_ONCE, count_keys)) {
        return false;
    }
    for (uint32_t i = 0; i < dealer->file_count && table->unknown_row >= 0; i++) {
        dealer->row_counts[i]++;
    }
    return true;
}

static struct eb_packed_format describe_file(const struct dealer *dealer, uint32_t number)
{
    const struct eb_split_job *job = dealer->job;
    const struct eb_planned_table *table = job->table;
    struct eb_packed_format format = {
        .tensor = {.storage = table->storage, .rank = table->tensor.rank},
        .type = table->type,
        .row_stride_bytes = table->row_stride_bytes,
        .rows_total = table->tensor.dims[0],
        .parts = dealer->file_count,
        .part = number,
        .unknown_row = table->unknown_row >= 0 ? table->unknown_row : -1,
        .by_key = dealer->by_key,
        .salt = dealer->by_key ? job->salt : 0,
    };
    memcpy(format.tensor.dims, table->tensor.dims, sizeof format.tensor.dims);
    format.tensor.dims[0] = dealer->row_counts[number];
    if (table->is_keyed) {
        format.sections[EB_PACKED_KEYS].bytes = dealer->row_counts[number] * sizeof(int64_t);
    }
    return format;
}

/* Returns the path of a file, which the caller frees; NULL with *failure set if out of memory. */
static char *make_path(const struct dealer *dealer, uint32_t number)
{
    const struct eb_split_job *job = dealer->job;
    char folder[EB_PART_FOLDER_BYTES] = "";
    const char *separator = "";
    char *path;
    if (job->placement != EB_PLACEMENT_EVERYWHERE) {
        bool is_divided = job->placement == EB_PLACEMENT_ROWS;
        eb_part_folder_name(is_divided ? number : job->part, job->parts, folder);
        separator = "/";
    }
    int length = asprintf(&path, "%s/%s%s%s" EB_PACKED_FORMAT_SUFFIX, job->directory, folder,
        separator, job->table->name);
    if (length < 0) {
        eb_failure_set(dealer->failure, "out of memory");
        return NULL;
    }
    return path;
}

static bool open_file(struct dealer *dealer, uint32_t number)
{
    struct eb_packed_format format = describe_file(dealer, number);
    char *path = make_path(dealer, number);
    bool is_good = path && eb_packed_format_lay_out(&format, dealer->failure);
    if (path && !is_good) {
        eb_failure_locate(dealer->failure, path);
    }
    is_good =
        is_good && eb_packed_writer_open(&dealer->writers[number], path, &format, dealer->failure);
    if (is_good && dealer->row_counts[number] > 0) {
        is_good = eb_packed_writer_begin(&dealer->writers[number], EB_PACKED_ROWS, dealer->failure);
    }
    free(path);
    return is_good;
}

/* ---- rows ---- */

/* Appends the rows of the window, which have been read. */
static bool append_rows(struct dealer *dealer, const struct window *window)
{
    uint64_t stride = dealer->job->table->row_stride_bytes;
    if (dealer->file_count == 1 && !dealer->unknown_row) {
        return eb_packed_writer_append(
            dealer->writers, dealer->rows, window->count * stride, dealer->failure);
    }
    for (uint64_t i = 0; i < window->count; i++) {
        const uint8_t *row = dealer->rows + i * stride;
        if (is_unknown_row(dealer, window->first + i)) {
            memcpy(dealer->unknown_row, row, stride);
        } else if (!eb_packed_writer_append(&dealer->writers[find_file(dealer, window, i)], row,
                       stride, dealer->failure)) {
            return false;
        }
    }
    return true;
}

static bool deal_rows(struct dealer *dealer, const struct window *window)
{
    uint64_t chunk_rows = eb_row_load_chunk_rows(dealer->job->table->row_stride_bytes);
    uint64_t first = window->first / chunk_rows;
    uint64_t end = first + window->count / chunk_rows + (window->count % chunk_rows > 0);
    /* The gaps between rows are not written when rows are read. */
    memset(dealer->rows, 0, window->count * dealer->job->table->row_stride_bytes);
    eb_row_load_limit(&dealer->load, first, end);
    dealer->load.rows = dealer->rows;
    bool is_good = eb_row_load_run(&dealer->load, 1, dealer->job->thread_count, NULL,
                       &dealer->meter, dealer->failure) &&
                   (!dealer->by_key || read_keys(dealer, window)) && append_rows(dealer, window);
    eb_progress_bar_advance(dealer->job->bar, window->count * dealer->job->table->row_stride_bytes);
    return is_good;
}

/* ---- keys ---- */

static bool deal_keys(struct dealer *dealer, const struct window *window)
{
    if (!read_keys(dealer, window)) {
        return false;
    }
    for (uint64_t i = 0; i < window->count; i++) {
        if (!is_unknown_row(dealer, window->first + i) &&
            !eb_packed_writer_append(&dealer->writers[find_file(dealer, window, i)],
                &dealer->keys[i], sizeof *dealer->keys, dealer->failure)) {
            return false;
        }
    }
    return true;
}

/* Appends the row for unknown keys to every file, and begins the section of keys. */
static bool begin_keys(struct dealer *dealer)
{
    uint64_t stride = dealer->job->table->row_stride_bytes;
    bool is_good = true;
    for (uint32_t i = 0; i < dealer->file_count && is_good; i++) {
        struct eb_packed_writer *writer = &dealer->writers[i];
        is_good = !dealer->unknown_row ||
                  eb_packed_writer_append(writer, dealer->unknown_row, stride, dealer->failure);
        if (is_good && dealer->row_counts[i] > 0) {
            is_good = eb_packed_writer_begin(writer, EB_PACKED_KEYS, dealer->failure);
        }
    }
    return is_good;
}

static bool append_keys(struct dealer *dealer)
{
    bool is_good = begin_keys(dealer) && walk_windows(dealer, KEYS_AT_ONCE, deal_keys);
    for (uint32_t i = 0; dealer->unknown_row && i < dealer->file_count && is_good; i++) {
        is_good = eb_packed_writer_append(
            &dealer->writers[i], &dealer->unknown_key, sizeof dealer->unknown_key, dealer->failure);
    }
    return is_good;
}

/* ---- the whole ---- */

static bool take_dealer_memory(struct dealer *dealer)
{
    const struct eb_planned_table *table = dealer->job->table;
    uint64_t chunk_rows = eb_row_load_chunk_rows(table->row_stride_bytes);
    uint64_t chunks = WINDOW_BYTES / (chunk_rows * table->row_stride_bytes);
    dealer->window_rows = chunk_rows * (chunks > 0 ? chunks : 1);
    uint64_t rows_max =
        dealer->window_rows < table->tensor.dims[0] ? dealer->window_rows : table->tensor.dims[0];
    uint64_t keys_max = rows_max > KEYS_AT_ONCE ? rows_max : KEYS_AT_ONCE;
    dealer->writers = calloc(dealer->file_count, sizeof *dealer->writers);
    dealer->row_counts = calloc(dealer->file_count, sizeof *dealer->row_counts);
    dealer->rows = malloc(rows_max * table->row_stride_bytes + 1);
    dealer->keys = table->is_keyed ? malloc(keys_max * sizeof *dealer->keys) : NULL;
    bool has_unknown = dealer->by_key && table->unknown_row >= 0;
    dealer->unknown_row = has_unknown ? malloc(table->row_stride_bytes) : NULL;
    return (dealer->writers && dealer->row_counts && dealer->rows &&
               (dealer->keys || !table->is_keyed) && (dealer->unknown_row || !has_unknown)) ||
           eb_failure_set(dealer->failure, "out of memory");
}

static bool write_files(struct dealer *dealer, uint64_t *digests)
{
    bool is_good = count_rows(dealer);
    for (uint32_t i = 0; i < dealer->file_count && is_good; i++) {
        is_good = open_file(dealer, i);
    }
    is_good = is_good && walk_windows(dealer, dealer->window_rows, deal_rows) &&
              (!dealer->job->table->is_keyed || append_keys(dealer));
    for (uint32_t i = 0; i < dealer->file_count && is_good; i++) {
        is_good = eb_packed_writer_end(&dealer->writers[i], dealer->failure) &&
                  eb_packed_writer_publish(&dealer->writers[i], dealer->failure);
        digests[i] = dealer->writers[i].format.digest;
    }
    return is_good;
}

bool eb_split_table(const struct eb_split_job *job, uint64_t *digests, struct eb_failure *failure)
{
    bool by_key = job->table->is_keyed && job->placement == EB_PLACEMENT_ROWS;
    struct dealer dealer = {
        .job = job,
        .rule = {job->parts, by_key, job->salt},
        .by_key = by_key,
        .file_count = eb_split_job_files(job),
        .failure = failure,
    };
    eb_load_meter_init(&dealer.meter, NULL, 0);
    if (!eb_row_load_init(&dealer.load, job->plan, job->table, failure)) {
        return false;
    }
    bool is_good = take_dealer_memory(&dealer) && write_files(&dealer, digests);
    for (uint32_t i = 0; dealer.writers && i < dealer.file_count; i++) {
        eb_packed_writer_close(&dealer.writers[i]);
    }
    eb_row_load_deinit(&dealer.load);
    free(dealer.writers);
    free(dealer.row_counts);
    free(dealer.rows);
    free(dealer.keys);
    free(dealer.unknown_row);
    return is_good;
}
