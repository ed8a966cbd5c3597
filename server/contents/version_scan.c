#include "server/contents/version_scan.h"

#include "server/base/directory.h"
#include "server/base/machine.h"
#include "server/contents/file_name.h"
#include "server/contents/model_config.h"
#include "server/contents/version_manifest.h"
#include "server/formats/npy.h"
#include "server/formats/packed_reader.h"
#include "server/formats/safetensors.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECES_FIRST 16 /* room for pieces at first; it is doubled when it is full */

/* Chooses tables with the patterns `only` and `exclude` of model.yaml, and notes which patterns
 * have matched a table. */
struct table_choice {
    const struct eb_model_config *config; /* NULL if every table is chosen */
    bool *is_matched; /* one for each pattern: those of `only`, then those of `exclude` */
};

/* The state of a scan. */
struct scanning {
    struct eb_version_scan *scan;
    struct table_choice choice;
    struct eb_version_manifest manifest;
    bool is_in_parts;
    size_t piece_room;
    struct eb_failure *failure;
};

/* A file whose header is being read. */
struct scanned {
    const char *name;
    struct eb_file_name parsed;
    struct eb_table_file *file;
};

/* ---- notes, and the choice of tables ---- */

/* Counts an item in the note. The first EB_LOAD_NOTES_NAMED_MAX items are also named: as
 * "'NAME': WHY", or as "'NAME'" if `why` is NULL. */
static void add_note(struct eb_load_note *note, const char *name, const char *why)
{
    struct eb_failure before = note->named;
    if (note->count == 0) {
        eb_failure_set(&note->first, "'%.64s'%s%s", name, why ? ": " : "", why ? why : "");
    }
    if (note->count++ < EB_LOAD_NOTES_NAMED_MAX) {
        eb_failure_set(&note->named, "%s%s'%.64s'%s%s", before.text,
            before.text[0] == '\0' ? "" : "; ", name, why ? ": " : "", why ? why : "");
    }
}

/* Begins a choice with the patterns of `config`, which is borrowed and may be NULL. */
static bool init_choice(
    struct table_choice *choice, const struct eb_model_config *config, struct eb_failure *failure)
{
    size_t count = config ? config->only.count + config->exclude.count : 0;
    *choice = (struct table_choice){
        .config = config, .is_matched = calloc(count + 1, sizeof *choice->is_matched)};
    return choice->is_matched || eb_failure_set(failure, "out of memory");
}

/* Marks the patterns that match `source`. Returns whether any of them does. */
static bool mark_matches(const struct eb_model_config *config,
    const struct eb_model_config_patterns *patterns, const char *source, bool *is_matched)
{
    bool is_any = false;
    for (size_t i = 0; i < patterns->count; i++) {
        bool is_match = eb_model_config_matches(config, patterns->texts[i], source);
        is_matched[i] = is_matched[i] || is_match;
        is_any = is_any || is_match;
    }
    return is_any;
}

/* Returns whether the table with the name `source` in its file is chosen. Marks the patterns that
 * match it. */
static bool take_choice(struct table_choice *choice, const char *source)
{
    const struct eb_model_config *config = choice->config;
    if (!config) {
        return true;
    }
    bool *is_matched = choice->is_matched;
    bool is_in = mark_matches(config, &config->only, source, is_matched);
    bool is_out = mark_matches(config, &config->exclude, source, is_matched + config->only.count);
    return (is_in || config->only.count == 0) && !is_out;
}

static void note_unmatched(const struct eb_model_config_patterns *patterns, const bool *is_matched,
    struct eb_load_note *note)
{
    for (size_t i = 0; i < patterns->count; i++) {
        if (!is_matched[i]) {
            add_note(note, patterns->texts[i], NULL);
        }
    }
}

/* Adds the patterns that have matched no table to `note`. */
static void note_unmatched_patterns(const struct table_choice *choice, struct eb_load_note *note)
{
    const struct eb_model_config *config = choice->config;
    if (config) {
        note_unmatched(&config->only, choice->is_matched, note);
        note_unmatched(&config->exclude, choice->is_matched + config->only.count, note);
    }
}

