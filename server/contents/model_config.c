#include "server/contents/model_config.h"

#include "server/base/name.h"
#include "server/base/yaml_load.h"
#include "server/formats/table_file.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define KEEP_DEFAULT 2
#define KEEP_S_DEFAULT 600
#define WORDS_BYTES 192 /* room for the reason why a value is refused, with all allowed words */

/* ---- the file as libcyaml reads it: every value is a text, or NULL if it is not given ----
 *
 * The texts come from malloc. Code that takes one out leaves NULL in its place. */

struct model_table_texts {
    char *name;
    char *source;
    char *format;
    char *dim;
    char *scales;
    char *biases;
    char *storage;
    char *missing;
    char *default_index;
    char *unknown_row;
    char **default_vector;
    uint32_t default_vector_count;
};

struct model_feature_texts {
    char *name;
    char *table;
    char *reduction;
    char *missing;
    char *default_index;
    char *id_map;
    char *seed;
    char *max_ids;
};

struct model_group_texts {
    char *name;
    char **features;
    uint32_t features_count;
};

struct model_label_texts {
    char *name;
    char *version;
};

struct model_version_texts {
    char *keep;
    char *keep_s;
    char *serve;
    struct model_label_texts *labels;
    uint32_t labels_count;
};

struct model_texts {
    struct model_table_texts *tables;
    uint32_t tables_count;
    struct model_feature_texts *features;
    uint32_t features_count;
    struct model_group_texts *groups;
    uint32_t groups_count;
    struct model_version_texts versions;
    char *require_manifest;
    char **only;
    uint32_t only_count;
    char **exclude;
    uint32_t exclude_count;
};

static const cyaml_schema_field_t table_fields[] = {
    EB_YAML_TEXT(model_table_texts, name),
    EB_YAML_TEXT(model_table_texts, source),
    EB_YAML_TEXT(model_table_texts, format),
    EB_YAML_TEXT(model_table_texts, dim),
    EB_YAML_TEXT(model_table_texts, scales),
    EB_YAML_TEXT(model_table_texts, biases),
    EB_YAML_TEXT(model_table_texts, storage),
    EB_YAML_TEXT(model_table_texts, missing),
    EB_YAML_TEXT(model_table_texts, default_index),
    EB_YAML_TEXT(model_table_texts, unknown_row),
    EB_YAML_LIST(model_table_texts, default_vector, eb_yaml_text, EB_MODEL_CONFIG_VECTOR_MAX),
    CYAML_FIELD_END,
};
static const cyaml_schema_value_t table_value = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct model_table_texts, table_fields)};

static const cyaml_schema_field_t feature_fields[] = {
    EB_YAML_TEXT(model_feature_texts, name),
    EB_YAML_TEXT(model_feature_texts, table),
    EB_YAML_TEXT(model_feature_texts, reduction),
    EB_YAML_TEXT(model_feature_texts, missing),
    EB_YAML_TEXT(model_feature_texts, default_index),
    EB_YAML_TEXT(model_feature_texts, id_map),
    EB_YAML_TEXT(model_feature_texts, seed),
    EB_YAML_TEXT(model_feature_texts, max_ids),
    CYAML_FIELD_END,
};
static const cyaml_schema_value_t feature_value = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct model_feature_texts, feature_fields)};

static const cyaml_schema_field_t group_fields[] = {
    EB_YAML_TEXT(model_group_texts, name),
    EB_YAML_LIST(model_group_texts, features, eb_yaml_text, EB_MODEL_CONFIG_GROUP_FEATURES_MAX),
    CYAML_FIELD_END,
};
static const cyaml_schema_value_t group_value = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct model_group_texts, group_fields)};

static const cyaml_schema_field_t label_fields[] = {
    EB_YAML_TEXT(model_label_texts, name),
    EB_YAML_TEXT(model_label_texts, version),
    CYAML_FIELD_END,
};
static const cyaml_schema_value_t label_value = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct model_label_texts, label_fields)};

static const cyaml_schema_field_t version_fields[] = {
    EB_YAML_TEXT(model_version_texts, keep),
    EB_YAML_TEXT(model_version_texts, keep_s),
    EB_YAML_TEXT(model_version_texts, serve),
    EB_YAML_LIST(model_version_texts, labels, label_value, EB_MODEL_CONFIG_LABELS_MAX),
    CYAML_FIELD_END,
};

