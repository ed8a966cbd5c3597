#include "server/tables/table_plan.h"

#include "kernels/key_index.h"
#include "server/base/name.h"
#include "server/tables/default_vector.h"
#include "server/tables/part_plan.h"
#include "server/tables/scale_tensors.h"
#include "server/tables/table_storage.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OTHERS_BYTES 96 /* room for a text with a number */

/* The state of planning. */
struct planning {
    const struct eb_table_options *options;
    struct eb_table_plan *plan;
    const struct eb_model_config_table **sources; /* sorted by source; may be empty */
    size_t source_count;
    struct eb_scale_names scales;    /* tensors that are not tables */
    const struct eb_part_plan *part; /* NULL unless the version is in parts */
    struct eb_failure *failure;
};

static const char *path_of(const struct eb_table_plan *plan, const struct eb_piece *piece)
{
    return plan->scan.files[piece->file].path;
}

/* Returns where a table is described: in its first file or, if it is remote, in the manifest. */
static const char *place_of(const struct planning *planning, const struct eb_planned_table *table)
{
    return table->is_remote ? planning->part->path : path_of(planning->plan, table->rows.pieces);
}

/* ---- descriptions by source ---- */

static int compare_sources(const void *left, const void *right)
{
    const struct eb_model_config_table *const *a = left;
    const struct eb_model_config_table *const *b = right;
    return strcmp((*a)->source, (*b)->source);
}

static int compare_source(const void *name, const void *table)
{
    return strcmp(name, (*(const struct eb_model_config_table *const *)table)->source);
}

static bool sort_sources(struct planning *planning)
{
    const struct eb_model_config *config = planning->options->config;
    size_t count = config ? config->table_count : 0;
    planning->sources = calloc(count + 1, sizeof *planning->sources);
    if (!planning->sources) {
        return eb_failure_set(planning->failure, "out of memory");
    }
    for (size_t i = 0; i < count; i++) {
        planning->sources[i] = &config->tables[i];
    }
    planning->source_count = count;
    qsort(planning->sources, count, sizeof *planning->sources, compare_sources);
    for (size_t i = 1; i < count; i++) {
        const struct eb_model_config_table *a = planning->sources[i - 1];
        const struct eb_model_config_table *b = planning->sources[i];
        if (strcmp(a->source, b->source) == 0) {
            return eb_failure_set(planning->failure,
                "model.yaml: tables '%.64s' and '%.64s' have the same source '%.64s'; remove one "
                "of them",
                a->name, b->name, a->source);
        }
    }
    return true;
}

/* Returns the description of a table by its name in the files. Returns NULL if there is none. */
static const struct eb_model_config_table *find_layout_source(
    const struct planning *planning, const char *name)
{
    const struct eb_model_config_table **found =
        planning->source_count == 0 ? NULL
                                    : bsearch(name, planning->sources, planning->source_count,
                                          sizeof *planning->sources, compare_source);
    return found ? *found : NULL;
}

/* ---- from pieces to a table ---- */

/* Returns whether every piece is there exactly once. */
static bool check_parts(const struct planning *planning, const struct eb_piece_range *range)
{
    const struct eb_table_plan *plan = planning->plan;
    const struct eb_piece *pieces = range->pieces;
    uint32_t parts = pieces->count;
    for (size_t i = 0; i < range->count; i++) {
        const struct eb_piece *piece = &pieces[i];
        bool is_again = i > 0 && (piece->number == pieces[i - 1].number || piece->count == 0);
        if (is_again || piece->count != parts) {
            return eb_failure_set(planning->failure,
                "%s: %s '%.64s' is also in %s; remove one of them", path_of(plan, &pieces[i - 1]),
                piece->is_keys ? "keys of table" : "table", piece->name, path_of(plan, piece));
        }
        if (parts > 0 && piece->number != i) {
            return eb_failure_set(planning->failure,
                "%s: piece %zu of the %" PRIu32 " of table '%.64s' is missing; copy all pieces",
                path_of(plan, piece), i, parts, piece->name);
        }
    }
    return parts == 0 || range->count == parts ||
           eb_failure_set(planning->failure,
               "%s: piece %zu of the %" PRIu32 " of table '%.64s' is missing; copy all pieces",
               path_of(plan, &pieces[range->count - 1]), range->count, parts, pieces->name);
}

/* Returns the piece that decides whether its table is keyed: the first one with rows, because a
 * piece without rows has no keys either. */
static const struct eb_piece *find_telling(const struct eb_piece_range *range)
{
    size_t at = 0;
    while (at < range->count && range->pieces[at].tensor.dims[0] == 0) {
        at++;
    }
    return &range->pieces[at < range->count ? at : 0];
}

/* Returns whether a piece and the deciding one are both keyed or both not. Always returns true if
 * the piece has no rows, or if one of the two is not packed. */
static bool is_keyed_alike(const struct eb_piece *telling, const struct eb_piece *piece)
{
    return !telling->packed || !piece->packed || piece->tensor.dims[0] == 0 ||
           eb_packed_format_is_keyed(telling->packed) == eb_packed_format_is_keyed(piece->packed);
}

