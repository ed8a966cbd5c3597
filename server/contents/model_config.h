/* MODEL/model.yaml: how a model's tables are stored and answer, which features and groups it has,
 * which of its versions are kept and served.
 *
 *   tables:                   # any number of them, in any order; all keys but `name` are optional
 *     - name: user_id         # as in every version
 *       source: emb.0.weight  # what the files call it; absent: `name`
 *       format: fbgemm_int8   # u8 rows of codes with their scales (EB_MODEL_FORMAT_LIST)
 *       dim: 16               # values of such a row; torchrec_ formats need it
 *       storage: int8         # f32 f16 bf16 f8_e4m3 f8_e5m2 int8 int4 int2; absent: the file's
 *       missing: skip         # error skip zero unknown_row, where a request says nothing
 *       default_index: 0      # fills empty bags where a request says nothing: a row or, for
 *                             # zeros, -1; of a keyed table a key, so that -1 is one too
 *       unknown_row: 0        # the row for unknown ids
 *   features:
 *     - name: last_clicks
 *       table: item_id
 *       reduction: mean       # sum mean weighted_mean sqrtn max min none
 *       missing: zero
 *       default_index: 7
 *       id_map: hash_modulo   # or none, modulo (of signed ids: 2^64 - 1 is -1, the last row)
 *       seed: 42              # of hash_modulo
 *       max_ids: 50           # of one bag
 *   groups:
 *     - {name: ranking, features: [last_clicks]}
 *   versions: {keep: 2, keep_s: 600, serve: highest, labels: [{name: stable, version: 7}]}
 *   only: ["embedding_bags.*"]  # patterns of what the files call tables: those that are loaded,
 *   exclude: ["*.momentum"]     # but for these; absent or empty: every table is
 *
 * Patterns are those of fnmatch(3), without flags. A table that is both described and left out by
 * the patterns is refused. Names are good names (name.h); words may be written in
 * capitals. Unknown keys, aliases, NULs and a second document are refused. What can be told from
 * the file alone is checked here: numbers, names, duplicates, features of groups. What needs the
 * tables is checked when a version is loaded. Thread: any one. Memory: what a configuration points
 * to is on the heap and its own. */
#pragma once

#include "kernels/bag.h"
#include "server/base/failure.h"

#include <stddef.h>

/* Caps: what is larger is another file. 64 KiB hold some 800 tables. */
#define EB_MODEL_CONFIG_BYTES_MAX (4 << 20)
#define EB_MODEL_CONFIG_TABLES_MAX 65536
#define EB_MODEL_CONFIG_FEATURES_MAX 65536
#define EB_MODEL_CONFIG_GROUPS_MAX 4096
#define EB_MODEL_CONFIG_GROUP_FEATURES_MAX 4096 /* features of one group */
#define EB_MODEL_CONFIG_LABELS_MAX 64
/* Matching takes time in proportion to the bytes of all patterns times the bytes of all names that
 * are matched, on the thread that loads. Names of tensors may be 100 MB together. */
#define EB_MODEL_CONFIG_PATTERNS_MAX 64 /* of only, and of exclude */
#define EB_MODEL_CONFIG_PATTERN_BYTES_MAX 255
#define EB_MODEL_CONFIG_KEEP_MAX 64
#define EB_MODEL_CONFIG_KEEP_S_MAX (366 * 86400)

/* X(NAME, text, STORAGE, LAYOUT): formats in which a tensor of u8 rows holds, instead of values,
 * codes of this storage in this layout of kernels/fused_row.h. */