static const cyaml_schema_field_t top_fields[] = {
    EB_YAML_LIST(model_texts, tables, table_value, EB_MODEL_CONFIG_TABLES_MAX),
    EB_YAML_LIST(model_texts, features, feature_value, EB_MODEL_CONFIG_FEATURES_MAX),
    EB_YAML_LIST(model_texts, groups, group_value, EB_MODEL_CONFIG_GROUPS_MAX),
    CYAML_FIELD_MAPPING(
        "versions", CYAML_FLAG_OPTIONAL, struct model_texts, versions, version_fields),
    EB_YAML_TEXT(model_texts, require_manifest),
    EB_YAML_LIST(model_texts, only, eb_yaml_text, EB_MODEL_CONFIG_PATTERNS_MAX),
    EB_YAML_LIST(model_texts, exclude, eb_yaml_text, EB_MODEL_CONFIG_PATTERNS_MAX),
    CYAML_FIELD_END,
};
static const cyaml_schema_value_t top_value = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, struct model_texts, top_fields)};

/* Parses the document. Sets *texts to its values, or to NULL if it is empty. Returns false if the
 * document is not valid: *failure says what is wrong and where. */
static bool load_texts(
    const uint8_t *yaml, size_t yaml_bytes, struct model_texts **texts, struct eb_failure *failure)
{
    void *values;
    bool is_good = eb_yaml_load(yaml, yaml_bytes, &top_value, &values, failure);
    *texts = values;
    return is_good;
}

/* Accepts NULL. */
static void free_texts(struct model_texts *texts)
{
    eb_yaml_free(&top_value, texts);
}

/* ---- words ---- */

struct word {
    const char *text;
    int value;
};

#define X(name, number, ...) {#name, EB_MISSING_##name},
static const struct word missing_words[] = {EB_MISSING_LIST(X){NULL, 0}};
#undef X
#define X(name, number, ...) {#name, EB_REDUCTION_##name},
static const struct word reduction_words[] = {EB_REDUCTION_LIST(X){NULL, 0}};
#undef X
#define X(name, text, ...) {text, EB_MODEL_FORMAT_##name},
static const struct word format_words[] = {EB_MODEL_FORMAT_LIST(X) EB_MODEL_CODES_LIST(X){NULL, 0}};
#undef X
#define X(name, text) {text, EB_ID_MAP_##name},
static const struct word id_map_words[] = {EB_ID_MAP_LIST(X){NULL, 0}};
#undef X
#define X(name, number, bits, text) {text, EB_STORAGE_##name},
static const struct word storage_words[] = {
    {"f32", EB_STORAGE_F32},
    {"f16", EB_STORAGE_F16},
    {"bf16", EB_STORAGE_BF16},
    EB_STORAGE_FP8_LIST(X) EB_STORAGE_CODE_LIST(X){NULL, 0},
};
#undef X

/* ---- from texts to values ---- */

/* The position of a value in the file. */
struct place {
    const char *list; /* name of the list, such as "tables"; NULL for a field of "versions" */
    size_t index;
    uint32_t name_bytes_max;
    struct eb_failure *failure;
};

/* Sets *failure for lack of memory, which is transient. Always returns false. */
static bool refuse_memory(struct eb_failure *failure)
{
    eb_failure_set(failure, "out of memory");
    return eb_failure_blame(failure, ENOMEM);
}

/* Sets *failure to a text such as "tables[2].storage: 'int7' WHY". Leaves out the value if it is
 * NULL. Always returns false. */
static bool refuse_config(
    const struct place *place, const char *field, const char *value, const char *why)
{
    char where[64];
    if (place->list) {
        snprintf(where, sizeof where, "%s[%zu]", place->list, place->index);
    } else {
        snprintf(where, sizeof where, "versions");
    }
    if (!value) {
        return eb_failure_set(place->failure, "%s.%s: %s", where, field, why);
    }
    return eb_failure_set(place->failure, "%s.%s: '%.64s' %s", where, field, value, why);
}

/* Returns *text, and sets it to NULL so that libcyaml does not free it. */
static char *take_config_text(char **text)
{
    char *taken = *text;
    *text = NULL;
    return taken;
}