/* Accepts a zeroed choice. */
static void deinit_choice(struct table_choice *choice)
{
    free(choice->is_matched);
    *choice = (struct table_choice){0};
}

/* ---- pieces ---- */

static bool reserve_scan_piece(struct scanning *scanning)
{
    struct eb_version_scan *scan = scanning->scan;
    if (scan->piece_count < scanning->piece_room) {
        return true;
    }
    size_t room = scanning->piece_room ? scanning->piece_room * 2 : PIECES_FIRST;
    struct eb_piece *pieces = realloc(scan->pieces, room * sizeof *pieces);
    if (!pieces) {
        return eb_failure_set(scanning->failure, "out of memory");
    }
    scan->pieces = pieces;
    scanning->piece_room = room;
    return true;
}

/* Adds a piece of the file that was added last; copies the `name_bytes` bytes of the piece's name.
 * Returns NULL with *failure set if out of memory. */
static struct eb_piece *add_scan_piece(
    struct scanning *scanning, const char *name, size_t name_bytes, const struct eb_tensor *tensor)
{
    if (!reserve_scan_piece(scanning)) {
        return NULL;
    }
    struct eb_version_scan *scan = scanning->scan;
    struct eb_piece *piece = &scan->pieces[scan->piece_count];
    *piece = (struct eb_piece){
        .name = strndup(name, name_bytes),
        .file = scan->file_count - 1,
        .tensor = *tensor,
    };
    if (!piece->name) {
        eb_failure_set(scanning->failure, "out of memory");
        return NULL;
    }
    scan->piece_count++;
    return piece;
}

/* Adds the piece of a file that has only one. */
static struct eb_piece *add_only_piece(
    struct scanning *scanning, const struct scanned *scanned, const struct eb_tensor *tensor)
{
    const struct eb_file_name *parsed = &scanned->parsed;
    struct eb_piece *piece = add_scan_piece(scanning, scanned->name, parsed->base_bytes, tensor);
    if (piece) {
        piece->is_keys = parsed->kind == EB_FILE_KEYS;
        piece->number = parsed->piece;
        piece->count = parsed->is_split ? parsed->pieces : 0;
    }
    return piece;
}

/* Reads the first `bytes` bytes of a file; the caller frees them. Returns NULL with *failure set if
 * that fails. */
static uint8_t *read_scan_head(
    struct eb_table_file *file, uint64_t bytes, struct eb_failure *failure)
{
    uint8_t *head = malloc(bytes > 0 ? bytes : 1);
    if (!head) {
        eb_failure_set(failure, "out of memory");
        return NULL;
    }
    if (!eb_table_file_read(file, 0, head, bytes, failure)) {
        free(head);
        return NULL;
    }
    return head;
}

static bool scan_npy(struct scanning *scanning, const struct scanned *scanned)
{
    uint64_t file_bytes = scanned->file->bytes;
    uint64_t head_bytes =
        file_bytes < EB_NPY_HEADER_BYTES_MAX ? file_bytes : EB_NPY_HEADER_BYTES_MAX;
    uint8_t *head = read_scan_head(scanned->file, head_bytes, scanning->failure);
    if (!head) {
        return false;
    }
    struct eb_tensor tensor;
    bool is_good = eb_npy_parse(head, head_bytes, file_bytes, &tensor, scanning->failure);
    free(head);
    return is_good && add_only_piece(scanning, scanned, &tensor);
}

static bool scan_packed(struct scanning *scanning, const struct scanned *scanned)
{
    struct eb_packed_reader reader;
    struct eb_packed_format *format = malloc(sizeof *format);
    if (!format) {
        return eb_failure_set(scanning->failure, "out of memory");
    }
    if (!eb_packed_reader_open(&reader, scanned->file, scanning->failure)) {
        free(format);
        return false;
    }
    *format = reader.format;
    eb_packed_reader_close(&reader);
    struct eb_piece *piece = add_only_piece(scanning, scanned, &format->tensor);
    if (!piece) {
        free(format);
        return false;
    }
    piece->packed = format;
    return true;
}