static bool is_layout_alike(const struct eb_piece *a, const struct eb_piece *b)
{
    const struct eb_tensor *left = &a->tensor;
    const struct eb_tensor *right = &b->tensor;
    bool is_packed_alike =
        !a->packed || !b->packed ||
        (a->packed->type == b->packed->type && a->packed->unknown_row == b->packed->unknown_row &&
            a->packed->row_stride_bytes == b->packed->row_stride_bytes &&
            a->packed->rows_total == b->packed->rows_total);
    return !a->packed == !b->packed && is_packed_alike && left->storage == right->storage &&
           left->rank == right->rank &&
           memcmp(left->dims + 1, right->dims + 1, (left->rank - 1) * sizeof left->dims[0]) == 0;
}

/* Sets *whole to the tensor of all pieces together, with their rows one after the other. */
static bool join_pieces(
    const struct planning *planning, const struct eb_piece_range *range, struct eb_tensor *whole)
{
    const struct eb_table_plan *plan = planning->plan;
    const struct eb_piece *pieces = range->pieces;
    const struct eb_piece *telling = find_telling(range);
    *whole = pieces->tensor;
    for (size_t i = 1; i < range->count; i++) {
        const struct eb_tensor *part = &pieces[i].tensor;
        if (!is_keyed_alike(telling, &pieces[i])) {
            return eb_failure_set(planning->failure,
                "%s: only one of this file and %s has keys; pack both in the same way",
                path_of(plan, &pieces[i]), path_of(plan, telling));
        }
        if (!is_layout_alike(pieces, &pieces[i])) {
            return eb_failure_set(planning->failure,
                "%s: it differs from %s in format, type or row shape; write both in the same way",
                path_of(plan, &pieces[i]), path_of(plan, pieces));
        }
        if (__builtin_add_overflow(whole->dims[0], part->dims[0], &whole->dims[0]) ||
            __builtin_add_overflow(whole->data_bytes, part->data_bytes, &whole->data_bytes)) {
            return eb_failure_set(
                planning->failure, "%s: more rows than can be counted", path_of(plan, pieces));
        }
    }
    return true;
}

/* Checks, by the headers of the packed files, that the files were packed together and hold all rows
 * of the table in order. */
static bool check_layout_packed(
    const struct planning *planning, const struct eb_planned_table *table)
{
    const struct eb_table_plan *plan = planning->plan;
    const struct eb_piece *pieces = table->rows.pieces;
    uint64_t rows = 0;
    for (size_t i = 0; i < table->rows.count && pieces[i].packed; i++) {
        const struct eb_packed_format *packed = pieces[i].packed;
        bool is_divided = packed->parts != 1 || packed->by_key;
        if (planning->part && (is_divided || table->rows.count == 1)) {
            return true; /* It has been compared with the manifest. */
        }
        if (is_divided) {
            return eb_failure_set(planning->failure,
                "%s: it holds part %" PRIu32 " of %" PRIu32
                " of its table's rows; start the server with --part and give it the version's "
                "manifest, or pack all rows",
                path_of(plan, &pieces[i]), packed->part, packed->parts);
        }
        if (packed->row_first != rows || packed->rows_total != table->tensor.dims[0]) {
            return eb_failure_set(planning->failure,
                "%s: it holds the rows from %" PRIu64 " of a table of %" PRIu64
                ", but in its place the rows from %" PRIu64 " of a table of %" PRIu64
                " are expected; use files that were packed together",
                path_of(plan, &pieces[i]), packed->row_first, packed->rows_total, rows,
                table->tensor.dims[0]);
        }
        if (packed->packing != pieces->packed->packing) {
            return eb_failure_set(planning->failure,
                "%s: it was not packed together with %s; use files that were packed together",
                path_of(plan, &pieces[i]), path_of(plan, pieces));
        }
        rows += pieces[i].tensor.dims[0];
    }
    return true;
}

/* Checks the files of keys: int64 or uint64, one key for each row. */
static bool check_layout_keys(const struct planning *planning, const struct eb_planned_table *table)
{
    const struct eb_piece *piece = table->keys.pieces;
    const char *path = path_of(planning->plan, piece);
    struct eb_tensor keys;
    if (!check_parts(planning, &table->keys) || !join_pieces(planning, &table->keys, &keys)) {
        return false;
    }
    const struct eb_piece *telling = find_telling(&table->rows);
    if (telling->packed && eb_packed_format_is_keyed(telling->packed)) {
        return eb_failure_set(planning->failure,
            "%s: the packed table '%.64s' already contains keys; remove this file or pack the "
            "table without keys",
            path, table->name);
    }
    if (keys.rank != 1 || (keys.storage != EB_STORAGE_I64 && keys.storage != EB_STORAGE_U64)) {
        return eb_failure_set(planning->failure,
            "%s: expected keys as an array of one dimension of int64 or uint64; convert them with "
            "astype('i8')",
            path);
    }
    return keys.dims[0] == table->tensor.dims[0] ||
           eb_failure_set(planning->failure,
               "%s: %" PRIu64 " keys for the %" PRIu64
               " rows of table '%.64s'; write one key for each row",
               path, keys.dims[0], table->tensor.dims[0], table->name);
}

/* Finds out whether a table is keyed. If it is, checks its keys and sets the size of their
 * index. */
