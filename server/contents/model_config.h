/* MODEL/model.yaml: how a model's tables are stored and looked up, which features and groups it
 * has, and which of its versions are kept and served.
 *
 *   tables:                   # any number of them, in any order; all keys but `name` are optional
 *     - name: user_id         # as in every version
 *       source: emb.0.weight  # its name in the files; `name` if absent
 *       format: fbgemm_int8   # u8 rows of codes with their scales (EB_MODEL_FORMAT_LIST)
 *       dim: 16               # values of such a row; torchrec_ formats need it
 *       scales: emb.0.qscale  # for formats of EB_MODEL_CODES_LIST: the tensors in the files with
 *       biases: emb.0.qbias   # the scale and the bias of each row; no biases: all 0
 *       storage: int8         # f32 f16 bf16 f8_e4m3 f8_e5m2 int8 int4 int2; absent: as in file
 *       missing: skip         # error skip zero unknown_row; for requests that do not set it
 *       default_index: 0      # fills empty bags if the request has no default_index: a row, or -1
 *                             # for zeros; in a keyed table a key, and -1 is a key like any other
 *       unknown_row: 0        # the row for unknown ids, or default_vector
 *       default_vector: [0.1] # instead of default_index: the values of T that fill empty bags, one
 *                             # for each element of a row, or one for all
 *   features:
 *     - name: last_clicks
 *       table: item_id
 *       reduction: mean       # sum mean weighted_mean sqrtn max min none
 *       missing: zero
 *       default_index: 7
 *       id_map: hash_modulo   # or none, or modulo (ids are signed: 2^64 - 1 is -1, the last row)
 *       seed: 42              # of hash_modulo
 *       max_ids: 50           # most ids of one bag
 *   groups:
 *     - {name: ranking, features: [last_clicks]}
 *   versions: {keep: 2, keep_s: 600, serve: highest, labels: [{name: stable, version: 7}]}
 *   require_manifest: true      # versions without a manifest.yaml (manifest.h) do not exist yet
 *   only: ["embedding_bags.*"]  # patterns for names in the files: only these tables are loaded,
 *   exclude: ["*.momentum"]     # except these; every table is loaded if both are absent or empty
 *
 * Patterns are those of fnmatch(3), without flags. A table that is described but left out by the
 * patterns is refused. Names are valid names (name.h). Words may be written in capitals. Unknown
 * keys, aliases, NULs and a second document are refused. The file alone is checked here: numbers,
 * names, duplicates, features of groups. Checks that need the tables are made when a version is
 * loaded.
 *
 * Thread: any one. Memory: the texts and arrays of a configuration are on the heap; it owns
 * them. */
#pragma once

#include "kernels/bag.h"
#include "server/base/failure.h"

#include <stddef.h>

/* Limits. A file that exceeds one of them is refused. 64 KiB hold some 800 tables. */
#define EB_MODEL_CONFIG_BYTES_MAX (4 << 20)
#define EB_MODEL_CONFIG_TABLES_MAX 65536
#define EB_MODEL_CONFIG_FEATURES_MAX 65536
#define EB_MODEL_CONFIG_GROUPS_MAX 4096
#define EB_MODEL_CONFIG_GROUP_FEATURES_MAX 4096 /* most features of one group */
#define EB_MODEL_CONFIG_LABELS_MAX 64
#define EB_MODEL_CONFIG_VECTOR_MAX 65536 /* most values of one default_vector */
/* Limits on patterns. Matching takes time in proportion to the bytes of all patterns times the
 * bytes of all names, on the thread that loads. The names of one file's tensors may
 * add up to 100 MB. */
#define EB_MODEL_CONFIG_PATTERNS_MAX 64 /* most patterns of `only`, and most of `exclude` */
#define EB_MODEL_CONFIG_PATTERN_BYTES_MAX 255u
#define EB_MODEL_CONFIG_KEEP_MAX 64
#define EB_MODEL_CONFIG_KEEP_S_MAX (366 * 86400)

/* X(NAME, text, STORAGE, LAYOUT): formats of tensors whose u8 rows hold codes instead of values.
 * The codes have the storage STORAGE, and the rows have the layout LAYOUT of
 * kernels/fused_row.h. */
#define EB_MODEL_FORMAT_LIST(X)                                                                    \
    X(FBGEMM_INT8, "fbgemm_int8", INT8, F32_LAST)                                                  \
    X(FBGEMM_INT4, "fbgemm_int4", INT4, F16_LAST)                                                  \
    X(FBGEMM_INT2, "fbgemm_int2", INT2, F16_LAST)                                                  \
    X(FBGEMM_INT8_F16, "fbgemm_int8_f16", INT8, F16_LAST)                                          \
    X(TORCHREC_INT8, "torchrec_int8", INT8, F16_FIRST)                                             \
    X(TORCHREC_INT4, "torchrec_int4", INT4, F16_FIRST)                                             \
    X(TORCHREC_INT2, "torchrec_int2", INT2, F16_FIRST)

/* X(NAME, text, STORAGE): formats of tensors whose u8 rows hold only codes. The scales and biases
 * of the rows are in separate tensors. */