/* Returns whether there is enough memory for `json_bytes` bytes of JSON and what is made of it. */
static bool check_scan_memory(uint64_t json_bytes, struct eb_failure *failure)
{
    uint64_t needed = json_bytes * EB_VERSION_SCAN_JSON_MEMORY;
    uint64_t available = eb_machine_available_bytes();
    if (needed <= available) {
        return true;
    }
    eb_failure_set(failure,
        "the description of its tensors has %" PRIu64 " bytes and may need %" PRIu64
        " bytes of memory, but %" PRIu64
        " are available; free some or write fewer tensors to each file",
        json_bytes, needed, available);
    return eb_failure_blame(failure, ENOMEM);
}

/* Adds a tensor, even one that cannot be a table, because lists of tensors name those too. */
static bool add_entry(struct scanning *scanning, const struct eb_safetensors *list, size_t n)
{
    const char *name = list->entries[n].name;
    struct eb_tensor tensor;
    struct eb_failure unfit;
    bool is_fit = eb_safetensors_tensor(list, n, &tensor, &unfit);
    struct eb_piece *piece = add_scan_piece(scanning, name, strlen(name), &tensor);
    if (!piece) {
        return false;
    }
    piece->is_left_out = !take_choice(&scanning->choice, name);
    piece->unfit = is_fit ? NULL : strdup(unfit.text);
    return is_fit || piece->unfit || eb_failure_set(scanning->failure, "out of memory");
}

static void note_fields(
    struct scanning *scanning, const char *file, const struct eb_safetensors *list)
{
    char why[128];
    if (list->passed_over_count > 0) {
        snprintf(why, sizeof why, "%zu, the first of them '%s'", list->passed_over_count,
            list->passed_over);
        add_note(&scanning->scan->notes.fields, file, why);
    }
}

static bool scan_safetensors(struct scanning *scanning, const struct scanned *scanned)
{
    uint64_t file_bytes = scanned->file->bytes;
    uint8_t first[8] = {0};
    uint64_t head_bytes = file_bytes < sizeof first ? file_bytes : sizeof first;
    if (!eb_table_file_read(scanned->file, 0, first, head_bytes, scanning->failure) ||
        !eb_safetensors_head_bytes(first, file_bytes, &head_bytes, scanning->failure) ||
        !check_scan_memory(head_bytes - sizeof first, scanning->failure)) {
        return false;
    }
    uint8_t *head = read_scan_head(scanned->file, head_bytes, scanning->failure);
    if (!head) {
        return false;
    }
    struct eb_safetensors list;
    bool is_good = eb_safetensors_parse(head, head_bytes, file_bytes, &list, scanning->failure);
    for (size_t i = 0; is_good && i < list.count; i++) {
        is_good = add_entry(scanning, &list, i);
    }
    note_fields(scanning, scanned->name, &list);
    eb_safetensors_deinit(&list);
    free(head);
    return is_good;
}

static bool scan_open_file(struct scanning *scanning, const struct scanned *scanned)
{
    const struct eb_file_name *parsed = &scanned->parsed;
    bool is_by_rows = parsed->kind != EB_FILE_SAFETENSORS && parsed->is_split;
    if (is_by_rows && parsed->piece >= parsed->pieces) {
        return eb_failure_set(scanning->failure,
            "its name says that it is piece %" PRIu32 " of %" PRIu32 "; pieces are numbered from 0",
            parsed->piece, parsed->pieces);
    }
    switch (parsed->kind) {
    case EB_FILE_NPY:
    case EB_FILE_KEYS: return scan_npy(scanning, scanned);
    case EB_FILE_PACKED: return scan_packed(scanning, scanned);
    case EB_FILE_SAFETENSORS: return scan_safetensors(scanning, scanned);
    case EB_FILE_SAFETENSORS_INDEX:
    case EB_FILE_OTHER: break;
    }
    return true;
}

/* Notes a file of a common model format that must be converted before it can be loaded. */
static void note_other(struct scanning *scanning, const char *name)
{
    const char *how = eb_file_name_find_conversion(name);
    if (how) {
        add_note(&scanning->scan->notes.files, name, how);
    }
}