static bool plan_keys(const struct planning *planning, struct eb_planned_table *table)
{
    const struct eb_piece *piece = find_telling(&table->rows);
    table->is_keyed =
        table->keys.count > 0 || (piece->packed && eb_packed_format_is_keyed(piece->packed));
    if (!table->is_keyed) {
        return true;
    }
    if (table->keys.count > 0 && !check_layout_keys(planning, table)) {
        return false;
    }
    struct eb_key_plan keys;
    if (!eb_key_build_plan(table->tensor.dims[0], &keys)) {
        return eb_failure_set(planning->failure,
            "%s: table '%.64s' has %" PRIu64 " rows; a keyed table may have at most %" PRIu64,
            path_of(planning->plan, piece), table->name, table->tensor.dims[0],
            EB_KEY_INDEX_ROWS_MAX);
    }
    table->index_bytes = keys.index_bytes;
    if (table->keys.count == 0) {
        const struct eb_packed_section *sections = piece->packed->sections;
        table->has_index = table->rows.count == 1 && sections[EB_PACKED_KEY_INDEX].bytes > 0;
        table->index_bytes =
            table->has_index ? sections[EB_PACKED_KEY_INDEX].bytes : keys.index_bytes;
        bool is_empty_part = piece->packed->by_key && table->tensor.dims[0] == 0;
        return table->has_index || sections[EB_PACKED_KEYS].bytes > 0 || is_empty_part ||
               eb_failure_set(planning->failure,
                   "%s: the file has an index of keys but no keys, and is not the whole table; "
                   "pack it again",
                   path_of(planning->plan, piece));
    }
    return true;
}

/* Sets unknown_row, which is the one in the files at first, and the default vector. Checks that the
 * table has the rows of unknown_row and default_index. The default_index of a keyed table is a key,
 * which can be checked only with the table's index. */
static bool check_defaults(const struct planning *planning, struct eb_planned_table *table)
{
    const struct eb_model_config_table *config = table->config;
    uint64_t rows = table->tensor.dims[0];
    if (config && config->unknown_row >= 0) {
        table->unknown_row = config->unknown_row;
    }
    if (config && config->unknown_is_vector) {
        table->unknown_row = EB_ROW_VECTOR;
    }
    if (table->unknown_row >= 0 && (uint64_t)table->unknown_row >= rows) {
        return eb_failure_set(planning->failure,
            "model.yaml: table '%.64s': unknown_row %" PRId64 " is not one of its %" PRIu64 " rows",
            table->name, table->unknown_row, rows);
    }
    if (config && config->missing == EB_MISSING_UNKNOWN_ROW && table->unknown_row == -1) {
        return eb_failure_set(planning->failure,
            "model.yaml: table '%.64s': missing: unknown_row needs an unknown_row", table->name);
    }
    if (config && config->has_default && !table->is_keyed && config->default_index != -1 &&
        (config->default_index < 0 || (uint64_t)config->default_index >= rows)) {
        return eb_failure_set(planning->failure,
            "model.yaml: table '%.64s': default_index %" PRId64 " is neither one of its %" PRIu64
            " rows nor -1 for zeros",
            table->name, config->default_index, rows);
    }
    return !config || config->vector_count == 0 ||
           eb_default_vector_read(table, &table->vector, planning->failure);
}

/* Does so for a table of a version in parts. A divided table takes only its default vector from
 * model.yaml. */
static bool check_part_defaults(const struct planning *planning, struct eb_planned_table *table)
{
    const struct eb_model_config_table *config = table->config;
    if (!eb_part_plan_describe(planning->part, table, planning->failure)) {
        return false;
    }
    if (table->part == 0) {
        return check_defaults(planning, table);
    }
    return !config || config->vector_count == 0 ||
           eb_default_vector_read(table, &table->vector, planning->failure);
}

static bool check_width(const struct planning *planning, const struct eb_planned_table *table)
{
    uint64_t elements = eb_tensor_row_elements(&table->tensor);
    uint64_t bytes = eb_storage_row_bytes(table->storage, elements);
    return bytes <= planning->options->row_bytes_max ||
           eb_failure_set(planning->failure,
               "%s: rows of table '%.64s' have %" PRIu64
               " bytes, more than row_bytes_max, which is %" PRIu64,
               place_of(planning, table), table->name, bytes, planning->options->row_bytes_max);
}

/* Returns the bytes of the keys from which the table's index is built. */
static uint64_t count_layout_key_bytes(const struct eb_planned_table *table)
{
    return table->is_keyed && !table->has_index ? table->tensor.dims[0] * sizeof(int64_t) : 0;
}

void eb_table_plan_measure(struct eb_table_plan *plan)
{
    plan->work_bytes = 0;
    plan->need = (struct eb_table_need){0};
    plan->most = (struct eb_table_need){0};
    plan->key_bytes = 0;
    for (size_t i = 0; i < plan->table_count; i++) {
        const struct eb_planned_table *table = &plan->tables[i];
        uint64_t bytes = eb_table_memory_join(table->rows_bytes, table->index_bytes);
        if (!table->resident && !table->is_adopted && !table->has_pages) {
            eb_table_memory_need_add(&plan->most, bytes);
        }
        if (table->resident || table->is_adopted || table->is_open) {
            continue;
        }
        uint64_t key_bytes = count_layout_key_bytes(table);
        plan->key_bytes = key_bytes > plan->key_bytes ? key_bytes : plan->key_bytes;
        plan->work_bytes +=
            table->tensor.data_bytes + table->scale_bytes + key_bytes + table->index_bytes;
        if (!table->has_pages) {
            eb_table_memory_need_add(&plan->need, bytes);
        }
    }
}