/* Reads a required field that holds a name. Moves the text from *text to *name. */
static bool read_name(const struct place *place, const char *field, char **text, char **name)
{
    if (!*text) {
        return refuse_config(place, field, NULL, "is missing; every entry needs one");
    }
    const char *why = eb_name_error(*text, place->name_bytes_max);
    if (why) {
        return refuse_config(place, field, *text, why);
    }
    *name = take_config_text(text);
    return true;
}

/* Reads a word. `words` end with a NULL text. Leaves *value unchanged if `text` is NULL. */
static bool read_word(const struct place *place, const char *field, const char *text,
    const struct word *words, int *value)
{
    if (!text) {
        return true;
    }
    char why[WORDS_BYTES] = "is unknown; expected one of";
    size_t used = strlen(why);
    for (const struct word *word = words; word->text; word++) {
        if (strcasecmp(text, word->text) == 0) {
            *value = word->value;
            return true;
        }
        used += (size_t)snprintf(
            why + used, sizeof why - used, "%s %s", word == words ? "" : ",", word->text);
        assert(used < sizeof why);
    }
    for (char *at = why; *at; at++) {
        *at = (char)tolower((unsigned char)*at);
    }
    return refuse_config(place, field, text, why);
}

static bool is_config_number(const char *text, bool is_signed)
{
    const char *digits = text + (is_signed && text[0] == '-');
    return digits[0] != '\0' && digits[strspn(digits, "0123456789")] == '\0';
}

static bool read_config_count(const struct place *place, const char *field, const char *text,
    const uint64_t range[2], uint64_t *value)
{
    if (!text) {
        return true;
    }
    errno = 0;
    unsigned long long number = strtoull(text, NULL, 10);
    if (!is_config_number(text, false) || errno != 0 || number < range[0] || number > range[1]) {
        char why[WORDS_BYTES];
        snprintf(
            why, sizeof why, "is not a number from %" PRIu64 " to %" PRIu64, range[0], range[1]);
        return refuse_config(place, field, text, why);
    }
    *value = number;
    return true;
}

/* Reads a number. Sets *is_given if there is one. */
static bool read_config_index(
    const struct place *place, const char *field, const char *text, bool *is_given, int64_t *value)
{
    if (!text) {
        return true;
    }
    errno = 0;
    long long number = strtoll(text, NULL, 10);
    if (!is_config_number(text, true) || errno != 0) {
        return refuse_config(place, field, text, "is not a 64-bit integer");
    }
    *is_given = true;
    *value = number;
    return true;
}

/* Reads a row number or the word default_vector. */
static bool read_unknown_row(
    const struct place *place, const char *text, struct eb_model_config_table *table)
{
    static const uint64_t rows[2] = {0, INT64_MAX};
    uint64_t row = 0;
    table->unknown_row = -1;
    table->unknown_is_vector = text && strcasecmp(text, "default_vector") == 0;
    if (!text || table->unknown_is_vector) {
        return true;
    }
    if (!read_config_count(place, "unknown_row", text, rows, &row)) {
        return false;
    }
    table->unknown_row = (int64_t)row;
    return true;
}

static bool is_finite_number(const char *text)
{
    const char *digits = text + (text[0] == '-' || text[0] == '+');
    bool is_decimal = (isdigit((unsigned char)digits[0]) || digits[0] == '.') &&
                      digits[strcspn(digits, "xX")] == '\0';
    char *end;
    double value = strtod(text, &end);
    return is_decimal && *end == '\0' && isfinite(value);
}

/* Moves the texts of default_vector to the table. Must be called after read_unknown_row. */
static bool read_default_vector(
    const struct place *place, struct model_table_texts *texts, struct eb_model_config_table *table)
{
    size_t count = texts->default_vector_count;
    if (count > 0 && texts->default_index) {
        return refuse_config(place, "default_vector", NULL,
            "is given in addition to default_index; remove one of them");
    }
    if (count == 0 && table->unknown_is_vector) {
        return refuse_config(place, "unknown_row", texts->unknown_row,
            "requires a default_vector; add one, or give a row number");
    }
    for (size_t i = 0; i < count; i++) {
        if (!is_finite_number(texts->default_vector[i])) {
            char field[64];
            snprintf(field, sizeof field, "default_vector[%zu]", i);
            return refuse_config(
                place, field, texts->default_vector[i], "is not a finite decimal number");
        }
    }
    table->vector = texts->default_vector;
    table->vector_count = count;
    texts->default_vector = NULL;
    texts->default_vector_count = 0;
    return true;
}