#define EB_MODEL_CODES_LIST(X)                                                                     \
    X(CODES_INT8, "codes_int8", INT8)                                                              \
    X(CODES_INT4, "codes_int4", INT4)                                                              \
    X(CODES_INT2, "codes_int2", INT2)

#define X(name, ...) EB_MODEL_FORMAT_##name,
enum eb_model_format {
    EB_MODEL_FORMAT_VALUES, /* values, as described in the file's header */
    EB_MODEL_FORMAT_LIST(X) EB_MODEL_CODES_LIST(X) EB_MODEL_FORMAT_COUNT
};
#undef X

/* Returns whether rows of this format hold only codes. */
static inline bool eb_model_format_is_codes(enum eb_model_format format)
{
    return format >= EB_MODEL_FORMAT_CODES_INT8 && format < EB_MODEL_FORMAT_COUNT;
}

/* The name must be the first member of each of the next four structs. */
struct eb_model_config_table {
    char *name;
    char *source; /* the table's name in the files; never NULL */
    enum eb_model_format format;
    uint32_t dim; /* number of values in a row of codes; 0 means as many as fill the row. The
                     formats TORCHREC_... need it, because their rows may be padded */
    char *scales; /* name of the tensor in the files with the scales of rows that hold only codes;
                     NULL for other formats */
    char *biases; /* the same for their biases; NULL if all biases are 0 */
    enum eb_storage storage; /* UNSPECIFIED means the storage in the file */
    enum eb_missing missing; /* UNSPECIFIED if not given */
    bool has_default;
    int64_t default_index;  /* a row, or -1 for zeros; in a keyed table, any key */
    int64_t unknown_row;    /* row for unknown ids; -1 if there is none */
    size_t vector_count;    /* number of values of default_vector; 0 if not given */
    char **vector;          /* [vector_count] finite decimal numbers */
    bool unknown_is_vector; /* default_vector takes the place of unknown ids' rows */
};

struct eb_model_config_feature {
    char *name;
    char *table;
    enum eb_reduction reduction; /* UNSPECIFIED if not given */
    enum eb_missing missing;     /* UNSPECIFIED means the table's setting */
    bool has_default;            /* default_index is given; otherwise the table's default applies */
    int64_t default_index;
    struct eb_id_map id_map;
    uint64_t max_ids; /* most ids of one bag; 0 means no limit */
};

struct eb_model_config_group {
    char *name;
    size_t feature_count;
    size_t *features; /* the group's features, as indices in eb_model_config.features */
};

struct eb_model_config_label {
    char *name;
    uint64_t version;
};

struct eb_model_config_patterns {
    size_t count;
    char **texts;
};

struct eb_model_config {
    char *text;                /* the YAML text, NUL-terminated; NULL if there was no file */
    uint32_t name_bytes_max;   /* most bytes of a name in this configuration; no pattern matches a
                                  longer name */
    bool is_manifest_required; /* a directory without a manifest is not a version */
    struct eb_model_config_patterns only;
    struct eb_model_config_patterns exclude;
    size_t table_count;
    struct eb_model_config_table *tables; /* sorted by name, like features and groups */
    size_t feature_count;
    struct eb_model_config_feature *features;
    size_t group_count;
    struct eb_model_config_group *groups;
    size_t label_count;
    struct eb_model_config_label *labels; /* sorted by name */
    uint32_t keep;   /* resident versions, including the served one; at least 1 */
    uint32_t keep_s; /* seconds for which a version stays in memory after it was served */
    uint64_t serve;  /* version to serve; 0 means the highest that loads */
};

/* Sets the configuration of a model without a file: describes no tables, keeps two versions, keeps
 * each for 600 s, and serves the highest version. */
void eb_model_config_init(struct eb_model_config *config);
/* Reads the file at `path`. If there is none, does the same as eb_model_config_init. Names may have
 * at most name_bytes_max bytes. If the file is not valid, returns false with *config as
 * eb_model_config_init sets it: *failure names the file, the position in it ("tables[2].storage",
 * counted from 0), the value and what is allowed. */
bool eb_model_config_read(const char *path, uint32_t name_bytes_max, struct eb_model_config *config,
    struct eb_failure *failure);
/* Does the same as eb_model_config_read for bytes in memory. *failure does not name a file; it is
 * transient if out of memory. */
bool eb_model_config_parse(const uint8_t *yaml, size_t yaml_bytes, uint32_t name_bytes_max,
    struct eb_model_config *config, struct eb_failure *failure);
/* Accepts a zeroed configuration. */
void eb_model_config_deinit(struct eb_model_config *config);

/* Returns whether `pattern`, one of `only` or `exclude`, matches `source`, a table's name in the
 * files. A name longer than name_bytes_max matches no pattern, because it could not be served. */
bool eb_model_config_matches(
    const struct eb_model_config *config, const char *pattern, const char *source);
/* Returns whether the patterns choose `source`, a table's name in the files. */
bool eb_model_config_selects(const struct eb_model_config *config, const char *source);

/* Return the entry called `name`, or NULL if there is none. */
const struct eb_model_config_table *eb_model_config_find_table(
    const struct eb_model_config *config, const char *name);
const struct eb_model_config_feature *eb_model_config_find_feature(
    const struct eb_model_config *config, const char *name);
const struct eb_model_config_group *eb_model_config_find_group(
    const struct eb_model_config *config, const char *name);
