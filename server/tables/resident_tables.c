#include "server/tables/resident_tables.h"

#include "server/base/log.h"
#include "server/tables/resident_reader.h"
#include "server/tables/row_load.h"
#include "server/tables/source_key.h"
#include "server/tables/worker_pool.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* ---- which tables lie in which file ---- */

static uint64_t file_table_bytes(const struct eb_planned_table *table)
{
    return eb_table_memory_join(table->rows_bytes, table->index_bytes);
}

static bool is_small_table(const struct eb_planned_table *table)
{
    return eb_table_memory_footprint(file_table_bytes(table)) < EB_PAGE_2M_BYTES;
}

/* Adds a file with the `count` tables at `first`, and sets their slots in it. */
static void add_resident_file(struct eb_resident_tables *tables, enum eb_resident_kind kind,
    uint64_t key, struct eb_planned_table **first, size_t count)
{
    struct eb_resident_file *file = &tables->files[tables->file_count++];
    *file = (struct eb_resident_file){.kind = kind, .table_count = count, .tables = first};
    eb_resident_dir_name(kind, key, file->name);
    uint64_t offset = 0;
    for (size_t i = 0; i < count; i++) {
        first[i]->file = file;
        first[i]->slot = i;
        first[i]->file_offset = offset;
        offset += eb_table_memory_footprint(file_table_bytes(first[i]));
    }
}

/* Lists the small tables at the beginning of tables->tables, and adds their file. Returns how many
 * there are. */
static size_t add_small_tables(struct eb_resident_tables *tables, struct eb_table_plan *plan)
{
    size_t count = 0;
    uint64_t key = 0;
    for (size_t i = 0; i < plan->table_count; i++) {
        struct eb_planned_table *planned = &plan->tables[i];
        if (!planned->resident && is_small_table(planned)) {
            tables->tables[count++] = planned;
            key = XXH3_64bits_withSeed(&planned->source_key, sizeof planned->source_key, key);
        }
    }
    if (count > 0 && count <= EB_RESIDENT_TABLES_MAX) {
        add_resident_file(tables, EB_RESIDENT_SMALL, key, tables->tables, count);
    }
    return count;
}

bool eb_resident_tables_init(struct eb_resident_tables *tables, struct eb_table_plan *plan,
    const struct eb_resident_options *options, const char *directory, struct eb_failure *failure)
{
    *tables =
        (struct eb_resident_tables){.options = *options, .plan = plan, .directory = directory};
    if (!options->dir) {
        return true;
    }
    tables->files = calloc(plan->table_count + 1, sizeof *tables->files);
    tables->tables = calloc(plan->table_count + 1, sizeof(struct eb_planned_table *));
    if (!tables->files || !tables->tables) {
        eb_resident_tables_deinit(tables);
        return eb_failure_set(failure, "%s: out of memory", directory);
    }
    for (size_t i = 0; i < plan->table_count; i++) {
        struct eb_planned_table *planned = &plan->tables[i];
        planned->source_key = eb_source_key(plan, planned, options->model, options->version);
    }
    size_t count = add_small_tables(tables, plan);
    for (size_t i = 0; i < plan->table_count; i++) {
        struct eb_planned_table *planned = &plan->tables[i];
        if (!planned->resident && !is_small_table(planned)) {
            tables->tables[count] = planned;
            add_resident_file(
                tables, EB_RESIDENT_TABLE, planned->source_key, &tables->tables[count], 1);
            count++;
        }
    }
    return true;
}

void eb_resident_tables_deinit(struct eb_resident_tables *tables)
{
    for (size_t i = 0; i < tables->file_count; i++) {
        eb_resident_footer_deinit(&tables->files[i].footer);
    }
    free(tables->files);
    free(tables->tables);
    *tables = (struct eb_resident_tables){0};
}

