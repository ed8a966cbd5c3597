/* The record of what a server serves: for each model, the versions in memory, the served one first,
 * with the text of model.yaml and the resident file of each table. A server that cannot read its
 * repository at start serves what the record names, and other processes on the machine do lookups
 * in the files that it names. The record is the file `served` of a resident directory. It is
 * replaced atomically after each publish, and before any file that it names is deleted.
 *
 * The file consists of one line, then JSON, whose size the line gives, and then perhaps zeros:
 *   embag served 1 BYTES DIGEST      DIGEST: XXH3-64 of the JSON, 16 hex digits
 *   {"models": [{"name": "ranking", "versions": [{"version": "8", "digest": "00112233445566ff",
 *     "is_complete": true, "model_yaml": "tables: ...", "tables": [
 *       {"name": "user_id", "file": "0123456789abcdef.t", "place": 0, "unknown_row": -1}]}]}]}
 * model_yaml is null if the model has none. unknown_row is the row for unknown ids, -1 if there is
 * none, or -2 if the table's default vector is used for them (EB_ROW_VECTOR). Unknown members are
 * ignored. The JSON has no white space outside texts: it is accepted only in the form in which
 * jansson writes it. `tables` lists the tables that are in files, sorted by name.
 *
 * A version in parts has more members: `manifest_yaml`, the text of its manifest, `parts`, their
 * number, and `part`, the one that the server has, from 0, or null at a router. Only the tables of
 * that part, or those placed everywhere, are then its tables. If the record has such a version, its
 * first line begins with "embag served 2", because a reader that does not know these members would
 * take a part of a table for the whole.
 * Thread: any. Memory: a parsed record is on the heap. */
#pragma once

#include "server/base/failure.h"
#include "server/formats/part_of.h"
#include "server/tables/resident_dir.h"

#include <stddef.h>
#include <stdint.h>

#define EB_SERVED_RECORD_NAME "served"
/* Largest record. A table takes some 100 bytes. */
#define EB_SERVED_RECORD_BYTES_MAX (UINT32_C(64) << 20)
#define EB_SERVED_RECORD_MODELS_MAX 65536u
#define EB_SERVED_RECORD_VERSIONS_MAX 1024u /* of one model */

struct eb_served_table {
    char *name;          /* in this version */
    int64_t unknown_row; /* as in struct eb_table */
    char file[EB_RESIDENT_NAME_BYTES];
    size_t slot; /* position of the table in the file's footer */
};

struct eb_served_version {
    uint64_t version;
    uint64_t digest;     /* of the version's content */
    bool is_complete;    /* all of its tables are in resident files, and listed */
    char *model_yaml;    /* text of the model's model.yaml; NULL if there was none */
    char *manifest_yaml; /* text of the manifest of a version in parts; NULL: it is in no parts */
    struct eb_part_choice part; /* set, like is_router, if the version is in parts */
    bool is_router;             /* a router has it; part.part is then 0 */
    size_t table_count;
    struct eb_served_table *tables;
};

struct eb_served_model {
    char *name;
    size_t version_count;
    struct eb_served_version *versions; /* the served version first */
};

struct eb_served_record {
    size_t model_count;
    struct eb_served_model *models;
};

/* Returns the record as the bytes of its file, which the caller frees. Returns NULL with *failure
 * set if out of memory, if a text is not UTF-8, or if the record exceeds a limit. */
void *eb_served_record_encode(
    const struct eb_served_record *record, size_t *size, struct eb_failure *failure);
/* Parses the bytes of such a file. Checks the digest, every limit, and that only zeros follow the
 * JSON. Returns false with *record empty and *failure set if the bytes are not valid. */
bool eb_served_record_parse(
    const void *bytes, size_t size, struct eb_served_record *record, struct eb_failure *failure);
/* Reads and parses the record of an open directory. Returns false with *record empty: *failure is
 * empty if the directory has no record, and otherwise has the reason. */
bool eb_served_record_read(
    const struct eb_resident_dir *dir, struct eb_served_record *record, struct eb_failure *failure);
/* Accepts a zeroed record. */
void eb_served_record_deinit(struct eb_served_record *record);
/* Returns the model of that name, or NULL. */
const struct eb_served_model *eb_served_record_find(
    const struct eb_served_record *record, const char *model);