/* Sets *is_chosen to whether to open a file. A file that is named after its only table is not
 * opened if the patterns leave that table out. Returns false with *failure set if out of memory. */
static bool choose_file(struct scanning *scanning, const struct scanned *scanned, bool *is_chosen)
{
    *is_chosen = true;
    if (scanned->parsed.kind == EB_FILE_SAFETENSORS) {
        return true;
    }
    char *table = strndup(scanned->name, scanned->parsed.base_bytes);
    if (!table) {
        return eb_failure_set(scanning->failure, "out of memory");
    }
    *is_chosen = take_choice(&scanning->choice, table);
    free(table);
    return true;
}

/* Returns whether a file counts as a table. If several files hold a table's rows, only the first
 * one does. */
static bool is_table(const struct eb_file_name *parsed)
{
    return parsed->kind != EB_FILE_KEYS && (!parsed->is_split || parsed->piece == 0);
}

/* Sets the digest of the file that was added last. Returns false if it is a packed file whose
 * header has another digest than the manifest. */
static bool take_digest(struct scanning *scanning, const struct scanned *scanned)
{
    struct eb_version_scan *scan = scanning->scan;
    bool is_stale;
    const struct eb_manifest_file *listed =
        eb_version_manifest_find(&scanning->manifest, scanned->name, scanned->file, &is_stale);
    const struct eb_packed_format *packed =
        scanned->parsed.kind == EB_FILE_PACKED ? scan->pieces[scan->piece_count - 1].packed : NULL;
    if (!listed) {
        return true;
    }
    if (packed && packed->digest != listed->digest) {
        return eb_failure_set(scanning->failure,
            "its digest is %016" PRIx64 ", but the manifest lists %016" PRIx64
            "; copy the file again, and the manifest last",
            packed->digest, listed->digest);
    }
    if (is_stale) {
        add_note(&scan->notes.stale, scanned->name, NULL);
        return true;
    }
    scan->files[scan->file_count - 1].has_digest = true;
    scan->files[scan->file_count - 1].digest = listed->digest;
    return true;
}

static bool scan_file(struct scanning *scanning, const char *directory, const char *name)
{
    struct scanned scanned = {.name = name, .parsed = eb_file_name_parse(name)};
    bool is_chosen;
    if (scanned.parsed.kind == EB_FILE_OTHER || scanned.parsed.kind == EB_FILE_SAFETENSORS_INDEX) {
        note_other(scanning, name);
        return true;
    }
    if (!choose_file(scanning, &scanned, &is_chosen)) {
        return false;
    }
    if (!is_chosen) {
        scanning->scan->left_out_count += is_table(&scanned.parsed);
        return true;
    }
    char *path = eb_directory_join(directory, name, scanning->failure);
    if (!path) {
        return false;
    }
    struct eb_scanned_file *file = &scanning->scan->files[scanning->scan->file_count++];
    *file = (struct eb_scanned_file){.path = path};
    if (!eb_table_file_open(path, &file->stamp, scanning->failure)) {
        return eb_failure_locate(scanning->failure, path);
    }
    scanned.file = &file->stamp;
    bool is_good = scan_open_file(scanning, &scanned) && take_digest(scanning, &scanned);
    eb_table_file_close(&file->stamp);
    return is_good || eb_failure_locate(scanning->failure, path);
}

/* ---- lists of tensors ---- */