/* ---- scales and biases in separate tensors ---- */

static int compare_layout_piece(const void *name, const void *piece)
{
    return strcmp(name, ((const struct eb_piece *)piece)->name);
}

/* Returns the pieces from `first` on that have the same name and the same is_keys. */
static struct eb_piece_range find_layout_range(const struct eb_version_scan *scan, size_t first)
{
    const struct eb_piece *pieces = scan->pieces;
    size_t end = first + 1;
    while (end < scan->piece_count && pieces[end].is_keys == pieces[first].is_keys &&
           strcmp(pieces[end].name, pieces[first].name) == 0) {
        end++;
    }
    return (struct eb_piece_range){&pieces[first], end - first};
}

/* Returns the pieces of the tensor called `name`. There are none if its count is 0. */
static struct eb_piece_range find_tensor(const struct eb_version_scan *scan, const char *name)
{
    const struct eb_piece *found =
        bsearch(name, scan->pieces, scan->piece_count, sizeof *scan->pieces, compare_layout_piece);
    if (!found) {
        return (struct eb_piece_range){0};
    }
    size_t first = (size_t)(found - scan->pieces);
    while (first > 0 && strcmp(scan->pieces[first - 1].name, name) == 0) {
        first--;
    }
    struct eb_piece_range range = find_layout_range(scan, first);
    return range.pieces->is_keys ? (struct eb_piece_range){0} : range;
}

/* Adds the table and the key of model.yaml, "scales" or "biases", to a reason. Always returns
 * false. */
static bool refuse_scales(const struct planning *planning, const struct eb_planned_table *table,
    const char *key, const char *path, const char *why)
{
    eb_failure_set(planning->failure, "model.yaml: table '%.64s': %s: %s", table->name, key, why);
    return eb_failure_locate(planning->failure, path);
}

/* Finds the tensor `name`, which has the table's scales or biases, and checks it. */
static bool plan_numbers(const struct planning *planning, struct eb_planned_table *table,
    const char *key, const char *name, struct eb_piece_range *range)
{
    const struct eb_table_plan *plan = planning->plan;
    const struct eb_piece *unfit = eb_version_scan_find_unfit(&plan->scan, name);
    struct eb_tensor whole;
    struct eb_failure why;
    *range = find_tensor(&plan->scan, name);
    if (range->count == 0) {
        eb_failure_set(&why, "tensor '%.128s' %s%s", name,
            unfit ? "has no number for each row: " : "is not in this version",
            unfit ? unfit->unfit : "");
        const struct eb_piece *piece = unfit ? unfit : table->rows.pieces;
        return refuse_scales(planning, table, key, path_of(plan, piece), why.text);
    }
    if (find_layout_source(planning, name)) {
        eb_failure_set(&why, "tensor '%.128s' is also the source of table '%.64s'", name,
            find_layout_source(planning, name)->name);
        return refuse_scales(planning, table, key, path_of(plan, range->pieces), why.text);
    }
    if (!check_parts(planning, range) || !join_pieces(planning, range, &whole)) {
        return false;
    }
    if (!range->pieces->packed && eb_scale_tensors_check(&whole, table->tensor.dims[0], &why)) {
        table->scale_bytes += whole.data_bytes;
        return true;
    }
    if (range->pieces->packed) {
        eb_failure_set(&why, "expected an npy or safetensors file, but this is a packed table");
    }
    return refuse_scales(planning, table, key, path_of(plan, range->pieces), why.text);
}

/* Finds the tensors with the scales and biases of a table, if it has_scales. */
static bool plan_scales(const struct planning *planning, struct eb_planned_table *table)
{
    const struct eb_model_config_table *config = table->config;
    if (!table->has_scales) {
        return true;
    }
    if (!plan_numbers(planning, table, "scales", config->scales, &table->scales) ||
        (config->biases &&
            !plan_numbers(planning, table, "biases", config->biases, &table->biases))) {
        return false;
    }
    table->fused.layout = eb_table_storage_scales_layout(table->scales.pieces->tensor.storage);
    return true;
}

/* Refuses a table of fp8, or of bytes that model.yaml does not describe, if the version seems to
 * have scales for it. */
static bool check_unscaled(const struct planning *planning, const struct eb_planned_table *table)
{
    const struct eb_piece *piece = table->rows.pieces;
    enum eb_storage storage = piece->tensor.storage;
    bool is_fp8 = storage == EB_STORAGE_F8_E4M3 || storage == EB_STORAGE_F8_E5M2;
    bool is_byte = storage == EB_STORAGE_I8 || storage == EB_STORAGE_U8;
    if (piece->packed || (!is_fp8 && (!is_byte || table->config))) {
        return true;
    }
    const struct eb_piece *scales = eb_scale_tensors_find(&planning->plan->scan, piece->name);
    const char *hint =
        is_fp8 ? "fp8 with scales is not supported; dequantise the table to F32 or BF16, or leave "
                 "that tensor out with exclude in model.yaml if the values need no scales"
               : "describe the table in model.yaml, with scales and format codes_int8, codes_int4 "
                 "or codes_int2, or without both if its values are integers";
    return !scales ||
           eb_failure_set(planning->failure,
               "%s: table '%.64s' is %s, and tensor '%.64s' seems to hold its scales: %s",
               path_of(planning->plan, piece), table->name, eb_storage_name(storage), scales->name,
               hint);
}

