#include "server/models/table_plan.h"

#include "kernels/row_format.h"
#include "server/models/directory.h"
#include "server/models/name.h"
#include "server/models/npy.h"
#include "server/models/safetensors.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define NPY_SUFFIX ".npy"
#define SAFETENSORS_SUFFIX ".safetensors"
#define TABLES_FIRST 16 /* room for tables at first; doubled when full */

/* Forms of the repository's layout that are known but not read yet. Half a version must not be
 * served, so their presence refuses it. */
static const struct {
    const char *suffix;
    const char *what;
} unsupported[] = {
    {".keys.npy", "keyed tables"},
    {".safetensors.index.json", "tables split over several files"},
    {".embag", "packed tables"},
};
#define UNSUPPORTED_COUNT (sizeof unsupported / sizeof unsupported[0])

/* What reading a directory works on. */
struct planning {
    const struct eb_table_options *options;
    struct eb_table_plan *plan;
    size_t table_room;
    struct eb_file_fault *fault;
};

static bool ends_with(const char *name, const char *suffix)
{
    size_t name_length = strlen(name);
    size_t suffix_length = strlen(suffix);
    return name_length >= suffix_length && strcmp(name + name_length - suffix_length, suffix) == 0;
}

/* Whether `name` without its suffix ends in the "-00003-of-00016" of a split table. */
static bool is_split(const char *name, const char *suffix)
{
    static const char pattern[] = "-00000-of-00000";
    const size_t length = sizeof pattern - 1;
    size_t behind = strlen(suffix);
    if (!ends_with(name, suffix) || strlen(name) < length + behind) {
        return false;
    }
    const char *at = name + strlen(name) - behind - length;
    for (size_t i = 0; i < length; i++) {
        bool is_digit = at[i] >= '0' && at[i] <= '9';
        if (pattern[i] == '0' ? !is_digit : at[i] != pattern[i]) {
            return false;
        }
    }
    return true;
}

/* What a file of this name would need, in the plural; NULL: nothing that is not there. */
static const char *find_unsupported(const char *name)
{
    for (size_t i = 0; i < UNSUPPORTED_COUNT; i++) {
        if (ends_with(name, unsupported[i].suffix)) {
            return unsupported[i].what;
        }
    }
    if (is_split(name, NPY_SUFFIX) || is_split(name, SAFETENSORS_SUFFIX)) {
        return "tables split over several files";
    }
    return strcmp(name, "model.yaml") == 0 ? "descriptions of models" : NULL;
}

static bool check_table(
    const struct planning *planning, const char *name, const struct eb_tensor *tensor)
{
    const char *name_fault = eb_name_fault(name, planning->options->name_bytes_max);
    if (name_fault) {
        return eb_file_fault_set(
            planning->fault, "the table name '%.64s' %s; rename the table", name, name_fault);
    }
    uint64_t elements = eb_tensor_row_elements(tensor);
    uint64_t row_bytes = elements * eb_storage_bytes(tensor->storage);
    if (row_bytes > planning->options->row_bytes_max || elements > UINT32_MAX) {
        return eb_file_fault_set(planning->fault,
            "rows of table '%.64s' have %" PRIu64 " bytes; row_bytes_max is %" PRIu64, name,
            row_bytes, planning->options->row_bytes_max);
    }
    return true;
}

static bool reserve_table(struct planning *planning)
{
    struct eb_table_plan *plan = planning->plan;
    if (plan->table_count < planning->table_room) {
        return true;
    }
    size_t room = planning->table_room ? planning->table_room * 2 : TABLES_FIRST;
    struct eb_planned_table *tables = realloc(plan->tables, room * sizeof *tables);
    if (!tables) {
        return eb_file_fault_set(planning->fault, "out of memory");
    }
    plan->tables = tables;
    planning->table_room = room;
    return true;
}