uint8_t *eb_resident_tables_rows(const struct eb_planned_table *planned)
{
    const struct eb_resident_file *file = planned->file;
    return file && file->mapping ? file->mapping->base + planned->file_offset : NULL;
}

const struct eb_resident_table *eb_resident_tables_find(const struct eb_planned_table *planned)
{
    return &planned->file->footer.tables[planned->slot];
}

/* ---- adoption ---- */

/* Returns whether the table in the footer is the one that the plan would make. */
static bool is_file_table_alike(
    const struct eb_resident_table *found, const struct eb_planned_table *planned)
{
    const struct eb_tensor *tensor = &planned->tensor;
    uint64_t index_offset = planned->file_offset + file_table_bytes(planned) - planned->index_bytes;
    return found->source_key == planned->source_key && found->type == planned->type &&
           found->storage == planned->storage && found->rank == tensor->rank &&
           memcmp(found->dims, tensor->dims, tensor->rank * sizeof tensor->dims[0]) == 0 &&
           found->row_offset_bytes == planned->row_offset_bytes &&
           found->row_stride_bytes == planned->row_stride_bytes &&
           found->rows_offset == planned->file_offset && found->rows_bytes == planned->rows_bytes &&
           found->index_bytes == planned->index_bytes &&
           (planned->index_bytes == 0 || found->index_offset == index_offset);
}

static bool check_file_tables(const struct eb_resident_file *file,
    const struct eb_resident_footer *footer, struct eb_failure *failure)
{
    if (footer->table_count != file->table_count) {
        return eb_failure_set(
            failure, "it has %zu tables instead of %zu", footer->table_count, file->table_count);
    }
    for (size_t i = 0; i < file->table_count; i++) {
        if (!is_file_table_alike(&footer->tables[i], file->tables[i])) {
            return eb_failure_set(
                failure, "table '%.64s' is not as it would be loaded", file->tables[i]->name);
        }
    }
    return true;
}

/* Puts the mapping of a file into the memory. */
static bool keep_file(struct eb_resident_file *file, struct eb_table_mapping *mapping,
    struct eb_table_memory *memory, struct eb_failure *failure)
{
    bool is_kept = mapping && eb_table_memory_keep(memory, mapping, failure);
    file->mapping = is_kept ? mapping : NULL;
    return is_kept;
}

/* Counts what has become of the file's tables. */
static void count_outcome(const struct eb_resident_tables *tables,
    const struct eb_resident_file *file, enum eb_resident_outcome outcome)
{
    atomic_fetch_add(&tables->options.dir->outcomes[outcome], file->table_count);
}

static void reject_file(
    const struct eb_resident_tables *tables, struct eb_resident_file *file, const char *reason)
{
    count_outcome(tables, file, EB_RESIDENT_REJECTED);
    eb_log(EB_LOG_WARN, "resident_rejected", eb_log_text("file", file->name),
        eb_log_text("directory", tables->directory), eb_log_text("reason", reason),
        eb_log_text("remedy", "none is needed: the table is loaded again"));
    eb_resident_dir_unlink(tables->options.dir, file->name);
}

/* Adopts one file. Returns the bytes of its tables, or 0 if there is none or it is not sound. */
static uint64_t adopt_file(struct eb_resident_tables *tables, struct eb_resident_file *file,
    struct eb_table_memory *memory)
{
    struct eb_failure failure;
    struct eb_resident_reader reader;
    if (!eb_resident_reader_open(&reader, tables->options.dir, file->name, &failure)) {
        if (failure.text[0] != '\0') {
            reject_file(tables, file, failure.text);
        }
        return 0;
    }
    file->is_adopted = check_file_tables(file, &reader.footer, &failure) &&
                       eb_resident_reader_check(&reader, tables->sample_step, &failure) &&
                       keep_file(file, eb_resident_reader_map(&reader, &failure), memory, &failure);
    if (file->is_adopted) {
        count_outcome(tables, file, EB_RESIDENT_ADOPTED);
        file->footer = reader.footer;
        reader.footer = (struct eb_resident_footer){0};
    } else {
        reject_file(tables, file, failure.text);
    }
    for (size_t i = 0; i < file->table_count; i++) {
        file->tables[i]->is_adopted = file->is_adopted;
    }
    eb_resident_reader_close(&reader);
    return file->is_adopted ? file->mapping->bytes : 0;
}