/* ---- a table ---- */

/* Sets the table's config, and its name. `name` is the one in the files. */
static bool name_table(
    const struct planning *planning, const char *name, struct eb_planned_table *table)
{
    const char *why = eb_name_error(name, planning->options->name_bytes_max);
    if (why) {
        return eb_failure_set(planning->failure, "%s: the table name '%.64s' %s; rename the table",
            place_of(planning, table), name, why);
    }
    table->config = find_layout_source(planning, name);
    table->name = strdup(table->config ? table->config->name : name);
    return table->name || eb_failure_set(planning->failure, "out of memory");
}

/* Fills in a table whose pieces are set. */
static bool describe_layout_table(struct planning *planning, struct eb_planned_table *table)
{
    const struct eb_table_plan *plan = planning->plan;
    const struct eb_piece *piece = table->rows.pieces;
    if (!name_table(planning, piece->name, table) || !check_parts(planning, &table->rows) ||
        !join_pieces(planning, &table->rows, &table->tensor) ||
        !check_layout_packed(planning, table)) {
        return false;
    }
    table->unknown_row = piece->packed ? piece->packed->unknown_row : -1;
    if (eb_tensor_row_elements(&table->tensor) > UINT32_MAX) {
        return eb_failure_set(planning->failure,
            "%s: rows of table '%.64s' have more elements than can be counted",
            path_of(plan, piece), table->name);
    }
    if (!eb_table_storage_choose(table, piece, planning->failure)) {
        return eb_failure_locate(planning->failure, path_of(plan, piece));
    }
    if (!plan_scales(planning, table) || !check_unscaled(planning, table) ||
        !check_width(planning, table) || !plan_keys(planning, table)) {
        return false;
    }
    if (planning->part ? !check_part_defaults(planning, table) : !check_defaults(planning, table)) {
        return eb_failure_locate(planning->failure, path_of(plan, piece));
    }
    if (__builtin_mul_overflow(
            table->tensor.dims[0], table->row_stride_bytes, &table->rows_bytes)) {
        table->rows_bytes = UINT64_MAX;
    }
    return true;
}

static bool plan_local_tables(struct planning *planning)
{
    struct eb_table_plan *plan = planning->plan;
    const struct eb_version_scan *scan = &plan->scan;
    for (size_t at = 0; at < scan->piece_count;) {
        if (!scan->pieces[at].is_keys &&
            eb_scale_names_has(&planning->scales, scan->pieces[at].name)) {
            at += find_layout_range(scan, at).count;
            continue;
        }
        struct eb_planned_table *table = &plan->tables[plan->table_count++];
        table->rows = find_layout_range(scan, at);
        at += table->rows.count;
        if (table->rows.pieces->is_keys) {
            return eb_failure_set(planning->failure,
                "%s: keys without rows; put table '%.64s' beside them or remove the file",
                path_of(plan, table->rows.pieces), table->rows.pieces->name);
        }
        if (at < scan->piece_count && scan->pieces[at].is_keys &&
            strcmp(scan->pieces[at].name, table->rows.pieces->name) == 0) {
            table->keys = find_layout_range(scan, at);
            at += table->keys.count;
        }
        if (!describe_layout_table(planning, table)) {
            return false;
        }
    }
    return true;
}

/* Fills in a remote table from its entry in the manifest. */
static bool plan_remote_table(const struct planning *planning, const struct eb_parts_table *listed,
    struct eb_planned_table *table)
{
    table->is_remote = true;
    return name_table(planning, listed->name, table) &&
           ((eb_part_plan_describe_remote(planning->part, listed, table, planning->failure) &&
                check_defaults(planning, table)) ||
               eb_failure_locate(planning->failure, planning->part->path)) &&
           check_width(planning, table);
}

/* Plans the tables of the manifest whose rows are on other servers. */
static bool plan_remote_tables(
    const struct planning *planning, const struct eb_parts_manifest *manifest)
{
    struct eb_table_plan *plan = planning->plan;
    const struct eb_model_config *config = planning->options->config;
    for (size_t i = 0; i < manifest->count; i++) {
        const struct eb_parts_table *listed = &manifest->tables[i];
        if (listed->placement == EB_PLACEMENT_EVERYWHERE) {
            continue;
        }
        if (config && !eb_model_config_selects(config, listed->name)) {
            plan->scan.left_out_count++;
            continue;
        }
        if (!plan_remote_table(
                planning, listed, &plan->tables[plan->table_count + plan->remote_count++])) {
            return false;
        }
    }
    return true;
}

