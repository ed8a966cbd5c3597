#include "server/auth_file.h"

#include "proto/grpc_headers.h"
#include "server/base/yaml_load.h"
#include "server/formats/table_file.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALL_MODELS "*"

/* The file as libcyaml reads it: every scalar is a text, or NULL if the file does not have it. */
struct principal_texts {
    char *name;
    char *token_file;
    char *token_sha256;
    char *client_name;
    char *admin;
    char *router;
    char **models;
    uint32_t model_count;
};

struct auth_texts {
    struct principal_texts *principals;
    uint32_t principal_count;
    char *end;
};

static const cyaml_schema_field_t principal_fields[] = {
    EB_YAML_TEXT(principal_texts, name),
    EB_YAML_TEXT(principal_texts, token_file),
    EB_YAML_TEXT(principal_texts, token_sha256),
    EB_YAML_TEXT(principal_texts, client_name),
    EB_YAML_TEXT(principal_texts, admin),
    EB_YAML_TEXT(principal_texts, router),
    CYAML_FIELD_SEQUENCE_COUNT("models", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL,
        struct principal_texts, models, model_count, &eb_yaml_text, 0, EB_AUTH_MODELS_MAX),
    CYAML_FIELD_END,
};

static const cyaml_schema_value_t principal_schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct principal_texts, principal_fields)};

static const cyaml_schema_field_t auth_fields[] = {
    CYAML_FIELD_SEQUENCE_COUNT("principals", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL,
        struct auth_texts, principals, principal_count, &principal_schema, 0,
        EB_AUTH_PRINCIPALS_MAX),
    CYAML_FIELD_STRING_PTR("end", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, struct auth_texts, end,
        0, CYAML_UNLIMITED),
    CYAML_FIELD_END,
};

static const cyaml_schema_value_t auth_schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, struct auth_texts, auth_fields)};

/* ---- files ---- */

/* Reads a whole file of at most `bytes_max` bytes into memory on the heap, with a NUL after it.
 * Returns NULL with *failure set if that fails. */
static uint8_t *read_open_file(
    struct eb_table_file *file, size_t bytes_max, struct eb_failure *failure)
{
    if (file->bytes > bytes_max) {
        eb_failure_set(failure, "larger than %zu bytes, the maximum for this file", bytes_max);
        return NULL;
    }
    uint8_t *bytes = malloc(file->bytes + 1);
    if (!bytes) {
        eb_failure_set(failure, "out of memory");
        return NULL;
    }
    if (!eb_table_file_read(file, 0, bytes, file->bytes, failure)) {
        free(bytes);
        return NULL;
    }
    bytes[file->bytes] = '\0';
    return bytes;
}

/* Does the same with the file at a path, after adding it to `files`. */
static uint8_t *read_file(const char *path, size_t bytes_max, size_t *size,
    struct eb_file_list *files, struct eb_failure *failure)
{
    struct eb_table_file file;
    uint8_t *bytes = NULL;
    if (!eb_file_list_add(files, path)) {
        eb_failure_set(failure, "out of memory");
    } else if (eb_table_file_open(path, &file, failure)) {
        bytes = read_open_file(&file, bytes_max, failure);
        *size = file.bytes;
        eb_table_file_close(&file);
    }
    if (!bytes) {
        eb_failure_locate(failure, path);
    }
    return bytes;
}

/* ---- tokens ---- */

/* Returns whether this is a token that RFC 6750 allows in a header: visible characters, and neither
 * too short nor too long. */
static bool is_token(const uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] <= ' ' || bytes[i] > '~') {
            return false;
        }
    }
    return count >= EB_AUTH_TOKEN_BYTES_MIN && count <= EB_GRPC_TOKEN_BYTES_MAX;
}

/* Resolves a path. A relative one starts at the directory of the file that names it. */
static bool find_path(
    const char *from, const char *path, char out[PATH_MAX], struct eb_failure *failure)
{
    const char *slash = *path == '/' ? NULL : strrchr(from, '/');
    int folder_bytes = slash ? (int)(slash + 1 - from) : 0;
    int bytes = snprintf(out, PATH_MAX, "%.*s%s", folder_bytes, from, path);
    return (bytes > 0 && bytes < PATH_MAX) ||
           eb_failure_set(failure, "%.255s...: the path is too long", path);
}