uint64_t eb_resident_tables_adopt(struct eb_resident_tables *tables, struct eb_table_memory *memory)
{
    uint64_t chunks = 0;
    for (size_t i = 0; i < tables->file_count; i++) {
        for (size_t k = 0; k < tables->files[i].table_count; k++) {
            chunks += tables->files[i].tables[k]->rows_bytes / EB_ROW_LOAD_CHUNK_BYTES + 1;
        }
    }
    tables->sample_step =
        tables->options.is_checked_whole ? 1 : chunks / EB_RESIDENT_TABLES_SAMPLE + 1;
    uint64_t bytes = 0;
    if (tables->file_count > 0) {
        eb_resident_dir_begin_adopting(tables->options.dir);
        for (size_t i = 0; i < tables->file_count; i++) {
            bytes += adopt_file(tables, &tables->files[i], memory);
        }
        eb_resident_dir_end_adopting(tables->options.dir);
    }
    return bytes;
}

/* ---- new files ---- */

/* Fills in how the footer describes a table of the file, as far as the plan knows it. */
static void describe_planned(const struct eb_planned_table *planned, struct eb_resident_table *out)
{
    const struct eb_tensor *tensor = &planned->tensor;
    *out = (struct eb_resident_table){
        .name = planned->name,
        .type = planned->type,
        .storage = planned->storage,
        .rank = tensor->rank,
        .row_offset_bytes = planned->row_offset_bytes,
        .row_stride_bytes = planned->row_stride_bytes,
        .rows_offset = planned->file_offset,
        .rows_bytes = planned->rows_bytes,
        .index_bytes = planned->index_bytes,
        .source_key = planned->source_key,
        .chunk_rows = eb_row_load_chunk_rows(planned->row_stride_bytes),
    };
    out->chunk_count = eb_row_load_chunk_count(planned);
    memcpy(out->dims, tensor->dims, sizeof out->dims);
    if (planned->index_bytes > 0) {
        out->index_offset = planned->file_offset + file_table_bytes(planned) - planned->index_bytes;
    }
}

/* Describes the whole file, for its footer. The list of tables, which the caller frees, is in
 * footer->memory. Returns false if out of memory. */
static bool describe_file(const struct eb_resident_tables *tables,
    const struct eb_resident_file *file, struct eb_resident_footer *footer)
{
    struct eb_resident_table *list = calloc(file->table_count, sizeof *list);
    for (size_t i = 0; list && i < file->table_count; i++) {
        describe_planned(file->tables[i], &list[i]);
    }
    *footer = (struct eb_resident_footer){
        .numa = tables->options.numa,
        .embag_version = tables->options.embag_version,
        .source = tables->directory,
        .table_count = file->table_count,
        .tables = list,
        .memory = list,
    };
    return list;
}

/* Returns the bytes of the file's tables, with the gaps between them. */
static uint64_t count_file_bytes(const struct eb_resident_file *file)
{
    const struct eb_planned_table *last = file->tables[file->table_count - 1];
    return last->file_offset + eb_table_memory_footprint(file_table_bytes(last));
}

