#include "proto/schema.h"

#include "proto/field_reader.h"

#include <string.h>

/* Made by the build: a google.protobuf.FileDescriptorSet. */
extern const uint8_t eb_schema_descriptors[];
extern const size_t eb_schema_descriptors_bytes;

/* Field numbers of google/protobuf/descriptor.proto, of which there is no generated code here. */
enum {
    SET_FILE = 1,
    FILE_NAME = 1,
    FILE_PACKAGE = 2,
    FILE_DEPENDENCY = 3,
    FILE_MESSAGE = 4,
    FILE_ENUM = 5,
    FILE_SERVICE = 6,
    MESSAGE_FIELD = 2,
    MESSAGE_MESSAGE = 3,
    MESSAGE_ENUM = 4,
    MESSAGE_ONEOF = 8,
    ENUM_VALUE = 2,
    SERVICE_METHOD = 2,
    NAME = 1 /* of everything else that has one */
};

enum scope { SCOPE_NONE, SCOPE_FILE, SCOPE_MESSAGE, SCOPE_ENUM, SCOPE_SERVICE };

/* What has a name within what. */
static const struct rule {
    enum scope outer;
    uint32_t number;
    enum scope inner;
} rules[] = {
    {SCOPE_FILE, FILE_MESSAGE, SCOPE_MESSAGE},
    {SCOPE_FILE, FILE_ENUM, SCOPE_ENUM},
    {SCOPE_FILE, FILE_SERVICE, SCOPE_SERVICE},
    {SCOPE_MESSAGE, MESSAGE_FIELD, SCOPE_NONE},
    {SCOPE_MESSAGE, MESSAGE_MESSAGE, SCOPE_MESSAGE},
    {SCOPE_MESSAGE, MESSAGE_ENUM, SCOPE_ENUM},
    {SCOPE_MESSAGE, MESSAGE_ONEOF, SCOPE_NONE},
    {SCOPE_SERVICE, SERVICE_METHOD, SCOPE_NONE},
};

/* A piece of a text. */
struct word {
    const char *begin;
    size_t size;
};

/* Something that has a name, or nothing. */
struct place {
    bool is_found;
    enum scope scope;
    struct eb_field_reader body;
};

static struct eb_field_reader all_files(void)
{
    return eb_field_reader_of(eb_schema_descriptors, eb_schema_descriptors_bytes);
}

static bool is_schema_word(struct eb_field_reader text, struct word word)
{
    return word.size > 0 && eb_field_reader_bytes(&text) == word.size &&
           memcmp(text.at, word.begin, word.size) == 0;
}

/* The first field of that number, empty where there is none. */
static struct eb_field_reader find_schema_field(struct eb_field_reader body, uint32_t number)
{
    struct eb_field field;
    while (eb_field_reader_next(&body, &field)) {
        if (field.number == number) {
            return field.data;
        }
    }
    return (struct eb_field_reader){0};
}

/* The names of an enum's values stand beside its own. */
static bool has_value(struct eb_field_reader body, struct word name)
{
    struct eb_field field;
    while (eb_field_reader_next(&body, &field)) {
        if (field.number == ENUM_VALUE &&
            is_schema_word(find_schema_field(field.data, NAME), name)) {
            return true;
        }
    }
    return false;
}

static const struct rule *find_rule(enum scope outer, uint32_t number)
{
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        if (rules[i].outer == outer && rules[i].number == number) {
            return &rules[i];
        }
    }
    return NULL;
}

static struct place find_inner(struct place outer, struct word name)
{
    struct eb_field field;
    while (eb_field_reader_next(&outer.body, &field)) {
        const struct rule *rule = find_rule(outer.scope, field.number);
        if (rule && is_schema_word(find_schema_field(field.data, NAME), name)) {
            return (struct place){true, rule->inner, field.data};
        }
        if (rule && rule->inner == SCOPE_ENUM && has_value(field.data, name)) {
            return (struct place){.is_found = true};
        }
    }
    return (struct place){0};
}

/* What of a file has that full name. */
static struct place find_in_file(struct eb_field_reader file, const char *symbol)
{
    struct eb_field_reader package = find_schema_field(file, FILE_PACKAGE);
    size_t package_bytes = eb_field_reader_bytes(&package);
    struct place place = {true, SCOPE_FILE, file};
    if (package_bytes == 0 || strncmp(symbol, (const char *)package.at, package_bytes) != 0 ||
        symbol[package_bytes] != '.') {
        return (struct place){0};
    }
    for (const char *rest = symbol + package_bytes; place.is_found && *rest == '.';) {
        struct word name = {rest + 1, strcspn(rest + 1, ".")};
        place = find_inner(place, name);
        rest = name.begin + name.size;
    }
    return place;
}

static void add_symbol(struct eb_schema_files *files, struct eb_field_reader file)
{
    for (size_t i = 0; i < files->count; i++) {
        if (files->files[i].bytes == file.at) {
            return;
        }
    }
    if (files->count < EB_SCHEMA_FILES_MAX) {
        files->files[files->count++] =
            (struct eb_schema_file){file.at, eb_field_reader_bytes(&file)};
    }
}

static bool add_named(struct eb_schema_files *files, struct word name)
{
    struct eb_field_reader set = all_files();
    struct eb_field file;
    while (eb_field_reader_next(&set, &file)) {
        if (file.number == SET_FILE &&
            is_schema_word(find_schema_field(file.data, FILE_NAME), name)) {
            add_symbol(files, file.data);
            return true;
        }
    }
    return false;
}

/* Each file brings what it imports to the end of the list, once. */
static void add_imports(struct eb_schema_files *files)
{
    for (size_t i = 0; i < files->count; i++) {
        struct eb_field_reader body =
            eb_field_reader_of(files->files[i].bytes, files->files[i].size);
        struct eb_field field;
        while (eb_field_reader_next(&body, &field)) {
            if (field.number == FILE_DEPENDENCY) {
                (void)add_named(files,
                    (struct word){(const char *)field.data.at, eb_field_reader_bytes(&field.data)});
            }
        }
    }
}

bool eb_schema_find_file(const char *name, struct eb_schema_files *out)
{
    out->count = 0;
    bool is_found = add_named(out, (struct word){name, strlen(name)});
    add_imports(out);
    return is_found;
}

bool eb_schema_find_symbol(const char *symbol, struct eb_schema_files *out)
{
    struct eb_field_reader set = all_files();
    struct eb_field file;
    out->count = 0;
    while (out->count == 0 && eb_field_reader_next(&set, &file)) {
        if (file.number == SET_FILE && find_in_file(file.data, symbol).is_found) {
            add_symbol(out, file.data);
        }
    }
    add_imports(out);
    return out->count > 0;
}

bool eb_schema_has_message(const char *name)
{
    struct eb_field_reader set = all_files();
    struct eb_field file;
    while (eb_field_reader_next(&set, &file)) {
        struct place place = find_in_file(file.data, name);
        if (place.is_found && place.scope == SCOPE_MESSAGE) {
            return true;
        }
    }
    return false;
}