static bool plan_tables(struct planning *planning)
{
    struct eb_table_plan *plan = planning->plan;
    const struct eb_parts_manifest *manifest =
        plan->is_router ? &planning->part->manifest : &(struct eb_parts_manifest){0};
    plan->tables = calloc(plan->scan.piece_count + manifest->count + 1, sizeof *plan->tables);
    if (!plan->tables) {
        return eb_failure_set(planning->failure, "out of memory");
    }
    return plan_local_tables(planning) && plan_remote_tables(planning, manifest);
}

/* ---- whether model.yaml matches the tables ---- */

static int compare_fit_name(const void *name, const void *table)
{
    return strcmp(name, ((const struct eb_planned_table *)table)->name);
}

/* Finds a table, remote or not, while all are sorted by name. */
static const struct eb_planned_table *find_fit_table(
    const struct eb_table_plan *plan, const char *name)
{
    return bsearch(name, plan->tables, plan->table_count + plan->remote_count, sizeof *plan->tables,
        compare_fit_name);
}

/* Sets *failure to the reason why a tensor that model.yaml names cannot be a table. Always returns
 * false. */
static bool refuse_fit_unfit(
    const struct eb_table_plan *plan, const struct eb_piece *unfit, struct eb_failure *failure)
{
    return eb_failure_set(failure, "%s: tensor '%.128s', which model.yaml names: %s",
        plan->scan.files[unfit->file].path, unfit->name, unfit->unfit);
}

/* Returns whether a table that model.yaml describes lies in other parts. */
static bool is_table_elsewhere(
    const struct eb_part_plan *part, const struct eb_model_config_table *table)
{
    return part && eb_parts_manifest_find(&part->manifest, table->source);
}

static bool check_table(const struct eb_model_config_table *table, const struct eb_table_plan *plan,
    struct eb_failure *failure)
{
    const struct eb_planned_table *found = find_fit_table(plan, table->name);
    const struct eb_piece *unfit = eb_version_scan_find_unfit(&plan->scan, table->source);
    if (found && found->config == table) {
        return true;
    }
    return unfit ? refuse_fit_unfit(plan, unfit, failure)
                 : eb_failure_set(failure,
                       "model.yaml: table '%.64s': its source '%.64s' is not in this version",
                       table->name, table->source);
}

static bool check_fit_default(const struct eb_model_config_feature *feature,
    const struct eb_planned_table *table, struct eb_failure *failure)
{
    uint64_t rows = table->tensor.dims[0];
    bool is_row = feature->default_index >= 0 && (uint64_t)feature->default_index < rows;
    return table->is_keyed || !feature->has_default || feature->default_index == -1 || is_row ||
           eb_failure_set(failure,
               "model.yaml: feature '%.64s': default_index %" PRId64
               " is neither one of the %" PRIu64 " rows of table '%.64s' nor -1 for zeros",
               feature->name, feature->default_index, rows, table->name);
}

/* Checks that a feature's settings are possible for its table. */
static bool check_use(const struct eb_model_config_feature *feature,
    const struct eb_planned_table *table, struct eb_failure *failure)
{
    if (feature->id_map.kind != EB_ID_MAP_NONE && (table->is_keyed || table->tensor.dims[0] == 0)) {
        return eb_failure_set(failure,
            "model.yaml: feature '%.64s': id_map is not possible for table '%.64s', which %s; "
            "remove it",
            feature->name, table->name, table->is_keyed ? "is keyed" : "has no rows");
    }
    if (feature->missing == EB_MISSING_UNKNOWN_ROW && table->unknown_row == -1) {
        return eb_failure_set(failure,
            "model.yaml: feature '%.64s': missing: unknown_row needs an unknown_row of table "
            "'%.64s'",
            feature->name, table->name);
    }
    if (!eb_type_is_float(table->type) && (feature->reduction == EB_REDUCTION_WEIGHTED_MEAN ||
                                              feature->reduction == EB_REDUCTION_SQRTN)) {
        return eb_failure_set(failure,
            "model.yaml: feature '%.64s': reduction %s requires a floating-point table, but table "
            "'%.64s' holds %s",
            feature->name, eb_reduction_name(feature->reduction), table->name,
            eb_type_name(table->type));
    }
    return check_fit_default(feature, table, failure);
}

static bool check_feature(const struct eb_model_config_feature *feature,
    const struct eb_table_plan *plan, struct eb_failure *failure)
{
    const struct eb_planned_table *table = find_fit_table(plan, feature->table);
    if (find_fit_table(plan, feature->name)) {
        return eb_failure_set(failure,
            "model.yaml: feature '%.64s' has the name of a table; rename the feature",
            feature->name);
    }
    const struct eb_piece *unfit = eb_version_scan_find_unfit(&plan->scan, feature->table);
    if (!table && unfit) {
        return refuse_fit_unfit(plan, unfit, failure);
    }
    if (!table) {
        return eb_failure_set(failure,
            "model.yaml: feature '%.64s': table '%.64s' is not in this version", feature->name,
            feature->table);
    }
    return check_use(feature, table, failure);
}

/* Checks that two features of a group are both pooled or both not pooled. Rows that are not pooled
 * lie one after the other, so they must have the same size. */