static bool read_token(const char *path, struct eb_secret_digest *digest,
    struct eb_file_list *files, struct eb_failure *failure)
{
    size_t size;
    uint8_t *bytes = read_file(path, EB_GRPC_TOKEN_BYTES_MAX + 2, &size, files, failure);
    if (!bytes) {
        return false;
    }
    eb_secret_check_file(path);
    size_t count = size;
    while (count > 0 && (bytes[count - 1] == '\n' || bytes[count - 1] == '\r')) {
        count--;
    }
    bool is_good = is_token(bytes, count);
    if (is_good) {
        eb_secret_digest(bytes, count, digest);
    } else {
        eb_failure_set(failure,
            "%s: not a token; expected one line of %d to %d visible characters without spaces",
            path, EB_AUTH_TOKEN_BYTES_MIN, EB_GRPC_TOKEN_BYTES_MAX);
    }
    explicit_bzero(bytes, size);
    free(bytes);
    return is_good;
}

/* Returns the value of a hexadecimal digit, or -1 if it is not one. */
static int digit_value(char digit)
{
    static const char digits[] = "0123456789abcdef";
    const char *at = digit ? strchr(digits, digit | 0x20) : NULL;
    return at ? (int)(at - digits) : -1;
}

static bool read_digest(const char *text, struct eb_secret_digest *digest)
{
    for (size_t i = 0; i < EB_SECRET_DIGEST_BYTES; i++) {
        int high = digit_value(*text);
        int low = high < 0 ? -1 : digit_value(text[1]);
        if (low < 0) {
            return false;
        }
        digest->bytes[i] = (uint8_t)(16 * high + low);
        text += 2;
    }
    return *text == '\0';
}

/* ---- principals ---- */

/* The position of a principal that is being read. */
struct place {
    const char *file; /* path of the auth_file */
    struct eb_file_list *files;
    size_t index;
    struct eb_failure *failure;
};

/* Sets *failure. Always returns false. */
static bool refuse(const struct place *place, const char *what)
{
    return eb_failure_set(place->failure, "principals[%zu].%s", place->index, what);
}

static char *take(char **text)
{
    char *taken = *text;
    *text = NULL;
    return taken;
}

static bool read_credentials(
    const struct place *place, struct principal_texts *texts, struct eb_principal *out)
{
    out->has_token = texts->token_file || texts->token_sha256;
    out->client_name = take(&texts->client_name);
    if (texts->token_file && texts->token_sha256) {
        return refuse(place, "token_file: token_sha256 is given too; remove one of them");
    }
    if (!out->has_token && !out->client_name) {
        return refuse(place, "name: the principal cannot be authenticated; add token_file, "
                             "token_sha256 or client_name");
    }
    if (out->client_name && !*out->client_name) {
        return refuse(place, "client_name: is empty");
    }
    if (texts->token_sha256 && !read_digest(texts->token_sha256, &out->token)) {
        return refuse(place, "token_sha256: expected the 64 hexadecimal digits of a SHA-256");
    }
    char path[PATH_MAX];
    return !texts->token_file || (find_path(place->file, texts->token_file, path, place->failure) &&
                                     read_token(path, &out->token, place->files, place->failure));
}

/* Reads "true" or "false"; NULL stands for false. Returns false if the text is neither. */
static bool read_right(const char *text, bool *out)
{
    *out = text && strcmp(text, "true") == 0;
    return !text || *out || strcmp(text, "false") == 0;
}

static bool read_rights(
    const struct place *place, struct principal_texts *texts, struct eb_principal *out)
{
    if (!read_right(texts->admin, &out->is_admin)) {
        return refuse(place, "admin: expected true or false");
    }
    if (!read_right(texts->router, &out->is_router)) {
        return refuse(place, "router: expected true or false");
    }
    out->models = texts->models;
    out->model_count = texts->model_count;
    texts->models = NULL;
    texts->model_count = 0;
    for (size_t i = 0; i < out->model_count; i++) {
        bool is_all = strcmp(out->models[i], ALL_MODELS) == 0;
        out->has_all_models |= is_all;
        if (!*out->models[i] || (!is_all && strchr(out->models[i], '*'))) {
            return refuse(place, "models: a name is empty or contains a *; expected names, or * "
                                 "alone for all models");
        }
    }
    return true;
}

static bool is_alike(const struct eb_principal *a, const struct eb_principal *b, const char **what)
{
    *what = NULL;
    if (strcmp(a->name, b->name) == 0) {
        *what = "name: another principal has the same one";
    } else if (a->has_token && b->has_token && eb_secret_is_same(&a->token, &b->token)) {
        *what = "token: another principal has the same one";
    } else if (a->client_name && b->client_name && strcmp(a->client_name, b->client_name) == 0) {
        *what = "client_name: another principal has the same one";
    }
    return *what;
}