/* Adds a table of the last file to the plan, which has room for it and takes the name. */
static void append_table(struct eb_table_plan *plan, char *name, const struct eb_tensor *tensor)
{
    uint64_t row_bytes = eb_tensor_row_elements(tensor) * eb_storage_bytes(tensor->storage);
    uint64_t stride = eb_row_stride(row_bytes);
    plan->tables[plan->table_count++] = (struct eb_planned_table){
        .name = name,
        .tensor = *tensor,
        .row_bytes = row_bytes,
        .row_stride_bytes = stride,
        .file = plan->file_count - 1,
    };
    plan->data_bytes += tensor->data_bytes;
    /* No overflow: a file has at most 2^63 bytes, and a stride is at most a quarter more. */
    uint64_t footprint = eb_table_memory_footprint(tensor->dims[0] * stride);
    if (__builtin_add_overflow(plan->memory_bytes, footprint, &plan->memory_bytes)) {
        plan->memory_bytes = UINT64_MAX;
    }
}

/* Adds a table of the last file; copies the `name_bytes` bytes of its name. */
static bool add_table(
    struct planning *planning, const char *name, size_t name_bytes, const struct eb_tensor *tensor)
{
    char *copy = strndup(name, name_bytes);
    if (!copy) {
        return eb_file_fault_set(planning->fault, "out of memory");
    }
    if (!check_table(planning, copy, tensor) || !reserve_table(planning)) {
        free(copy);
        return false;
    }
    append_table(planning->plan, copy, tensor);
    return true;
}

/* The first `bytes` bytes of a file, to be freed. */
static uint8_t *read_head(
    const struct eb_table_file *file, uint64_t bytes, struct eb_file_fault *fault)
{
    uint8_t *head = malloc(bytes > 0 ? bytes : 1);
    if (!head) {
        eb_file_fault_set(fault, "out of memory");
        return NULL;
    }
    if (!eb_table_file_read(file, 0, head, bytes, fault)) {
        free(head);
        return NULL;
    }
    return head;
}

static bool plan_npy(struct planning *planning, const struct eb_table_file *file, const char *name)
{
    uint64_t head_bytes =
        file->bytes < EB_NPY_HEADER_BYTES_MAX ? file->bytes : EB_NPY_HEADER_BYTES_MAX;
    uint8_t *head = read_head(file, head_bytes, planning->fault);
    if (!head) {
        return false;
    }
    struct eb_tensor tensor;
    bool is_good = eb_npy_parse(head, head_bytes, file->bytes, &tensor, planning->fault);
    free(head);
    return is_good && add_table(planning, name, strlen(name) - strlen(NPY_SUFFIX), &tensor);
}

static bool plan_safetensors(struct planning *planning, const struct eb_table_file *file)
{
    uint8_t first[8] = {0};
    uint64_t head_bytes = file->bytes < sizeof first ? file->bytes : sizeof first;
    if (!eb_table_file_read(file, 0, first, head_bytes, planning->fault) ||
        !eb_safetensors_head_bytes(first, file->bytes, &head_bytes, planning->fault)) {
        return false;
    }
    uint8_t *head = read_head(file, head_bytes, planning->fault);
    if (!head) {
        return false;
    }
    struct eb_safetensors list;
    bool is_good = eb_safetensors_parse(head, head_bytes, file->bytes, &list, planning->fault);
    free(head);
    for (size_t i = 0; is_good && i < list.count; i++) {
        const struct eb_safetensors_entry *entry = &list.entries[i];
        is_good = add_table(planning, entry->name, strlen(entry->name), &entry->tensor);
    }
    eb_safetensors_deinit(&list);
    return is_good;
}

/* Reads the headers of the last file, which is called `name`. */
static bool plan_tables(struct planning *planning, const char *name)
{
    struct eb_planned_file *planned = &planning->plan->files[planning->plan->file_count - 1];
    if (!eb_table_file_open(planned->path, &planned->look, planning->fault)) {
        return false;
    }
    bool is_good = ends_with(name, NPY_SUFFIX) ? plan_npy(planning, &planned->look, name)
                                               : plan_safetensors(planning, &planned->look);
    eb_table_file_close(&planned->look);
    return is_good;
}