static bool check_fit_reduction(const struct eb_model_config_group *group,
    const struct eb_model_config_feature *first, const struct eb_model_config_feature *feature,
    const struct eb_table_plan *plan, struct eb_failure *failure)
{
    bool is_none = first->reduction == EB_REDUCTION_NONE;
    uint64_t elements = eb_tensor_row_elements(&find_fit_table(plan, first->table)->tensor);
    uint64_t other = eb_tensor_row_elements(&find_fit_table(plan, feature->table)->tensor);
    if (is_none != (feature->reduction == EB_REDUCTION_NONE)) {
        return eb_failure_set(failure,
            "model.yaml: group '%.64s': only one of features '%.64s' and '%.64s' has the "
            "reduction NONE; in a group either all features have it or none",
            group->name, first->name, feature->name);
    }
    return !is_none || elements == other ||
           eb_failure_set(failure,
               "model.yaml: group '%.64s': feature '%.64s' has rows of %" PRIu64
               " values, but '%.64s' has rows of %" PRIu64
               "; with the reduction NONE all features of a group must have rows of one size",
               group->name, feature->name, other, first->name, elements);
}

/* Checks that a group's features are all pooled or all not pooled, and have the same floating-point
 * type, because their values lie side by side, or one after the other. */
static bool check_fit_group(const struct eb_model_config *config,
    const struct eb_model_config_group *group, const struct eb_table_plan *plan,
    struct eb_failure *failure)
{
    const struct eb_model_config_feature *first = &config->features[group->features[0]];
    enum eb_type type = find_fit_table(plan, first->table)->type;
    for (size_t i = 0; i < group->feature_count; i++) {
        const struct eb_model_config_feature *feature = &config->features[group->features[i]];
        enum eb_type other = find_fit_table(plan, feature->table)->type;
        if (!check_fit_reduction(group, first, feature, plan, failure)) {
            return false;
        }
        if (!eb_type_is_float(other) || other != type) {
            return eb_failure_set(failure,
                "model.yaml: group '%.64s': feature '%.64s' is of type %s, but '%.64s' is of type "
                "%s; all features of a group must have the same floating-point type",
                group->name, feature->name, eb_type_name(other), first->name, eb_type_name(type));
        }
    }
    return true;
}

/* Checks the parts of model.yaml that need the tables. The plan's tables must be sorted by name,
 * and no two may have the same name. Default keys of empty bags are checked after loading
 * (set_load.c). Returns false if something is wrong: *failure says what, and names the table,
 * feature or group. */
static bool check_fit(const struct eb_model_config *config, const struct eb_table_plan *plan,
    struct eb_failure *failure)
{
    bool is_good = true;
    for (size_t i = 0; i < config->table_count && is_good; i++) {
        is_good = check_table(&config->tables[i], plan, failure);
    }
    for (size_t i = 0; i < config->feature_count && is_good; i++) {
        is_good = check_feature(&config->features[i], plan, failure);
    }
    for (size_t i = 0; i < config->group_count && is_good; i++) {
        is_good = check_fit_group(config, &config->groups[i], plan, failure);
    }
    return is_good;
}

/* Does so for one part of a version, where other parts may have the tables. Features and groups are
 * the routers'. */
static bool check_part_fit(const struct eb_model_config *config, const struct planning *planning)
{
    bool is_good = true;
    for (size_t i = 0; i < config->table_count && is_good; i++) {
        is_good = check_table(&config->tables[i], planning->plan, planning->failure) ||
                  is_table_elsewhere(planning->part, &config->tables[i]);
    }
    return is_good;
}

/* ---- the whole ---- */

static int compare_layout_names(const void *left, const void *right)
{
    const struct eb_planned_table *a = left;
    const struct eb_planned_table *b = right;
    return strcmp(a->name, b->name);
}

static bool check_unique(const struct planning *planning)
{
    const struct eb_table_plan *plan = planning->plan;
    for (size_t i = 1; i < plan->table_count + plan->remote_count; i++) {
        const struct eb_planned_table *a = &plan->tables[i - 1];
        const struct eb_planned_table *b = &plan->tables[i];
        if (strcmp(a->name, b->name) == 0) {
            return eb_failure_set(planning->failure,
                "%s: table '%.64s' is also in %s; remove one of them", place_of(planning, a),
                a->name, place_of(planning, b));
        }
    }
    return true;
}

/* Compares the locations of tables in files. Remote tables come last. */
static int compare_locations(const void *left, const void *right)
{
    const struct eb_planned_table *one = left;
    const struct eb_planned_table *other = right;
    if (one->is_remote || other->is_remote) {
        return one->is_remote && other->is_remote ? strcmp(one->name, other->name)
                                                  : one->is_remote - other->is_remote;
    }
    const struct eb_piece *a = one->rows.pieces;
    const struct eb_piece *b = other->rows.pieces;
    if (a->file != b->file) {
        return a->file < b->file ? -1 : 1;
    }
    return a->tensor.data_offset < b->tensor.data_offset ? -1 : a > b;
}

/* Sets *failure to the reason why a tensor that the patterns choose cannot be a table. Used if that
 * is so for all such tensors. Always returns false. */
static bool refuse_layout_unfit(const struct planning *planning)
{
    const struct eb_version_scan *scan = &planning->plan->scan;
    const struct eb_piece *unfit = &scan->pieces[scan->piece_count];
    char others[OTHERS_BYTES] = "";
    if (scan->left_out_count > 0) {
        snprintf(others, sizeof others, "; only and exclude of model.yaml leave out %zu tables",
            scan->left_out_count);
    }
    return eb_failure_set(planning->failure, "%s: there is no table in it: tensor '%.128s': %s%s",
        path_of(planning->plan, unfit), unfit->name, unfit->unfit, others);
}