static bool read_config_source(
    const struct place *place, struct model_table_texts *texts, struct eb_model_config_table *table)
{
    if (texts->source) {
        return read_name(place, "source", &texts->source, &table->source);
    }
    table->source = strdup(table->name);
    return table->source || refuse_memory(place->failure);
}

/* Returns whether the table has a `dim` or does not need one. Some formats need it, because their
 * padding looks like codes. */
static bool check_dim(const struct place *place, const struct eb_model_config_table *table)
{
    static const struct {
        const char *name;
        int per_byte; /* values in a byte; 0 if the format does not need dim */
    } formats[EB_MODEL_FORMAT_COUNT] = {
        [EB_MODEL_FORMAT_TORCHREC_INT8] = {"torchrec_int8", 1},
        [EB_MODEL_FORMAT_TORCHREC_INT4] = {"torchrec_int4", 2},
        [EB_MODEL_FORMAT_TORCHREC_INT2] = {"torchrec_int2", 4},
    };
    if (table->dim > 0 || formats[table->format].per_byte == 0) {
        return true;
    }
    char why[WORDS_BYTES];
    snprintf(why, sizeof why,
        "is missing but required, since rows of %s may end with padding; rows without padding have "
        "(bytes - 4) * %d values",
        formats[table->format].name, formats[table->format].per_byte);
    return refuse_config(place, "dim", NULL, why);
}

/* Reads the name of a tensor with a table's scales or biases, if there is one. */
static bool read_scales_name(const struct place *place, const char *field, char **text,
    const struct eb_model_config_table *table, char **name)
{
    if (*text && strcmp(*text, table->source) == 0) {
        return refuse_config(place, field, *text, "is also the source of the table");
    }
    return !*text || read_name(place, field, text, name);
}

/* Reads the names of the tensors with a table's scales and biases. Returns false if they do not fit
 * its format. */
static bool read_scales(
    const struct place *place, struct model_table_texts *texts, struct eb_model_config_table *table)
{
    const char *field = texts->scales ? "scales" : "biases";
    const char *given = texts->scales ? texts->scales : texts->biases;
    bool is_codes = eb_model_format_is_codes(table->format);
    if (given && table->format == EB_MODEL_FORMAT_VALUES) {
        return refuse_config(place, field, given,
            "requires format codes_int8, codes_int4 or codes_int2; fp8 and other values with "
            "scales are not supported: dequantise the table to F32 or BF16");
    }
    if (given && !is_codes) {
        return refuse_config(place, field, given,
            "is not possible with this format, since its rows contain scale and bias");
    }
    if (is_codes && !texts->scales) {
        return refuse_config(place, "scales", NULL,
            "is missing but required, since rows of this format hold only codes; name the tensor "
            "with the scale of each row");
    }
    if (is_codes && texts->biases && strcmp(texts->scales, texts->biases) == 0) {
        return refuse_config(place, "biases", texts->biases, "is also the tensor of the scales");
    }
    return read_scales_name(place, "scales", &texts->scales, table, &table->scales) &&
           read_scales_name(place, "biases", &texts->biases, table, &table->biases);
}

static bool read_table(
    const struct place *place, struct model_table_texts *texts, struct eb_model_config_table *table)
{
    static const uint64_t dims[2] = {1, UINT32_MAX};
    int format = 0;
    int storage = 0;
    int missing = 0;
    uint64_t dim = 0;
    bool is_good = read_name(place, "name", &texts->name, &table->name) &&
                   read_config_source(place, texts, table) &&
                   read_word(place, "format", texts->format, format_words, &format) &&
                   read_config_count(place, "dim", texts->dim, dims, &dim) &&
                   read_word(place, "storage", texts->storage, storage_words, &storage) &&
                   read_word(place, "missing", texts->missing, missing_words, &missing) &&
                   read_config_index(place, "default_index", texts->default_index,
                       &table->has_default, &table->default_index) &&
                   read_unknown_row(place, texts->unknown_row, table) &&
                   read_default_vector(place, texts, table);
    table->format = (enum eb_model_format)format;
    table->storage = (enum eb_storage)storage;
    table->missing = (enum eb_missing)missing;
    table->dim = (uint32_t)dim;
    if (is_good && dim > 0 && table->format == EB_MODEL_FORMAT_VALUES) {
        return refuse_config(place, "dim", texts->dim, "requires a format");
    }
    return is_good && check_dim(place, table) && read_scales(place, texts, table);
}

