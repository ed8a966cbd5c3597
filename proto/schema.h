/* What the .proto files of this server's services say, as descriptors that the build has made of
 * them.
 * Thread: pure. Memory: constants. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EB_SCHEMA_FILES_MAX 32 /* that can be told apart; a test sees that there are no more */

/* Serialised google.protobuf.FileDescriptorProtos. */
struct eb_schema_files {
    size_t count;
    struct eb_schema_file {
        const uint8_t *bytes;
        size_t size;
    } files[EB_SCHEMA_FILES_MAX];
};

/* The file of that name, "embag/v1/model_admin.proto", first, then all that it imports, and what
 * those do. false: there is no such file. */
bool eb_schema_find_file(const char *name, struct eb_schema_files *out);
/* Likewise the file that defines a service, method, message, field, enum or value of one, by its
 * full name, "embag.v1.EmbeddingBag.Lookup". */
bool eb_schema_find_symbol(const char *symbol, struct eb_schema_files *out);
/* Whether there is a message of that full name. */
bool eb_schema_has_message(const char *name);
