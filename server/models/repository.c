#include "server/models/repository.h"

#include "server/base/directory.h"
#include "server/base/name.h"
#include "server/formats/file_digest.h"
#include "server/formats/manifest_text.h"
#include "server/formats/parts_manifest.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Directory that mkfs creates in the root of a volume. */
#define FILESYSTEM_DIRECTORY "lost+found"
/* How often a model is read whose directory is replaced meanwhile. */
#define READS_MAX 3

/* The state of a scan. */
struct scan {
    const struct eb_repository_terms *terms;
    const struct eb_repository *former; /* may be NULL */
    struct eb_failure *failure;
};

static bool fail_memory(const struct scan *scan, const char *path)
{
    return eb_failure_set(scan->failure, "%s: out of memory", path);
}

static bool is_version_name(const char *name)
{
    return name[strspn(name, "0123456789")] == '\0';
}

/* Returns a version's number, or 0 if the digits are not a valid one. */
static uint64_t parse_version(const char *digits)
{
    errno = 0;
    unsigned long long number = strtoull(digits, NULL, 10);
    return errno == 0 ? number : 0;
}

/* Returns the stamp of a path. The stamp is zeroed if the path is missing or cannot be followed;
 * reading the path later will show which of the two it is. */
static struct eb_file_stamp stamp_path(const char *path)
{
    struct stat status;
    if (stat(path, &status) != 0) {
        return (struct eb_file_stamp){0};
    }
    return (struct eb_file_stamp){status.st_dev, status.st_ino, status.st_size, status.st_ctim};
}

bool eb_file_stamp_is_same(const struct eb_file_stamp *a, const struct eb_file_stamp *b)
{
    return a->device == b->device && a->inode == b->inode && a->bytes == b->bytes &&
           a->changed.tv_sec == b->changed.tv_sec && a->changed.tv_nsec == b->changed.tv_nsec;
}

/* Continues the FNV-1a digest `start` with `count` bytes. */
static uint64_t digest_scan(uint64_t start, const void *bytes, size_t count)
{
    const uint8_t *at = bytes;
    uint64_t value = start;
    for (size_t i = 0; i < count; i++) {
        value = (value ^ at[i]) * UINT64_C(0x100000001b3);
    }
    return value;
}

/* Continues the digest `start` with the name, size and times of a file of a directory. Returns
 * `start` for a folder if `is_flat`. */
static uint64_t digest_file(uint64_t start, const char *directory, const char *name, bool is_flat)
{
    struct eb_failure failure;
    struct stat status = {0};
    char *file = eb_directory_join(directory, name, &failure);
    int error = file && stat(file, &status) == 0 ? 0 : errno;
    free(file);
    if (is_flat && S_ISDIR(status.st_mode)) {
        return start;
    }
    uint64_t value = digest_scan(start, name, strlen(name) + 1);
    value = digest_scan(value, &error, sizeof error);
    value = digest_scan(value, &status.st_ino, sizeof status.st_ino);
    value = digest_scan(value, &status.st_size, sizeof status.st_size);
    value = digest_scan(value, &status.st_mtim, sizeof status.st_mtim);
    return digest_scan(value, &status.st_ctim, sizeof status.st_ctim);
}

/* Continues the digest `start`, which is not 0, with all files of a directory and, unless
 * `is_flat`, its folders. Returns 0 if it cannot be read. */
static uint64_t digest_files(uint64_t start, const char *directory, bool is_flat)
{
    struct eb_directory listing;
    struct eb_failure failure;
    uint64_t value = start;
    if (!eb_directory_read(directory, &listing, &failure)) {
        return 0;
    }
    for (size_t i = 0; i < listing.count; i++) {
        value = digest_file(value, directory, listing.entries[i]->d_name, is_flat);
    }
    eb_directory_deinit(&listing);
    return value == 0 ? 1 : value;
}

uint64_t eb_repository_stamp_files(const char *path, const struct eb_repository_terms *terms)
{
    static const uint64_t start = UINT64_C(0xcbf29ce484222325);
    char name[EB_PART_FOLDER_BYTES];
    struct eb_failure failure;
    if (terms->part.parts == 0) {
        return digest_files(start, path, terms->is_router);
    }
    eb_part_folder_name(terms->part.part, terms->part.parts, name);
    char *folder = eb_directory_join(path, name, &failure);
    uint64_t value =
        folder ? digest_files(digest_file(start, path, EB_MANIFEST_NAME, false), folder, false) : 0;
    free(folder);
    return value;
}

