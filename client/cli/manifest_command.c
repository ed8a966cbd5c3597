#include "client/cli/commands.h"

#include "client/cli/arguments.h"
#include "client/cli/progress_bar.h"
#include "server/base/directory.h"
#include "server/contents/file_name.h"
#include "server/formats/file_digest.h"
#include "server/formats/manifest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Name of the manifest until it is complete. The server ignores names that begin with a dot. */
#define NEW_NAME ".manifest.yaml.new"

static const char usage[] =
    "Usage: embag manifest [OPTION]... DIRECTORY\n"
    "Writes DIRECTORY/manifest.yaml: the sizes and digests of the table files of a version of a\n"
    "model, MODEL/VERSION. The server compares the version with it, and recognises tables by "
    "their\n"
    "digests when they are copied. Write it last. An old manifest is replaced at once.\n"
    "\n"
    "  --check     compare all bytes of the files with the manifest, and write nothing\n"
    "Exit status: 0; 1 if a file cannot be read or differs; 2 for a usage error.\n";

struct options {
    bool is_check;
    const char *directory;
};

#define AT(field) offsetof(struct options, field)
static const struct eb_flag flags[] = {
    {"check", EB_FLAG_SWITCH, AT(is_check), 0, 0, NULL},
    {"DIRECTORY", EB_FLAG_POSITIONAL, AT(directory), 0, 0, NULL},
};
#undef AT

static const struct eb_command command = {
    "manifest", {usage}, flags, sizeof flags / sizeof flags[0]};

/* ---- files ---- */

static void advance_bar(void *bar, uint64_t bytes)
{
    eb_progress_bar_advance(bar, bytes);
}

/* Returns whether the file is as it was when it was opened. */
static bool check_unchanged(
    const char *path, const struct eb_table_file *opened, struct eb_failure *failure)
{
    struct eb_table_file file;
    if (!eb_table_file_open(path, &file, failure)) {
        return false;
    }
    eb_table_file_close(&file);
    return eb_table_file_is_same(&file, opened) ||
           eb_failure_set(failure, "it changed while it was read; finish writing it, and then "
                                   "run embag manifest again");
}

/* Reads a file of the directory and describes it. The name is borrowed. */
static bool describe_listed(const char *directory, char *name, bool is_checked,
    struct eb_manifest_file *out, struct eb_failure *failure)
{
    struct eb_table_file file;
    struct eb_progress_bar bar;
    struct eb_file_digest_progress progress = {advance_bar, &bar};
    char *path = eb_directory_join(directory, name, failure);
    if (!path) {
        return false;
    }
    bool is_good = eb_table_file_open(path, &file, failure);
    if (is_good) {
        bool is_packed = eb_file_name_parse(name).kind == EB_FILE_PACKED;
        eb_progress_bar_init(&bar, path, is_packed && !is_checked ? 0 : file.bytes);
        *out = (struct eb_manifest_file){.name = name, .bytes = file.bytes};
        is_good =
            eb_file_digest_read(&file, is_packed, is_checked, &progress, &out->digest, failure);
        eb_progress_bar_end(&bar);
        eb_table_file_close(&file);
        is_good = is_good && check_unchanged(path, &file, failure);
    }
    is_good = is_good || eb_failure_locate(failure, path);
    free(path);
    return is_good;
}

/* Describes all table files of the listing. The list, which the caller frees, borrows its names. */
static bool describe_all(const char *directory, const struct eb_directory *listing,
    struct eb_manifest *manifest, struct eb_failure *failure)
{
    *manifest = (struct eb_manifest){.files = calloc(listing->count + 1, sizeof *manifest->files)};
    bool is_good = manifest->files || eb_failure_set(failure, "out of memory");
    for (size_t i = 0; i < listing->count && is_good; i++) {
        char *name = listing->entries[i]->d_name;
        if (eb_file_name_parse(name).kind != EB_FILE_OTHER) {
            is_good = describe_listed(
                directory, name, false, &manifest->files[manifest->count++], failure);
        }
    }
    if (is_good && manifest->count == 0) {
        is_good = eb_failure_set(failure,
            "%s: it has no table files; give the directory of one version, MODEL/VERSION",
            directory);
    }
    return is_good;
}

/* ---- writing ---- */

static bool fail_write(const char *path, struct eb_failure *failure)
{
    eb_failure_set(failure, "%s: it cannot be written (%s)", path, strerror(errno));
    return false;
}

/* Writes the text to the new file and to the disk. */
static bool write_new(
    const char *path, const char *text, size_t text_bytes, struct eb_failure *failure)
{
    FILE *file = fopen(path, "we");
    if (!file) {
        return fail_write(path, failure);
    }
    bool is_good = fwrite(text, 1, text_bytes, file) == text_bytes && fflush(file) == 0 &&
                   fsync(fileno(file)) == 0;
    is_good = is_good || fail_write(path, failure);
    if (fclose(file) != 0 && is_good) {
        is_good = fail_write(path, failure);
    }
    return is_good;
}