/* Sets *failure to the reason why there is no table at all. Always returns false. */
static bool refuse_none(const struct planning *planning, const char *directory)
{
    const struct eb_version_scan *scan = &planning->plan->scan;
    if (scan->unfit_count > 0) {
        return refuse_layout_unfit(planning);
    }
    if (scan->left_out_count > 0) {
        return eb_failure_set(planning->failure,
            "%s: only and exclude of model.yaml leave out all of its %zu tables; correct the "
            "patterns",
            directory, scan->left_out_count);
    }
    if (scan->notes.files.count > 0) {
        return eb_failure_set(planning->failure,
            "%s: there is no table in it; convert files of other formats first, such as %s",
            directory, scan->notes.files.first.text);
    }
    return eb_failure_set(planning->failure,
        "%s: there is no table in it; put NAME.npy or NAME.safetensors there", directory);
}

static bool plan_version(struct planning *planning, const char *directory)
{
    struct eb_table_plan *plan = planning->plan;
    if (!sort_sources(planning) ||
        !eb_scale_names_init(&planning->scales, planning->options->config, planning->failure)) {
        return eb_failure_locate(planning->failure, directory);
    }
    if (!plan_tables(planning)) {
        return false;
    }
    size_t count = plan->table_count + plan->remote_count;
    bool is_whole = !planning->part || plan->is_router; /* no table is left out */
    if (count == 0 && is_whole) {
        return refuse_none(planning, directory);
    }
    qsort(plan->tables, count, sizeof *plan->tables, compare_layout_names);
    if (!check_unique(planning)) {
        return false;
    }
    const struct eb_model_config *config = planning->options->config;
    if (config && !(is_whole ? check_fit(config, plan, planning->failure)
                             : check_part_fit(config, planning))) {
        return eb_failure_locate(planning->failure, directory);
    }
    qsort(plan->tables, count, sizeof *plan->tables, compare_locations);
    eb_table_plan_measure(plan);
    return true;
}

/* Sets what the plan's set of tables says about its version. Returns false if out of memory. */
static bool describe_version(
    struct eb_table_plan *plan, const struct eb_part_plan *part, struct eb_failure *failure)
{
    *plan = (struct eb_table_plan){.lineage = strdup(part ? part->manifest.lineage : "")};
    if (part) {
        plan->manifest = part->manifest.digest;
        plan->part = part->choice;
        plan->is_router = part->is_router;
        plan->manifest_yaml = strdup(part->yaml);
    }
    return (plan->lineage && (!part || plan->manifest_yaml)) ||
           eb_failure_set(failure, "out of memory");
}

/* Plans the tables in `directory`: all of a version or, if `part` is not NULL, those of it that are
 * loaded, and a router's remote ones. */
static bool read_plan(const char *directory, const struct eb_table_options *options,
    const struct eb_part_plan *part, struct eb_table_plan *plan, struct eb_failure *failure)
{
    struct planning planning = {.options = options, .plan = plan, .part = part, .failure = failure};
    bool is_good = describe_version(plan, part, failure) &&
                   eb_version_scan_read(directory, options->config, part, &plan->scan, failure) &&
                   (!part || eb_part_plan_check(part, options->config, &plan->scan, failure)) &&
                   plan_version(&planning, directory);
    free(planning.sources);
    eb_scale_names_deinit(&planning.scales);
    if (!is_good) {
        eb_table_plan_deinit(plan);
    }
    return is_good;
}

bool eb_table_plan_read(const char *directory, const struct eb_table_options *options,
    struct eb_table_plan *plan, struct eb_failure *failure)
{
    struct eb_part_plan part;
    assert(options->part.parts == 0 || !options->is_router);
    if (options->part.parts == 0 && !options->is_router) {
        return read_plan(directory, options, NULL, plan, failure);
    }
    *plan = (struct eb_table_plan){0};
    if (!eb_part_plan_open(&part, directory, options, failure)) {
        return false;
    }
    bool is_good = read_plan(part.folder, options, &part, plan, failure);
    eb_part_plan_close(&part);
    return is_good;
}

bool eb_table_plan_recall(const struct eb_part_plan *part, const struct eb_table_options *options,
    struct eb_table_plan *plan, struct eb_failure *failure)
{
    struct planning planning = {.options = options, .plan = plan, .part = part, .failure = failure};
    bool is_good =
        describe_version(plan, part, failure) && sort_sources(&planning) && plan_tables(&planning);
    free(planning.sources);
    if (!is_good) {
        eb_table_plan_deinit(plan);
    }
    return is_good;
}

void eb_table_plan_deinit(struct eb_table_plan *plan)
{
    for (size_t i = 0; i < plan->table_count + plan->remote_count; i++) {
        free(plan->tables[i].name);
        free(plan->tables[i].vector);
    }
    free(plan->tables);
    free(plan->lineage);
    free(plan->manifest_yaml);
    eb_version_scan_deinit(&plan->scan);
    *plan = (struct eb_table_plan){0};
}