static bool read_feature(const struct place *place, struct model_feature_texts *texts,
    struct eb_model_config_feature *feature)
{
    static const uint64_t any[2] = {0, UINT64_MAX};
    static const uint64_t ids[2] = {1, EB_BAG_INDICES_MAX};
    int reduction = 0;
    int missing = 0;
    int id_map = EB_ID_MAP_NONE;
    bool is_good = read_name(place, "name", &texts->name, &feature->name) &&
                   read_name(place, "table", &texts->table, &feature->table) &&
                   read_word(place, "reduction", texts->reduction, reduction_words, &reduction) &&
                   read_word(place, "missing", texts->missing, missing_words, &missing) &&
                   read_config_index(place, "default_index", texts->default_index,
                       &feature->has_default, &feature->default_index) &&
                   read_word(place, "id_map", texts->id_map, id_map_words, &id_map) &&
                   read_config_count(place, "seed", texts->seed, any, &feature->id_map.seed) &&
                   read_config_count(place, "max_ids", texts->max_ids, ids, &feature->max_ids);
    feature->reduction = (enum eb_reduction)reduction;
    feature->missing = (enum eb_missing)missing;
    feature->id_map.kind = (enum eb_id_map_kind)id_map;
    if (is_good && texts->seed && feature->id_map.kind != EB_ID_MAP_HASH_MODULO) {
        return refuse_config(place, "seed", texts->seed, "requires id_map: hash_modulo");
    }
    return is_good;
}

static bool read_group_feature(const struct place *place, const struct eb_model_config *config,
    const char *name, size_t *feature)
{
    const struct eb_model_config_feature *found = eb_model_config_find_feature(config, name);
    if (!found) {
        return refuse_config(
            place, "features", name, "is not a feature; describe it under features");
    }
    *feature = (size_t)(found - config->features);
    return true;
}

static bool read_config_group(const struct place *place, const struct eb_model_config *config,
    struct model_group_texts *texts, struct eb_model_config_group *group)
{
    if (!read_name(place, "name", &texts->name, &group->name)) {
        return false;
    }
    if (texts->features_count == 0) {
        return refuse_config(
            place, "features", NULL, "is missing or empty; a group needs at least one");
    }
    group->features = calloc(texts->features_count, sizeof *group->features);
    if (!group->features) {
        return refuse_memory(place->failure);
    }
    for (size_t i = 0; i < texts->features_count; i++) {
        if (!read_group_feature(place, config, texts->features[i], &group->features[i])) {
            return false;
        }
    }
    group->feature_count = texts->features_count;
    return true;
}

static bool read_label(
    const struct place *place, struct model_label_texts *texts, struct eb_model_config_label *label)
{
    static const uint64_t versions[2] = {1, UINT64_MAX};
    if (!texts->version) {
        return refuse_config(place, "version", NULL, "is missing; every label needs one");
    }
    return read_name(place, "name", &texts->name, &label->name) &&
           read_config_count(place, "version", texts->version, versions, &label->version);
}

/* ---- lists ---- */

/* Returns the name of an entry of any list: the first member of every such struct. */
static const char *name_of(const void *entry)
{
    return *(char *const *)entry;
}

static int compare_config_entries(const void *left, const void *right)
{
    return strcmp(name_of(left), name_of(right));
}

static int compare_config_name(const void *name, const void *entry)
{
    return strcmp(name, name_of(entry));
}

/* A list that is being read. */
struct list {
    const char *name;
    void *entries;
    size_t count;
    size_t entry_bytes;
};