/* Counts and logs tables that are in ordinary memory. `reason` is FULL, SMALL_PAGES or FAILED. */
static void log_not_made(const struct eb_resident_tables *tables,
    const struct eb_resident_file *file, enum eb_resident_outcome reason, const char *why)
{
    static const char *const events[] = {
        [EB_RESIDENT_FULL] = "resident_full",
        [EB_RESIDENT_SMALL_PAGES] = "resident_small_pages",
        [EB_RESIDENT_FAILED] = "resident_failed",
    };
    static const char *const hints[] = {
        [EB_RESIDENT_FULL] =
            "the table is in ordinary memory, and is loaded again at the next start; make the "
            "file system larger: it holds every version that is kept",
        [EB_RESIDENT_SMALL_PAGES] =
            "the table is in ordinary memory, and is loaded again at the next start; mount "
            "the tmpfs with huge=always, use Linux 6.1 or newer, or set "
            "resident_small_pages to allow",
        [EB_RESIDENT_FAILED] =
            "the table is in ordinary memory, and is loaded again at the next start",
    };
    count_outcome(tables, file, reason);
    eb_log(EB_LOG_WARN, events[reason], eb_log_text("table", file->tables[0]->name),
        eb_log_count("tables", file->table_count), eb_log_text("directory", tables->directory),
        eb_log_text("reason", why), eb_log_text("remedy", hints[reason]));
}

/* Makes one file, without pages. */
static void create_file(struct eb_resident_tables *tables, struct eb_resident_file *file)
{
    struct eb_failure failure;
    struct eb_resident_footer footer;
    if (!describe_file(tables, file, &footer)) {
        log_not_made(tables, file, EB_RESIDENT_FAILED, "out of memory");
        return;
    }
    uint64_t bytes = eb_resident_footer_file_bytes(&footer, count_file_bytes(file));
    free(footer.memory);
    if (bytes == UINT64_MAX) {
        log_not_made(tables, file, EB_RESIDENT_FAILED,
            "its description exceeds the limits of a resident file");
        return;
    }
    enum eb_table_mapping_file outcome = eb_table_mapping_create_file(
        tables->options.dir, bytes, tables->options.numa, &file->mapping, &failure);
    if (outcome != EB_TABLE_MAPPING_MADE) {
        log_not_made(tables, file,
            outcome == EB_TABLE_MAPPING_FULL ? EB_RESIDENT_FULL : EB_RESIDENT_FAILED, failure.text);
    }
}

static bool is_new_file(const struct eb_resident_file *file)
{
    return file->mapping && !file->is_adopted;
}

/* Populates one slice of a new file. Slices are numbered through all new files. */
static bool populate_slice(
    void *context, struct eb_pool_worker *worker, uint64_t task, struct eb_failure *failure)
{
    struct eb_resident_tables *tables = context;
    (void)worker;
    (void)failure;
    for (size_t i = 0; i < tables->file_count; i++) {
        struct eb_resident_file *file = &tables->files[i];
        uint64_t count = is_new_file(file) ? eb_table_mapping_slice_count(file->mapping) : 0;
        if (task < count) {
            atomic_fetch_add(&file->huge_bytes, eb_table_mapping_populate(file->mapping, task));
            return true;
        }
        task -= count;
    }
    return true;
}

static void *open_populating(void *context, struct eb_failure *failure)
{
    (void)failure;
    return context;
}

static void close_populating(void *state)
{
    (void)state;
}

/* Makes the pages of all new files present. A page that is not available now becomes present when
 * it is first written, because room for it is reserved. */
static void populate_files(struct eb_resident_tables *tables, unsigned thread_count)
{
    struct eb_failure failure;
    struct eb_load_meter meter;
    eb_load_meter_init(&meter, NULL, 0);
    struct eb_worker_pool pool = {
        .thread_count = thread_count,
        .meter = &meter,
        .open = open_populating,
        .run = populate_slice,
        .close = close_populating,
        .context = tables,
    };
    for (size_t i = 0; i < tables->file_count; i++) {
        const struct eb_resident_file *file = &tables->files[i];
        pool.task_count += is_new_file(file) ? eb_table_mapping_slice_count(file->mapping) : 0;
    }
    if (!eb_worker_pool_run(&pool, &failure)) {
        eb_log(EB_LOG_DEBUG, "resident_unpopulated", eb_log_text("reason", failure.text));
    }
}