static bool plan_file(struct planning *planning, const char *directory, const char *name)
{
    const char *missing = find_unsupported(name);
    if (!missing && !ends_with(name, NPY_SUFFIX) && !ends_with(name, SAFETENSORS_SUFFIX)) {
        return true;
    }
    struct eb_table_plan *plan = planning->plan;
    char *path = eb_directory_join(directory, name, planning->fault);
    if (!path) {
        return false;
    }
    plan->files[plan->file_count++] = (struct eb_planned_file){.path = path};
    bool is_good = missing ? eb_file_fault_set(planning->fault,
                                 "%s are not supported yet; remove the file", missing)
                           : plan_tables(planning, name);
    return is_good || eb_file_fault_locate(planning->fault, path);
}

static int compare_tables(const void *left, const void *right)
{
    const struct eb_planned_table *const *a = left;
    const struct eb_planned_table *const *b = right;
    return strcmp((*a)->name, (*b)->name);
}

static bool check_unique(const struct eb_table_plan *plan, struct eb_file_fault *fault)
{
    const struct eb_planned_table **sorted = malloc(plan->table_count * sizeof *sorted);
    if (!sorted) {
        return eb_file_fault_set(fault, "out of memory");
    }
    for (size_t i = 0; i < plan->table_count; i++) {
        sorted[i] = &plan->tables[i];
    }
    qsort(sorted, plan->table_count, sizeof *sorted, compare_tables);
    bool is_unique = true;
    for (size_t i = 1; is_unique && i < plan->table_count; i++) {
        const struct eb_planned_table *a = sorted[i - 1];
        const struct eb_planned_table *b = sorted[i];
        is_unique = strcmp(a->name, b->name) != 0 ||
                    eb_file_fault_set(fault, "%s: table '%.64s' is also in %s; remove one of them",
                        plan->files[a->file].path, a->name, plan->files[b->file].path);
    }
    free(sorted);
    return is_unique;
}

static bool plan_files(
    struct planning *planning, const char *directory, const struct eb_directory *listing)
{
    struct eb_table_plan *plan = planning->plan;
    plan->files = calloc(listing->count + 1, sizeof *plan->files);
    if (!plan->files) {
        return eb_file_fault_set(planning->fault, "%s: out of memory", directory);
    }
    for (size_t i = 0; i < listing->count; i++) {
        if (!plan_file(planning, directory, listing->entries[i]->d_name)) {
            return false;
        }
    }
    if (plan->table_count == 0) {
        return eb_file_fault_set(planning->fault,
            "%s: there is no table in it; put NAME.npy or NAME.safetensors there", directory);
    }
    return check_unique(plan, planning->fault);
}

bool eb_table_plan_read(const char *directory, const struct eb_table_options *options,
    struct eb_table_plan *plan, struct eb_file_fault *fault)
{
    *plan = (struct eb_table_plan){0};
    struct eb_directory listing;
    if (!eb_directory_read(directory, &listing, fault)) {
        return false;
    }
    struct planning planning = {.options = options, .plan = plan, .fault = fault};
    bool is_good = plan_files(&planning, directory, &listing);
    eb_directory_deinit(&listing);
    if (!is_good) {
        eb_table_plan_deinit(plan);
    }
    return is_good;
}

void eb_table_plan_deinit(struct eb_table_plan *plan)
{
    for (size_t i = 0; i < plan->table_count; i++) {
        free(plan->tables[i].name);
    }
    for (size_t i = 0; i < plan->file_count; i++) {
        free(plan->files[i].path);
    }
    free(plan->tables);
    free(plan->files);
    *plan = (struct eb_table_plan){0};
}