/* Sorts the list. Returns false with *failure set if two entries have the same name. */
static bool sort_list(const struct list *list, struct eb_failure *failure)
{
    if (list->count == 0) {
        return true;
    }
    qsort(list->entries, list->count, list->entry_bytes, compare_config_entries);
    const uint8_t *entries = list->entries;
    for (size_t i = 1; i < list->count; i++) {
        const void *entry = entries + i * list->entry_bytes;
        const void *before = entries + (i - 1) * list->entry_bytes;
        if (strcmp(name_of(before), name_of(entry)) == 0) {
            return eb_failure_set(failure, "%s: two entries are called '%.64s'; rename one of them",
                list->name, name_of(entry));
        }
    }
    return true;
}

/* Returns zeroed entries, or NULL with *failure set. */
static void *make_entries(size_t count, size_t entry_bytes, struct eb_failure *failure)
{
    void *entries = calloc(count + 1, entry_bytes);
    if (!entries) {
        (void)refuse_memory(failure);
    }
    return entries;
}

static bool read_patterns(
    struct place place, char **texts, size_t count, struct eb_model_config_patterns *patterns)
{
    patterns->texts = make_entries(count, sizeof *patterns->texts, place.failure);
    if (!patterns->texts) {
        return false;
    }
    for (; patterns->count < count; patterns->count++) {
        size_t bytes = strlen(texts[patterns->count]);
        if (bytes > EB_MODEL_CONFIG_PATTERN_BYTES_MAX) {
            return eb_failure_set(place.failure,
                "%s[%zu]: the pattern has %zu bytes: expected at most %u", place.list,
                patterns->count, bytes, EB_MODEL_CONFIG_PATTERN_BYTES_MAX);
        }
        const char *why = eb_name_error(texts[patterns->count], UINT32_MAX);
        if (why) {
            return eb_failure_set(
                place.failure, "%s[%zu]: the pattern %s", place.list, patterns->count, why);
        }
        patterns->texts[patterns->count] = take_config_text(&texts[patterns->count]);
    }
    return true;
}

static bool read_manifest_rule(
    const struct place *place, const struct model_texts *texts, struct eb_model_config *config)
{
    const char *text = texts->require_manifest;
    config->is_manifest_required = text && strcasecmp(text, "true") == 0;
    return !text || config->is_manifest_required || strcasecmp(text, "false") == 0 ||
           eb_failure_set(place->failure,
               "require_manifest: '%.64s' is unknown; expected true or false", text);
}

static bool read_config_choice(
    struct place place, struct model_texts *texts, struct eb_model_config *config)
{
    place.list = "only";
    if (!read_patterns(place, texts->only, texts->only_count, &config->only)) {
        return false;
    }
    place.list = "exclude";
    return read_patterns(place, texts->exclude, texts->exclude_count, &config->exclude);
}

/* Refuses an entry whose source the patterns leave out. */
static bool check_selected(const struct place *place, const struct eb_model_config *config,
    const char *field, const char *source)
{
    return eb_model_config_selects(config, source) ||
           refuse_config(place, field, source,
               "is left out by the patterns of only and exclude; correct them or remove this "
               "entry");
}

static bool check_table_selected(const struct place *place, const struct eb_model_config *config,
    const struct eb_model_config_table *table)
{
    return check_selected(place, config, "source", table->source) &&
           (!table->scales || check_selected(place, config, "scales", table->scales)) &&
           (!table->biases || check_selected(place, config, "biases", table->biases));
}

static bool read_config_tables(
    struct place place, struct model_texts *texts, struct eb_model_config *config)
{
    place.list = "tables";
    config->tables = make_entries(texts->tables_count, sizeof *config->tables, place.failure);
    if (!config->tables) {
        return false;
    }
    for (; place.index < texts->tables_count; place.index++) {
        struct eb_model_config_table *table = &config->tables[config->table_count++];
        if (!read_table(&place, &texts->tables[place.index], table) ||
            !check_table_selected(&place, config, table)) {
            return false;
        }
    }
    struct list list = {"tables", config->tables, config->table_count, sizeof *config->tables};
    return sort_list(&list, place.failure);
}

static bool read_features(
    struct place place, struct model_texts *texts, struct eb_model_config *config)
{
    place.list = "features";
    config->features = make_entries(texts->features_count, sizeof *config->features, place.failure);
    if (!config->features) {
        return false;
    }
    for (; place.index < texts->features_count; place.index++) {
        struct eb_model_config_feature *feature = &config->features[config->feature_count++];
        if (!read_feature(&place, &texts->features[place.index], feature)) {
            return false;
        }
        if (eb_model_config_find_table(config, feature->name)) {
            return refuse_config(
                &place, "name", feature->name, "is also the name of a table; rename the feature");
        }
        if (!eb_model_config_find_table(config, feature->table) &&
            !check_selected(&place, config, "table", feature->table)) {
            return false;
        }
    }
    struct list list = {
        "features", config->features, config->feature_count, sizeof *config->features};
    return sort_list(&list, place.failure);
}