/* Reads the next principal of `auth`, which owns it even if it is refused. */
static bool read_principal(
    const struct place *from, struct eb_auth *auth, struct principal_texts *texts)
{
    struct place place = *from;
    place.index = auth->count;
    struct eb_principal *principal = &auth->principals[auth->count++];
    const char *what;
    principal->name = take(&texts->name);
    if (!principal->name || !*principal->name) {
        return refuse(&place, "name: is missing");
    }
    if (!read_credentials(&place, texts, principal) || !read_rights(&place, texts, principal)) {
        return false;
    }
    for (size_t i = 0; i < place.index; i++) {
        if (is_alike(&auth->principals[i], principal, &what)) {
            return refuse(&place, what);
        }
    }
    return true;
}

static bool fill(const struct place *from, struct eb_auth *auth, struct auth_texts *texts)
{
    if (!texts || texts->principal_count == 0) {
        return eb_failure_set(
            from->failure, "principals is empty, so nobody could call; add at least one");
    }
    auth->principals = calloc(texts->principal_count, sizeof *auth->principals);
    if (!auth->principals) {
        return eb_failure_set(from->failure, "out of memory");
    }
    for (size_t i = 0; i < texts->principal_count; i++) {
        if (!read_principal(from, auth, &texts->principals[i])) {
            return false;
        }
    }
    return true;
}

/* ---- the end ---- */

/* Returns whether the line begins with `end: true`, followed by nothing or by white space. */
static bool is_end_line(const char *line, size_t line_bytes)
{
    static const char key[] = "end:";
    static const char value[] = "true";
    size_t key_bytes = sizeof key - 1;
    size_t value_bytes = sizeof value - 1;
    if (line_bytes < key_bytes || memcmp(line, key, key_bytes) != 0) {
        return false;
    }
    size_t at = key_bytes;
    while (at < line_bytes && line[at] == ' ') {
        at++;
    }
    if (line_bytes - at < value_bytes || memcmp(line + at, value, value_bytes) != 0) {
        return false;
    }
    at += value_bytes;
    return at == line_bytes || line[at] == ' ' || line[at] == '\t' || line[at] == '\r';
}

/* Returns the last line that is neither blank nor a comment; *line_bytes is 0 if there is none.
 * libcyaml does not report the order of keys, so the text itself is searched. */
static const char *find_last_line(const char *text, size_t text_bytes, size_t *line_bytes)
{
    const char *last = text;
    *line_bytes = 0;
    for (const char *line = text; line < text + text_bytes;) {
        size_t rest_bytes = (size_t)(text + text_bytes - line);
        const char *newline = memchr(line, '\n', rest_bytes);
        size_t bytes = newline ? (size_t)(newline - line) : rest_bytes;
        size_t blank_bytes = strspn(line, " \t\r");
        if (blank_bytes < bytes && line[blank_bytes] != '#') {
            last = line;
            *line_bytes = bytes;
        }
        line += bytes + (newline ? 1 : 0);
    }
    return last;
}

/* Checks the key `end`, if present. It must be the last line; otherwise a truncated file could
 * contain it too. */
static bool read_end(const char *text, size_t text_bytes, const struct auth_texts *texts,
    struct eb_auth *auth, struct eb_failure *failure)
{
    auth->has_end = texts && texts->end;
    if (!auth->has_end) {
        return true;
    }
    if (strcmp(texts->end, "true") != 0) {
        return eb_failure_set(failure, "end: expected true");
    }
    size_t line_bytes;
    const char *line = find_last_line(text, text_bytes, &line_bytes);
    return is_end_line(line, line_bytes) ||
           eb_failure_set(
               failure, "end: expected \"end: true\" as the last line, without indentation");
}

/* Returns NULL with *failure set, without the path, if the file is not valid. */
static struct eb_auth *parse(const struct place *from, const uint8_t *yaml, size_t yaml_bytes)
{
    struct eb_failure *failure = from->failure;
    void *texts;
    if (!eb_yaml_load(yaml, yaml_bytes, &auth_schema, &texts, failure)) {
        return NULL;
    }
    struct eb_auth *auth = calloc(1, sizeof *auth);
    if (auth) {
        atomic_init(&auth->holds, 1);
    } else {
        eb_failure_set(failure, "out of memory");
    }
    if (auth && (!fill(from, auth, texts) ||
                    !read_end((const char *)yaml, yaml_bytes, texts, auth, failure))) {
        eb_auth_drop(auth);
        auth = NULL;
    }
    eb_yaml_free(&auth_schema, texts);
    return auth;
}

struct eb_auth *eb_auth_file_read(
    const char *path, struct eb_file_list *files, struct eb_failure *failure)
{
    struct place from = {.file = path, .files = files, .failure = failure};
    size_t size;
    uint8_t *yaml = read_file(path, EB_AUTH_FILE_BYTES_MAX, &size, files, failure);
    if (!yaml) {
        return NULL;
    }
    struct eb_auth *auth = parse(&from, yaml, size);
    free(yaml);
    if (!auth) {
        eb_failure_locate(failure, path);
    }
    return auth;
}