/* Returns the bytes of a directory's files, or 0 if it cannot be read. */
static uint64_t count_file_bytes(const char *path)
{
    struct eb_directory listing;
    struct eb_failure failure;
    uint64_t bytes = 0;
    if (!eb_directory_read(path, &listing, &failure)) {
        return 0;
    }
    for (size_t i = 0; i < listing.count; i++) {
        char *file = eb_directory_join(path, listing.entries[i]->d_name, &failure);
        struct stat status;
        if (file && stat(file, &status) == 0 && S_ISREG(status.st_mode)) {
            bytes += (uint64_t)status.st_size;
        }
        free(file);
    }
    eb_directory_deinit(&listing);
    return bytes;
}

/* ---- versions ---- */

static int compare_repository_versions(const void *left, const void *right)
{
    const struct eb_repository_version *a = left;
    const struct eb_repository_version *b = right;
    if (a->number != b->number) {
        return a->number < b->number ? 1 : -1;
    }
    return strcmp(a->name, b->name);
}

/* Returns whether to stamp the files of the version in the directory `name`. */
static bool is_watched(
    const struct scan *scan, const struct eb_repository_model *model, const char *name)
{
    const struct eb_repository_model *former =
        scan->former ? eb_repository_find(scan->former, model->name) : NULL;
    for (size_t i = 0; former && former->is_watched && i < former->version_count; i++) {
        if (former->versions[i].is_watched && strcmp(former->versions[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* Names the next version and adds it to version_count. If out of memory for the name, does not
 * count the version, because every counted version must have a name. Returns false if out of
 * memory. */
static bool name_version(struct eb_repository_model *model, const char *name, const char *failure)
{
    struct eb_repository_version *version = &model->versions[model->version_count];
    version->name = strdup(name);
    if (!version->name) {
        return false;
    }
    model->version_count++;
    version->failure = failure ? strdup(failure) : NULL;
    return !failure || version->failure;
}

/* Adds a version for the entry `name` of the model's directory, unless that is known not to be a
 * directory. */
static bool add_version(
    const struct scan *scan, struct eb_repository_model *model, const char *name)
{
    char *path = eb_directory_join(model->path, name, scan->failure);
    if (!path) {
        return false;
    }
    bool is_directory;
    bool is_good = true;
    bool is_seen = eb_directory_test(path, &is_directory, scan->failure);
    if (!is_seen || is_directory) {
        struct eb_repository_version *version = &model->versions[model->version_count];
        version->number = parse_version(name);
        version->stamp = stamp_path(path);
        version->files = 0;
        if (is_watched(scan, model, name)) {
            version->files = eb_repository_stamp_files(path, scan->terms);
        }
        is_good = name_version(model, name, is_seen ? NULL : scan->failure->text) ||
                  fail_memory(scan, path);
    }
    free(path);
    return is_good;
}

/* Returns whether the entry's name is a valid number that no other directory has. */
static bool check_number(const struct eb_repository_model *model,
    const struct eb_repository_version *version, bool is_shared, struct eb_failure *failure)
{
    if (version->number == 0) {
        return eb_failure_set(failure,
            "%s/%s: not a version; expected a number from 1 to %" PRIu64 "; rename the directory",
            model->path, version->name, UINT64_MAX);
    }
    return !is_shared ||
           eb_failure_set(failure,
               "%s/%s: another directory is also version %" PRIu64 "; remove one of them",
               model->path, version->name, version->number);
}

/* Sets the failure of each version in the sorted list whose name is not valid. */
static bool check_numbers(const struct scan *scan, struct eb_repository_model *model)
{
    struct eb_repository_version *versions = model->versions;
    for (size_t i = 0; i < model->version_count; i++) {
        bool is_shared =
            (i > 0 && versions[i - 1].number == versions[i].number) ||
            (i + 1 < model->version_count && versions[i + 1].number == versions[i].number);
        struct eb_failure failure;
        if (!versions[i].failure && !check_number(model, &versions[i], is_shared, &failure)) {
            versions[i].failure = strdup(failure.text);
            if (!versions[i].failure) {
                return fail_memory(scan, model->path);
            }
        }
    }
    return true;
}

static bool list_versions(
    const struct scan *scan, const struct eb_directory *listing, struct eb_repository_model *model)
{
    model->versions = calloc(listing->count + 1, sizeof *model->versions);
    if (!model->versions) {
        return fail_memory(scan, model->path);
    }
    for (size_t i = 0; i < listing->count; i++) {
        const char *name = listing->entries[i]->d_name;
        if (is_version_name(name) && !add_version(scan, model, name)) {
            return false;
        }
    }
    qsort(model->versions, model->version_count, sizeof *model->versions,
        compare_repository_versions);
    return check_numbers(scan, model);
}

static bool read_repository_versions(const struct scan *scan, struct eb_repository_model *model)
{
    struct eb_directory listing;
    if (!eb_directory_read(model->path, &listing, scan->failure)) {
        return false;
    }
    bool is_good = list_versions(scan, &listing, model);
    eb_directory_deinit(&listing);
    return is_good;
}

/* ---- model.yaml ---- */

/* Takes over the former settings if model.yaml is the same file, or is still missing. Returns false
 * if it must be read. This includes a file that could not be read before, which may be readable
 * now, and a broken link, which is not a missing file. */
static bool share_config(
    const struct scan *scan, const char *path, struct eb_repository_model *model)
{
    static const struct eb_file_stamp nothing;
    struct stat status;
    const struct eb_repository_model *former =
        scan->former ? eb_repository_find(scan->former, model->name) : NULL;
    if (!former || !former->settings ||
        !eb_file_stamp_is_same(&former->config_stamp, &model->config_stamp)) {
        return false;
    }
    if (eb_file_stamp_is_same(&model->config_stamp, &nothing) &&
        (lstat(path, &status) == 0 || errno != ENOENT)) {
        return false;
    }
    model->settings = eb_model_settings_take(former->settings);
    return true;
}

static bool parse_config(
    const struct scan *scan, const char *path, struct eb_repository_model *model)
{
    struct eb_failure failure;
    model->settings = eb_model_settings_create();
    if (!model->settings) {
        return fail_memory(scan, path);
    }
    if (eb_model_config_read(
            path, scan->terms->name_bytes_max, &model->settings->config, &failure)) {
        return true;
    }
    eb_model_settings_give(model->settings);
    model->settings = NULL;
    model->config_failure = strdup(failure.text);
    return model->config_failure || fail_memory(scan, path);
}

/* Reads the model's settings. Returns false if out of memory. */
static bool read_config(const struct scan *scan, struct eb_repository_model *model)
{
    char *path = eb_directory_join(model->path, EB_REPOSITORY_CONFIG_FILE, scan->failure);
    if (!path) {
        return false;
    }
    model->config_stamp = stamp_path(path);
    bool is_good = share_config(scan, path, model) || parse_config(scan, path, model);
    free(path);
    return is_good;
}

/* ---- contents ---- */

/* Returns the version as the former scan found it, or NULL if it is new. */
static const struct eb_repository_version *find_former(const struct scan *scan,
    const struct eb_repository_model *model, const struct eb_repository_version *version)
{
    const struct eb_repository_model *former =
        scan->former ? eb_repository_find(scan->former, model->name) : NULL;
    for (size_t i = 0; former && i < former->version_count; i++) {
        if (strcmp(former->versions[i].name, version->name) == 0) {
            return &former->versions[i];
        }
    }
    return NULL;
}

/* Returns the digest of the manifest in the directory `path`. Returns 0 if the directory has no
 * manifest, or if it is too large or cannot be read. */
static uint64_t digest_manifest(const char *path)
{
    struct eb_failure failure;
    struct eb_table_file file;
    uint64_t digest = 0;
    char *name = eb_directory_join(path, EB_MANIFEST_NAME, &failure);
    if (name && eb_table_file_open(name, &file, &failure)) {
        if (file.bytes > EB_MANIFEST_BYTES_MAX ||
            !eb_file_digest_read(&file, false, false, NULL, &digest, &failure)) {
            digest = 0;
        }
        eb_table_file_close(&file);
    }
    free(name);
    return digest;
}

/* Returns the bytes of a version's files, or of those of the scan's part. */
static uint64_t count_version_bytes(const struct scan *scan, const char *path)
{
    const struct eb_part_choice *part = &scan->terms->part;
    char name[EB_PART_FOLDER_BYTES];
    struct eb_failure failure;
    if (part->parts == 0) {
        return count_file_bytes(path);
    }
    eb_part_folder_name(part->part, part->parts, name);
    char *folder = eb_directory_join(path, name, &failure);
    uint64_t bytes = folder ? count_file_bytes(folder) : 0;
    free(folder);
    return bytes;
}

/* Returns whether the settings serve the version or give it a label. */
static bool is_version_named(const struct eb_model_settings *settings, uint64_t number)
{
    bool is_named = settings && settings->config.serve == number;
    for (size_t i = 0; settings && !is_named && i < settings->config.label_count; i++) {
        is_named = settings->config.labels[i].version == number;
    }
    return is_named;
}

/* Counts the bytes of a version that is likely to be loaded, and digests its manifest and that of
 * any version of a part, unless it has been read for a router. Takes both from the former scan if
 * that has them and the directory is the same. */
static void read_contents(const struct scan *scan, const struct eb_repository_model *model,
    struct eb_repository_version *version, bool is_likely)
{
    const struct eb_repository_version *former = find_former(scan, model, version);
    bool is_same = former && eb_file_stamp_is_same(&former->stamp, &version->stamp);
    bool is_known = scan->terms->is_router; /* the manifest has been read */
    version->bytes = is_same ? former->bytes : 0;
    if (!is_known) {
        version->manifest = is_same ? former->manifest : 0;
    }
    bool is_counted = version->bytes == 0 && is_likely;
    bool is_of_part = scan->terms->part.parts > 0 && version->manifest == 0;
    bool had_manifest = former && former->manifest != 0 && !is_known;
    struct eb_failure failure;
    char *path = is_counted || is_of_part || had_manifest
                     ? eb_directory_join(model->path, version->name, &failure)
                     : NULL;
    if (path && is_counted) {
        version->bytes = count_version_bytes(scan, path);
    }
    if (path && !is_known && (is_counted || is_of_part || !is_same)) {
        version->manifest = digest_manifest(path);
    }
    free(path);
}

/* Does so for the versions that are likely to be loaded: the highest, and those that the settings
 * name. To examine the files of all versions would take too long on a network disk. */
static void read_likely_contents(const struct scan *scan, struct eb_repository_model *model)
{
    bool is_highest = true;
    for (size_t i = 0; i < model->version_count; i++) {
        struct eb_repository_version *version = &model->versions[i];
        if (!version->failure) {
            read_contents(scan, model, version,
                is_highest || is_version_named(model->settings, version->number));
            is_highest = false;
        }
    }
}

/* Returns whether the version's directory has an entry of that name. Also returns true if the
 * directory cannot be accessed, because its load then reports why. */
static bool has_entry(const struct eb_repository_model *model,
    const struct eb_repository_version *version, const char *name)
{
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/%s/%s", model->path, version->name, name);
    return length >= PATH_MAX || access(path, F_OK) == 0 || errno != ENOENT;
}

/* Returns whether the version has the folder of the scan's part, or whether there is no such part.
 */
static bool has_part(const struct scan *scan, const struct eb_repository_model *model,
    const struct eb_repository_version *version)
{
    const struct eb_part_choice *part = &scan->terms->part;
    char name[EB_PART_FOLDER_BYTES];
    if (part->parts == 0) {
        return true;
    }
    eb_part_folder_name(part->part, part->parts, name);
    return has_entry(model, version, name);
}

/* Reads the manifest at `path`, and sets what it says about the version. Forgets the file's stamp
 * if another attempt may succeed. Returns false if there is no such file, or if it is not the
 * manifest of a version in parts. */
static bool read_parted_manifest(const char *path, struct eb_repository_version *version)
{
    struct eb_failure failure = {.text = ""};
    struct eb_table_file file;
    struct eb_parts_manifest manifest = {0};
    if (!eb_table_file_open(path, &file, &failure)) {
        version->manifest_stamp = (struct eb_file_stamp){0};
        return access(path, F_OK) == 0 || errno != ENOENT;
    }
    uint8_t *yaml = eb_manifest_text_read(&file, &failure);
    bool is_parted = !yaml || eb_parts_manifest_is(yaml, file.bytes);
    if (yaml && is_parted && eb_parts_manifest_parse(yaml, file.bytes, &manifest, &failure)) {
        version->manifest = manifest.digest;
        version->parts = manifest.parts;
        version->lineage = manifest.lineage;
        manifest.lineage = NULL;
    } else if (failure.is_transient) {
        version->manifest_stamp = (struct eb_file_stamp){0};
    }
    eb_parts_manifest_deinit(&manifest);
    free(yaml);
    eb_table_file_close(&file);
    return is_parted;
}

/* Sets what the manifest of a router's version says about it. Takes that from the former scan if it
 * is the same file. Sets *is_there to whether it is the manifest of a version in parts. Returns
 * false if out of memory. */
static bool find_parted(const struct scan *scan, const struct eb_repository_model *model,
    struct eb_repository_version *version, bool *is_there)
{
    static const struct eb_file_stamp nothing;
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/%s/" EB_MANIFEST_NAME, model->path, version->name);
    const struct eb_repository_version *former = find_former(scan, model, version);
    bool is_short = length < (int)sizeof path;
    const char *lineage = "";
    *is_there = true;
    if (is_short) {
        version->manifest_stamp = stamp_path(path);
    }
    if (former && !eb_file_stamp_is_same(&version->manifest_stamp, &nothing) &&
        eb_file_stamp_is_same(&version->manifest_stamp, &former->manifest_stamp)) {
        version->manifest = former->manifest;
        version->parts = former->parts;
        lineage = former->lineage;
    } else if (is_short) {
        *is_there = read_parted_manifest(path, version);
    }
    if (!version->lineage) {
        version->lineage = strdup(lineage);
    }
    return version->lineage || fail_memory(scan, path);
}

/* Sets *is_there to whether the version exists on the scan's terms and those of the settings.
 * Returns false if out of memory. */
static bool find_version(const struct scan *scan, const struct eb_repository_model *model,
    struct eb_repository_version *version, bool *is_there)
{
    bool is_required = scan->terms->part.parts > 0 ||
                       (model->settings && model->settings->config.is_manifest_required);
    if (scan->terms->is_router) {
        return find_parted(scan, model, version, is_there);
    }
    *is_there = !is_required ||
                (has_entry(model, version, EB_MANIFEST_NAME) && has_part(scan, model, version));
    return true;
}

static void free_repository_version(const struct eb_repository_version *version)
{
    free(version->name);
    free(version->failure);
    free(version->lineage);
}

/* Drops the versions that do not exist: those without a manifest, if the settings, a part or a
 * router require one, because they are not complete yet; and those that are not in the scan's
 * parts. Returns false if out of memory. */
static bool drop_incomplete(const struct scan *scan, struct eb_repository_model *model)
{
    size_t count = 0;
    bool is_good = true;
    for (size_t i = 0; i < model->version_count; i++) {
        struct eb_repository_version *version = &model->versions[i];
        bool is_there = true;
        is_good = is_good && find_version(scan, model, version, &is_there);
        if (is_there) {
            model->versions[count++] = *version;
        } else {
            free_repository_version(version);
        }
    }
    model->version_count = count;
    return is_good;
}

/* ---- models ---- */

/* Reads a model. Its problems go into model->failure. If `is_seen` is false, *scan->failure already
 * says why its directory cannot be read. Returns false if out of memory. */
static bool read_model(const struct scan *scan, bool is_seen, struct eb_repository_model *model)
{
    const char *name_failure = eb_name_error(model->name, scan->terms->name_bytes_max);
    model->stamp = stamp_path(model->path);
    if (name_failure) {
        eb_failure_set(scan->failure, "%s: the model name %s; rename the directory", model->path,
            name_failure);
    } else if (is_seen && read_repository_versions(scan, model)) {
        bool is_good = read_config(scan, model) && drop_incomplete(scan, model);
        read_likely_contents(scan, model);
        return is_good;
    }
    model->failure = strdup(scan->failure->text);
    return model->failure || fail_memory(scan, model->path);
}

static void free_repository_model(struct eb_repository_model *model)
{
    for (size_t i = 0; i < model->version_count; i++) {
        free_repository_version(&model->versions[i]);
    }
    free(model->versions);
    eb_model_settings_give(model->settings);
    free(model->config_failure);
    free(model->failure);
    free(model->path);
    free(model->name);
}

/* Adds a model for directory/name, unless that is known not to be a directory. Returns false if out
 * of memory. */
static bool read_repository_model(const struct scan *scan, const char *directory, const char *name,
    struct eb_repository *repository)
{
    char *path = eb_directory_join(directory, name, scan->failure);
    if (!path) {
        return false;
    }
    bool is_directory;
    bool is_seen = eb_directory_test(path, &is_directory, scan->failure);
    if ((is_seen && !is_directory) || strcmp(name, FILESYSTEM_DIRECTORY) == 0) {
        free(path);
        return true;
    }
    struct eb_repository_model *model = &repository->models[repository->count++];
    *model = (struct eb_repository_model){.path = path, .name = strdup(name)};
    return model->name ? read_model(scan, is_seen, model) : fail_memory(scan, path);
}

/* Returns whether the model's directory is gone, or is another than when its read began. */
static bool is_directory_replaced(const struct eb_repository_model *model)
{
    struct eb_file_stamp now = stamp_path(model->path);
    return now.device != model->stamp.device || now.inode != model->stamp.inode;
}

/* Adds a model, and reads it again if its directory was moved away meanwhile: its versions may then
 * be those of one directory, and its settings those of another, or of none. */
static bool add_repository_model(const struct scan *scan, const char *directory, const char *name,
    struct eb_repository *repository)
{
    size_t count = repository->count;
    struct eb_repository_model *model = &repository->models[count];
    for (int reads = 1; read_repository_model(scan, directory, name, repository); reads++) {
        if (repository->count == count || !is_directory_replaced(model)) {
            return true;
        }
        if (reads == READS_MAX) {
            eb_failure_set(scan->failure,
                "%s: it was replaced each of the %d times that it was read; until it can be read, "
                "the model stays as it is",
                model->path, READS_MAX);
            free(model->failure);
            model->failure = strdup(scan->failure->text);
            return model->failure || fail_memory(scan, model->path);
        }
        free_repository_model(model);
        repository->count = count;
    }
    return false;
}

static bool add_models(const struct scan *scan, const char *directory,
    const struct eb_directory *listing, struct eb_repository *repository)
{
    repository->models = calloc(listing->count + 1, sizeof *repository->models);
    if (!repository->models) {
        return fail_memory(scan, directory);
    }
    for (size_t i = 0; i < listing->count; i++) {
        if (!add_repository_model(scan, directory, listing->entries[i]->d_name, repository)) {
            return false;
        }
    }
    return repository->count > 0 ||
           eb_failure_set(scan->failure,
               "%s: there is no model in it; put tables into MODEL/VERSION/ below it", directory);
}

bool eb_repository_scan(const char *directory, const struct eb_repository_terms *terms,
    const struct eb_repository *former, struct eb_repository *out, struct eb_failure *failure)
{
    *out = (struct eb_repository){0};
    struct eb_directory listing;
    if (!eb_directory_read(directory, &listing, failure)) {
        return false;
    }
    struct scan scan = {terms, former, failure};
    bool is_good = add_models(&scan, directory, &listing, out);
    eb_directory_deinit(&listing);
    if (!is_good) {
        eb_repository_deinit(out);
    }
    return is_good;
}

void eb_repository_deinit(struct eb_repository *repository)
{
    for (size_t i = 0; i < repository->count; i++) {
        free_repository_model(&repository->models[i]);
    }
    free(repository->models);
    *repository = (struct eb_repository){0};
}

static int compare_repository_model_name(const void *name, const void *model)
{
    return strcmp(name, ((const struct eb_repository_model *)model)->name);
}

const struct eb_repository_model *eb_repository_find(
    const struct eb_repository *repository, const char *name)
{
    return repository->count == 0 ? NULL
                                  : bsearch(name, repository->models, repository->count,
                                        sizeof *repository->models, compare_repository_model_name);
}