static bool read_config_groups(
    struct place place, struct model_texts *texts, struct eb_model_config *config)
{
    place.list = "groups";
    config->groups = make_entries(texts->groups_count, sizeof *config->groups, place.failure);
    if (!config->groups) {
        return false;
    }
    for (; place.index < texts->groups_count; place.index++) {
        struct eb_model_config_group *group = &config->groups[config->group_count++];
        if (!read_config_group(&place, config, &texts->groups[place.index], group)) {
            return false;
        }
    }
    struct list list = {"groups", config->groups, config->group_count, sizeof *config->groups};
    return sort_list(&list, place.failure);
}

static bool read_labels(
    struct place place, struct model_version_texts *texts, struct eb_model_config *config)
{
    place.list = "versions.labels";
    config->labels = make_entries(texts->labels_count, sizeof *config->labels, place.failure);
    if (!config->labels) {
        return false;
    }
    for (; place.index < texts->labels_count; place.index++) {
        struct eb_model_config_label *label = &config->labels[config->label_count++];
        if (!read_label(&place, &texts->labels[place.index], label)) {
            return false;
        }
    }
    struct list list = {
        "versions.labels", config->labels, config->label_count, sizeof *config->labels};
    return sort_list(&list, place.failure);
}

static bool read_serve(const struct place *place, const char *text, uint64_t *serve)
{
    errno = 0;
    unsigned long long number = text ? strtoull(text, NULL, 10) : 0;
    if (!text || strcmp(text, "highest") == 0) {
        return true;
    }
    if (!is_config_number(text, false) || errno != 0 || number == 0) {
        return refuse_config(
            place, "serve", text, "is invalid; expected 'highest' or a version number");
    }
    *serve = number;
    return true;
}

static bool read_config_versions(
    struct place place, struct model_version_texts *texts, struct eb_model_config *config)
{
    static const uint64_t keeps[2] = {1, EB_MODEL_CONFIG_KEEP_MAX};
    static const uint64_t seconds[2] = {0, EB_MODEL_CONFIG_KEEP_S_MAX};
    uint64_t keep = config->keep;
    uint64_t keep_s = config->keep_s;
    if (!read_config_count(&place, "keep", texts->keep, keeps, &keep) ||
        !read_config_count(&place, "keep_s", texts->keep_s, seconds, &keep_s) ||
        !read_serve(&place, texts->serve, &config->serve)) {
        return false;
    }
    config->keep = (uint32_t)keep;
    config->keep_s = (uint32_t)keep_s;
    return read_labels(place, texts, config);
}

/* ---- the whole ---- */

void eb_model_config_init(struct eb_model_config *config)
{
    *config = (struct eb_model_config){.keep = KEEP_DEFAULT, .keep_s = KEEP_S_DEFAULT};
}

bool eb_model_config_parse(const uint8_t *yaml, size_t yaml_bytes, uint32_t name_bytes_max,
    struct eb_model_config *config, struct eb_failure *failure)
{
    eb_model_config_init(config);
    config->name_bytes_max = name_bytes_max;
    struct model_texts *texts;
    if (!load_texts(yaml, yaml_bytes, &texts, failure)) {
        return false;
    }
    struct place place = {.name_bytes_max = name_bytes_max, .failure = failure};
    config->text = strndup((const char *)yaml, yaml_bytes);
    bool is_good = config->text || refuse_memory(failure);
    is_good = is_good && (!texts || (read_manifest_rule(&place, texts, config) &&
                                        read_config_choice(place, texts, config) &&
                                        read_config_tables(place, texts, config) &&
                                        read_features(place, texts, config) &&
                                        read_config_groups(place, texts, config) &&
                                        read_config_versions(place, &texts->versions, config)));
    free_texts(texts);
    if (!is_good) {
        eb_model_config_deinit(config);
        eb_model_config_init(config);
    }
    return is_good;
}