/* Gives the new file to the memory if enough of it is in huge pages. Otherwise drops it. */
static void keep_new_file(struct eb_resident_tables *tables, struct eb_resident_file *file,
    struct eb_table_memory *memory)
{
    struct eb_failure failure;
    uint64_t bytes = file->mapping->bytes;
    uint64_t huge_bytes = atomic_load(&file->huge_bytes);
    if (huge_bytes < bytes / 100 * EB_TABLE_MAPPING_HUGE_PERCENT_MIN &&
        !tables->options.may_be_small) {
        eb_failure_set(&failure, "only %" PRIu64 " of %" PRIu64 " bytes are in pages of 2 MiB",
            huge_bytes, bytes);
        log_not_made(tables, file, EB_RESIDENT_SMALL_PAGES, failure.text);
        eb_table_mapping_give(file->mapping);
        file->mapping = NULL;
    } else if (!keep_file(file, file->mapping, memory, &failure)) {
        log_not_made(tables, file, EB_RESIDENT_FAILED, failure.text);
    } else {
        for (size_t i = 0; i < file->table_count; i++) {
            file->tables[i]->has_pages = true;
        }
    }
}

static bool may_make_files(const struct eb_resident_tables *tables)
{
    return tables->options.dir && atomic_load(&tables->options.dir->is_owner);
}

bool eb_resident_tables_has_pool(const struct eb_resident_tables *tables)
{
    return may_make_files(tables) && tables->options.dir->fs == EB_RESIDENT_HUGETLBFS;
}

void eb_resident_tables_create(
    struct eb_resident_tables *tables, struct eb_table_memory *memory, unsigned thread_count)
{
    if (!may_make_files(tables)) {
        return;
    }
    for (size_t i = 0; i < tables->file_count; i++) {
        struct eb_resident_file *file = &tables->files[i];
        if (!file->is_adopted && !file->tables[0]->resident) {
            create_file(tables, file);
        }
    }
    populate_files(tables, thread_count);
    for (size_t i = 0; i < tables->file_count; i++) {
        if (is_new_file(&tables->files[i])) {
            keep_new_file(tables, &tables->files[i], memory);
        }
    }
}

/* ---- completion ---- */

/* Writes the footer at the end of the file. */
static bool write_footer(const struct eb_resident_tables *tables,
    const struct eb_resident_file *file, const struct eb_named_table *const *named)
{
    struct eb_resident_footer footer;
    if (!describe_file(tables, file, &footer)) {
        return false;
    }
    struct eb_resident_table *list = footer.memory;
    for (size_t i = 0; i < file->table_count; i++) {
        list[i].name = named[i]->name; /* the set has taken it over from the plan */
        list[i].digest = named[i]->digest;
        list[i].index_hash =
            named[i]->index ? XXH3_64bits(named[i]->index, named[i]->index_bytes) : 0;
        list[i].chunk_hashes = named[i]->chunk_hashes;
    }
    footer.file_bytes = file->mapping->bytes;
    eb_resident_footer_encode(&footer, file->mapping->base + file->mapping->bytes);
    free(list);
    return true;
}

bool eb_resident_tables_commit(struct eb_resident_tables *tables, struct eb_resident_file *file,
    const struct eb_named_table *const *named, struct eb_failure *failure)
{
    *failure = (struct eb_failure){0};
    if (!write_footer(tables, file, named)) {
        return eb_failure_set(failure, "%s: out of memory", tables->directory);
    }
    if (!eb_table_mapping_commit(file->mapping, file->name, failure)) {
        return false;
    }
    if (file->mapping->name[0] == '\0') {
        log_not_made(tables, file, EB_RESIDENT_FAILED, failure->text);
    } else {
        count_outcome(tables, file, EB_RESIDENT_WRITTEN);
    }
    return true;
}