#define EB_MODEL_FORMAT_LIST(X)                                                                    \
    X(FBGEMM_INT8, "fbgemm_int8", INT8, F32_LAST)                                                  \
    X(FBGEMM_INT4, "fbgemm_int4", INT4, F16_LAST)                                                  \
    X(FBGEMM_INT2, "fbgemm_int2", INT2, F16_LAST)                                                  \
    X(FBGEMM_INT8_F16, "fbgemm_int8_f16", INT8, F16_LAST)                                          \
    X(TORCHREC_INT8, "torchrec_int8", INT8, F16_FIRST)                                             \
    X(TORCHREC_INT4, "torchrec_int4", INT4, F16_FIRST)                                             \
    X(TORCHREC_INT2, "torchrec_int2", INT2, F16_FIRST)

#define X(name, text, storage, layout) EB_MODEL_FORMAT_##name,
enum eb_model_format {
    EB_MODEL_FORMAT_VALUES, /* what the file says it is */
    EB_MODEL_FORMAT_LIST(X) EB_MODEL_FORMAT_COUNT
};
#undef X

/* The first member of these is the name. */
struct eb_model_config_table {
    char *name;
    char *source; /* what its files call it; never NULL */
    enum eb_model_format format;
    uint32_t dim;            /* values of a row of such a format; 0: as many as its codes fill,
                                which rows of TORCHREC_ never say */
    enum eb_storage storage; /* UNSPECIFIED: as it is in the file */
    enum eb_missing missing; /* UNSPECIFIED: not said */
    bool has_default;
    int64_t default_index; /* a row, or -1: zeros; of a keyed table a key, whichever number it is */
    int64_t unknown_row;   /* -1: none */
};

struct eb_model_config_feature {
    char *name;
    char *table;
    enum eb_reduction reduction; /* UNSPECIFIED: not said */
    enum eb_missing missing;     /* UNSPECIFIED: the table's */
    bool has_default;            /* otherwise the table's */
    int64_t default_index;
    struct eb_id_map id_map;
    uint64_t max_ids; /* of one bag; 0: not bounded */
};

struct eb_model_config_group {
    char *name;
    size_t feature_count;
    size_t *features; /* in eb_model_config.features */
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
    uint32_t name_bytes_max; /* as it was read with: patterns match no longer name */
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
    uint32_t keep;                        /* versions resident at once, the served one too; >= 1 */
    uint32_t keep_s;                      /* that a version stays which was served */
    uint64_t serve;                       /* 0: the highest that loads */
};

/* What holds without a file: nothing is said, two versions, 600 s, the highest. */
void eb_model_config_init(struct eb_model_config *config);
/* Reads the file at `path`; where none is, as init. Names have at most name_bytes_max bytes. false:
 * *failure names the file, the place in it ("tables[2].storage", counted from 0), the value and
 * what is allowed; *config is as init. */
bool eb_model_config_read(const char *path, uint32_t name_bytes_max, struct eb_model_config *config,
    struct eb_failure *failure);
/* The same of bytes in memory. *failure does not name the file. */
bool eb_model_config_parse(const uint8_t *yaml, size_t yaml_bytes, uint32_t name_bytes_max,
    struct eb_model_config *config, struct eb_failure *failure);
/* Accepts a zeroed configuration. */
void eb_model_config_deinit(struct eb_model_config *config);

/* Whether a pattern of only or exclude matches what the files call `source`. It matches no name
 * that is longer than name_bytes_max, which could not be served. */
bool eb_model_config_matches(
    const struct eb_model_config *config, const char *pattern, const char *source);
/* Whether what the files call `source` is to be a table. */
bool eb_model_config_selects(const struct eb_model_config *config, const char *source);

/* Returns whether tables, the patterns that choose them, features and groups are the same in both:
 * what versions in memory are made of. Versions and labels may differ. */
bool eb_model_config_is_alike(const struct eb_model_config *a, const struct eb_model_config *b);

/* NULL: none of that name. */
const struct eb_model_config_table *eb_model_config_find_table(
    const struct eb_model_config *config, const char *name);
const struct eb_model_config_feature *eb_model_config_find_feature(
    const struct eb_model_config *config, const char *name);
const struct eb_model_config_group *eb_model_config_find_group(
    const struct eb_model_config *config, const char *name);