static bool read_config_file(struct eb_table_file *file, uint32_t name_bytes_max,
    struct eb_model_config *config, struct eb_failure *failure)
{
    if (file->bytes > EB_MODEL_CONFIG_BYTES_MAX) {
        return eb_failure_set(failure, "larger than %d bytes, the maximum for a model.yaml",
            EB_MODEL_CONFIG_BYTES_MAX);
    }
    uint8_t *yaml = malloc(file->bytes + 1);
    if (!yaml) {
        return refuse_memory(failure);
    }
    bool is_good = eb_table_file_read(file, 0, yaml, file->bytes, failure) &&
                   eb_model_config_parse(yaml, file->bytes, name_bytes_max, config, failure);
    free(yaml);
    return is_good;
}

bool eb_model_config_read(const char *path, uint32_t name_bytes_max, struct eb_model_config *config,
    struct eb_failure *failure)
{
    eb_model_config_init(config);
    struct stat status;
    if (lstat(path, &status) != 0 && errno == ENOENT) {
        return true;
    }
    struct eb_table_file file;
    if (!eb_table_file_open(path, &file, failure)) {
        return eb_failure_locate(failure, path);
    }
    bool is_good = read_config_file(&file, name_bytes_max, config, failure);
    eb_table_file_close(&file);
    return is_good || eb_failure_locate(failure, path);
}

static void free_patterns(struct eb_model_config_patterns *patterns)
{
    for (size_t i = 0; i < patterns->count; i++) {
        free(patterns->texts[i]);
    }
    free(patterns->texts);
}

void eb_model_config_deinit(struct eb_model_config *config)
{
    for (size_t i = 0; i < config->table_count; i++) {
        free(config->tables[i].name);
        free(config->tables[i].source);
        free(config->tables[i].scales);
        free(config->tables[i].biases);
        for (size_t k = 0; k < config->tables[i].vector_count; k++) {
            free(config->tables[i].vector[k]);
        }
        free(config->tables[i].vector);
    }
    for (size_t i = 0; i < config->feature_count; i++) {
        free(config->features[i].name);
        free(config->features[i].table);
    }
    for (size_t i = 0; i < config->group_count; i++) {
        free(config->groups[i].name);
        free(config->groups[i].features);
    }
    for (size_t i = 0; i < config->label_count; i++) {
        free(config->labels[i].name);
    }
    free_patterns(&config->only);
    free_patterns(&config->exclude);
    free(config->text);
    free(config->tables);
    free(config->features);
    free(config->groups);
    free(config->labels);
    *config = (struct eb_model_config){0};
}

bool eb_model_config_matches(
    const struct eb_model_config *config, const char *pattern, const char *source)
{
    size_t bytes = strnlen(source, (size_t)config->name_bytes_max + 1);
    return bytes <= config->name_bytes_max && fnmatch(pattern, source, 0) == 0;
}

static bool has_match(const struct eb_model_config *config,
    const struct eb_model_config_patterns *patterns, const char *source)
{
    for (size_t i = 0; i < patterns->count; i++) {
        if (eb_model_config_matches(config, patterns->texts[i], source)) {
            return true;
        }
    }
    return false;
}

bool eb_model_config_selects(const struct eb_model_config *config, const char *source)
{
    return (config->only.count == 0 || has_match(config, &config->only, source)) &&
           !has_match(config, &config->exclude, source);
}

/* Returns the entry called `name` of a sorted list, or NULL if there is none. */
static const void *find_config_entry(
    const void *entries, size_t count, size_t entry_bytes, const char *name)
{
    return count > 0 ? bsearch(name, entries, count, entry_bytes, compare_config_name) : NULL;
}

const struct eb_model_config_table *eb_model_config_find_table(
    const struct eb_model_config *config, const char *name)
{
    return find_config_entry(config->tables, config->table_count, sizeof *config->tables, name);
}

const struct eb_model_config_feature *eb_model_config_find_feature(
    const struct eb_model_config *config, const char *name)
{
    return find_config_entry(
        config->features, config->feature_count, sizeof *config->features, name);
}

const struct eb_model_config_group *eb_model_config_find_group(
    const struct eb_model_config *config, const char *name)
{
    return find_config_entry(config->groups, config->group_count, sizeof *config->groups, name);
}