static const char *base_of_piece(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static int compare_scan_name(const void *name, const void *piece)
{
    return strcmp(name, ((const struct eb_piece *)piece)->name);
}

/* Returns whether the tensor is in the file that the list names. */
static bool is_there(const struct eb_version_scan *scan, const struct eb_tensor_location *location)
{
    const struct eb_piece *pieces = scan->pieces;
    const struct eb_piece *end = pieces + scan->piece_count;
    const struct eb_piece *at = scan->piece_count == 0
                                    ? NULL
                                    : bsearch(location->tensor, pieces, scan->piece_count,
                                          sizeof *pieces, compare_scan_name);
    if (!at) {
        return false;
    }
    while (at > pieces && strcmp(at[-1].name, location->tensor) == 0) {
        at--;
    }
    for (; at < end && strcmp(at->name, location->tensor) == 0; at++) {
        if (strcmp(base_of_piece(scan->files[at->file].path), location->file) == 0) {
            return true;
        }
    }
    return false;
}

static bool check_locations(const struct scanning *scanning, const struct eb_tensor_index *index)
{
    for (size_t i = 0; i < index->count; i++) {
        const struct eb_tensor_location *location = &index->locations[i];
        if (!is_there(scanning->scan, location)) {
            return eb_failure_set(scanning->failure,
                "tensor '%.128s' is not in %.128s; copy all files of the list to this directory",
                location->tensor, location->file);
        }
    }
    return true;
}

/* Reads a list of tensors. Returns its content, which the index borrows and the caller frees, or
 * NULL. */
static uint8_t *read_scan_index(
    struct eb_table_file *file, struct eb_tensor_index *index, struct eb_failure *failure)
{
    if (file->bytes > EB_TENSOR_INDEX_BYTES_MAX) {
        eb_failure_set(failure, "larger than %d bytes, the maximum for a list of tensors",
            EB_TENSOR_INDEX_BYTES_MAX);
        return NULL;
    }
    if (!check_scan_memory(file->bytes, failure)) {
        return NULL;
    }
    uint8_t *json = read_scan_head(file, file->bytes, failure);
    if (json && !eb_tensor_index_parse(json, file->bytes, index, failure)) {
        free(json);
        json = NULL;
    }
    return json;
}

/* Returns whether all tensors of the list at `path` are in their files. */
static bool check_scan_index(const struct scanning *scanning, const char *path)
{
    struct eb_table_file file;
    struct eb_tensor_index index;
    if (!eb_table_file_open(path, &file, scanning->failure)) {
        return false;
    }
    uint8_t *json = read_scan_index(&file, &index, scanning->failure);
    eb_table_file_close(&file);
    if (!json) {
        return false;
    }
    bool is_good = check_locations(scanning, &index);
    eb_tensor_index_deinit(&index);
    free(json);
    return is_good;
}

/* Returns whether there is a list NAME.safetensors.index.json for a file
 * NAME-00001-of-00002.safetensors. Without such a list, missing pieces could go unnoticed. */
static bool check_listed(
    const struct eb_directory *listing, const char *name, struct eb_failure *failure)
{
    struct eb_file_name piece = eb_file_name_parse(name);
    if (piece.kind != EB_FILE_SAFETENSORS || !piece.is_split) {
        return true;
    }
    for (size_t i = 0; i < listing->count; i++) {
        const char *other = listing->entries[i]->d_name;
        struct eb_file_name parsed = eb_file_name_parse(other);
        if (parsed.kind == EB_FILE_SAFETENSORS_INDEX && parsed.base_bytes == piece.base_bytes &&
            strncmp(other, name, piece.base_bytes) == 0) {
            return true;
        }
    }
    return eb_failure_set(failure,
        "it is one of several pieces, but there is no list of them; add "
        "%.*s.safetensors.index.json",
        (int)piece.base_bytes, name);
}

static bool check_lists(
    const struct scanning *scanning, const char *directory, const struct eb_directory *listing)
{
    for (size_t i = 0; i < listing->count; i++) {
        const char *name = listing->entries[i]->d_name;
        char *path = eb_directory_join(directory, name, scanning->failure);
        if (!path) {
            return false;
        }
        bool is_list = eb_file_name_parse(name).kind == EB_FILE_SAFETENSORS_INDEX;
        bool is_good = is_list ? check_scan_index(scanning, path)
                               : check_listed(listing, name, scanning->failure);
        if (!is_good) {
            eb_failure_locate(scanning->failure, path);
        }
        free(path);
        if (!is_good) {
            return false;
        }
    }
    return true;
}

/* ---- the whole ---- */

static int compare_pieces(const void *left, const void *right)
{
    const struct eb_piece *a = left;
    const struct eb_piece *b = right;
    int names = strcmp(a->name, b->name);
    if (names != 0) {
        return names;
    }
    if (a->is_keys != b->is_keys) {
        return a->is_keys ? 1 : -1;
    }
    if (a->number != b->number) {
        return a->number < b->number ? -1 : 1;
    }
    return a->file < b->file ? -1 : a->file > b->file;
}

static void free_piece(struct eb_piece *piece)
{
    free(piece->name);
    free(piece->packed);
    free(piece->unfit);
}

/* Removes pieces that the patterns leave out. Moves tensors that cannot be tables to the end. */
static bool settle_scan(struct scanning *scanning)
{
    struct eb_version_scan *scan = scanning->scan;
    struct eb_piece *unfit = calloc(scan->piece_count + 1, sizeof *unfit);
    size_t count = 0;
    if (!unfit) {
        return eb_failure_set(scanning->failure, "out of memory");
    }
    for (size_t i = 0; i < scan->piece_count; i++) {
        struct eb_piece *piece = &scan->pieces[i];
        if (piece->is_left_out) {
            scan->left_out_count += !piece->unfit;
            free_piece(piece);
        } else if (piece->unfit) {
            add_note(&scan->notes.tensors, piece->name, piece->unfit);
            unfit[scan->unfit_count++] = *piece;
        } else {
            scan->pieces[count++] = *piece;
        }
    }
    scan->piece_count = count;
    if (scan->unfit_count > 0) {
        memcpy(scan->pieces + count, unfit, scan->unfit_count * sizeof *unfit);
    }
    free(unfit);
    if (!scanning->is_in_parts) {
        note_unmatched_patterns(&scanning->choice, &scan->notes.patterns);
    }
    return true;
}

const struct eb_piece *eb_version_scan_find_unfit(
    const struct eb_version_scan *scan, const char *name)
{
    return scan->unfit_count == 0 ? NULL
                                  : bsearch(name, scan->pieces + scan->piece_count,
                                        scan->unfit_count, sizeof *scan->pieces, compare_scan_name);
}

static bool scan_files(
    struct scanning *scanning, const char *directory, const struct eb_directory *listing)
{
    struct eb_version_scan *scan = scanning->scan;
    scan->files = calloc(listing->count + 1, sizeof *scan->files);
    if (!scan->files) {
        return eb_failure_set(scanning->failure, "%s: out of memory", directory);
    }
    for (size_t i = 0; i < listing->count; i++) {
        if (!scan_file(scanning, directory, listing->entries[i]->d_name)) {
            return false;
        }
    }
    if (scan->piece_count > 0) {
        qsort(scan->pieces, scan->piece_count, sizeof *scan->pieces, compare_pieces);
    }
    return check_lists(scanning, directory, listing) && settle_scan(scanning);
}

bool eb_version_scan_read(const char *directory, const struct eb_model_config *config,
    bool is_in_parts, struct eb_version_scan *scan, struct eb_failure *failure)
{
    *scan = (struct eb_version_scan){0};
    struct eb_directory listing;
    if (!eb_directory_read(directory, &listing, failure)) {
        return false;
    }
    struct scanning scanning = {.scan = scan, .is_in_parts = is_in_parts, .failure = failure};
    bool is_good = (is_in_parts || eb_version_manifest_read(
                                       directory, &listing, &scanning.manifest, failure)) &&
                   init_choice(&scanning.choice, config, failure) &&
                   scan_files(&scanning, directory, &listing);
    eb_version_manifest_deinit(&scanning.manifest);
    deinit_choice(&scanning.choice);
    eb_directory_deinit(&listing);
    if (!is_good) {
        eb_version_scan_deinit(scan);
    }
    return is_good;
}

void eb_version_scan_deinit(struct eb_version_scan *scan)
{
    for (size_t i = 0; i < scan->piece_count + scan->unfit_count; i++) {
        free_piece(&scan->pieces[i]);
    }
    for (size_t i = 0; i < scan->file_count; i++) {
        free(scan->files[i].path);
    }
    free(scan->pieces);
    free(scan->files);
    *scan = (struct eb_version_scan){0};
}
