/* The .proto files of this server's services as descriptors, which the build makes from them.
 * Thread: pure. Memory: constants. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Most files that one answer can have. A test checks that there are fewer. */
#define EB_SCHEMA_FILES_MAX 32

/* Serialised google.protobuf.FileDescriptorProtos. */
struct eb_schema_files {
    size_t count;
    struct eb_schema_file {
        const uint8_t *bytes;
        size_t size;
    } files[EB_SCHEMA_FILES_MAX];
};

/* Sets *out to the file of that name, such as "embag/v1/model_admin.proto", followed by all files
 * that it imports, directly or not. Returns false if there is no such file. */
bool eb_schema_find_file(const char *name, struct eb_schema_files *out);
/* Does the same as eb_schema_find_file for the file that defines a service, method, message, field,
 * enum or enum value, by its full name, such as "embag.v1.EmbeddingBag.Lookup". */
bool eb_schema_find_symbol(const char *symbol, struct eb_schema_files *out);
/* Returns whether there is a message of that full name. */
bool eb_schema_has_message(const char *name);