/* Writes the text to a new file, and renames that to the manifest. */
static bool replace_manifest(
    const char *directory, const char *text, size_t text_bytes, struct eb_failure *failure)
{
    char *new_path = eb_directory_join(directory, NEW_NAME, failure);
    char *path = new_path ? eb_directory_join(directory, EB_MANIFEST_NAME, failure) : NULL;
    bool is_good = path && write_new(new_path, text, text_bytes, failure);
    if (is_good && rename(new_path, path) != 0) {
        is_good = fail_write(path, failure);
    }
    if (new_path && !is_good) {
        (void)unlink(new_path);
    }
    free(path);
    free(new_path);
    return is_good;
}

static bool write_manifest(
    const char *directory, const struct eb_directory *listing, struct eb_failure *failure)
{
    struct eb_manifest manifest;
    size_t text_bytes = 0;
    char *text = NULL;
    bool is_good = describe_all(directory, listing, &manifest, failure);
    if (is_good) {
        text = eb_manifest_write(&manifest, &text_bytes, failure);
        is_good = text && replace_manifest(directory, text, text_bytes, failure);
    }
    if (is_good) {
        printf("%s/%s: %zu files\n", directory, EB_MANIFEST_NAME, manifest.count);
    }
    free(text);
    free(manifest.files);
    return is_good;
}

/* ---- checking ---- */

/* Prints how a file differs from its entry. Returns whether it does not. */
static bool compare_listed(const char *directory, const struct eb_manifest_file *listed)
{
    struct eb_failure failure;
    struct eb_manifest_file found;
    if (!describe_listed(directory, listed->name, true, &found, &failure)) {
        fprintf(stderr, "embag: %s\n", failure.text);
        return false;
    }
    if (found.bytes != listed->bytes) {
        fprintf(stderr,
            "embag: %s/%s: it has %" PRIu64 " bytes, but the manifest lists %" PRIu64 "\n",
            directory, listed->name, found.bytes, listed->bytes);
        return false;
    }
    if (found.digest != listed->digest) {
        fprintf(stderr,
            "embag: %s/%s: its digest is %016" PRIx64 ", but the manifest lists %016" PRIx64 "\n",
            directory, listed->name, found.digest, listed->digest);
        return false;
    }
    return true;
}

/* Reads the manifest of the directory. */
static bool read_manifest(
    const char *directory, struct eb_manifest *manifest, struct eb_failure *failure)
{
    struct eb_table_file file;
    *manifest = (struct eb_manifest){0};
    char *path = eb_directory_join(directory, EB_MANIFEST_NAME, failure);
    if (!path) {
        return false;
    }
    bool is_good = eb_table_file_open(path, &file, failure);
    if (is_good) {
        is_good = eb_manifest_read(&file, manifest, failure);
        eb_table_file_close(&file);
    }
    is_good = is_good || eb_failure_locate(failure, path);
    free(path);
    return is_good;
}

/* Compares the directory with its manifest. Sets *is_same, and prints each difference. */
static bool check_manifest(const char *directory, const struct eb_directory *listing, bool *is_same,
    struct eb_failure *failure)
{
    struct eb_manifest manifest;
    if (!read_manifest(directory, &manifest, failure)) {
        return false;
    }
    *is_same = true;
    for (size_t i = 0; i < manifest.count; i++) {
        *is_same &= compare_listed(directory, &manifest.files[i]);
    }
    for (size_t i = 0; i < listing->count; i++) {
        const char *name = listing->entries[i]->d_name;
        if (eb_file_name_parse(name).kind != EB_FILE_OTHER && !eb_manifest_find(&manifest, name)) {
            fprintf(stderr, "embag: %s/%s: the manifest does not list it\n", directory, name);
            *is_same = false;
        }
    }
    if (*is_same) {
        printf("%s: %zu files are as the manifest lists them\n", directory, manifest.count);
    }
    eb_manifest_deinit(&manifest);
    return true;
}

int eb_manifest_command_main(int argument_count, char **arguments)
{
    struct options options = {0};
    switch (eb_arguments_read(&command, argument_count, arguments, &options)) {
    case EB_ARGUMENTS_READ: break;
    case EB_ARGUMENTS_HELP: return 0;
    case EB_ARGUMENTS_WRONG: return 2;
    }
    const char *directory = options.directory;
    struct eb_failure failure;
    struct eb_directory listing;
    bool is_same = true;
    bool is_good = eb_directory_read(directory, &listing, &failure);
    if (is_good) {
        is_good = options.is_check ? check_manifest(directory, &listing, &is_same, &failure)
                                   : write_manifest(directory, &listing, &failure);
        eb_directory_deinit(&listing);
    }
    if (!is_good) {
        fprintf(stderr, "embag: %s\n", failure.text);
    }
    return is_good && is_same ? 0 : 1;
}
