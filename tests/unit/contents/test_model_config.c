#include "server/contents/model_config.h"

#include "tests/lib/faults.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define NAME_BYTES_MAX 32

static void parse_config(const char *yaml, struct eb_model_config *config)
{
    struct eb_failure failure = {.text = ""};
    if (!eb_model_config_parse(
            (const uint8_t *)yaml, strlen(yaml), NAME_BYTES_MAX, config, &failure)) {
        fail_msg("%s: %s", yaml, failure.text);
    }
}

static void expect_defaults(const struct eb_model_config *config)
{
    assert_int_equal(config->table_count, 0);
    assert_int_equal(config->feature_count, 0);
    assert_int_equal(config->group_count, 0);
    assert_int_equal(config->label_count, 0);
    assert_int_equal(config->only.count, 0);
    assert_int_equal(config->exclude.count, 0);
    assert_int_equal(config->keep, 2);
    assert_int_equal(config->keep_s, 600);
    assert_int_equal(config->serve, 0);
}

/* Expects `yaml` to be refused with an error that contains `part`, and to leave the defaults. */
static void expect_failure(const char *yaml, const char *part)
{
    struct eb_model_config config;
    struct eb_failure failure = {.text = ""};
    if (eb_model_config_parse(
            (const uint8_t *)yaml, strlen(yaml), NAME_BYTES_MAX, &config, &failure)) {
        fail_msg("accepted: %s", yaml);
    }
    eb_scratch_expect(failure.text, part);
    expect_defaults(&config);
    eb_model_config_deinit(&config);
}

static void has_defaults_where_nothing_is_said(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "{}", "versions: {}",
        "tables: []\nfeatures: []\n# nothing\n",
        "tables:\nfeatures: ~\ngroups: null\nversions: {labels: }\n"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct eb_model_config config;
        parse_config(texts[i], &config);
        expect_defaults(&config);
        eb_model_config_deinit(&config);
    }
}

static void reads_tables(void **state)
{
    (void)state;
    struct eb_model_config config;
    parse_config("tables:\n"
                 "- {name: b, source: emb.weight, format: fbgemm_int4, dim: 24,\n"
                 "   default_index: -1}\n"
                 "- name: a\n"
                 "  storage: INT8\n"
                 "  missing: Unknown_Row\n"
                 "  default_index: -9223372036854775808\n"
                 "  unknown_row: 7\n",
        &config);
    assert_int_equal(config.table_count, 2);
    const struct eb_model_config_table *a = &config.tables[0];
    assert_ptr_equal(eb_model_config_find_table(&config, "a"), a);
    assert_string_equal(a->name, "a");
    assert_string_equal(a->source, "a");
    assert_int_equal(a->format, EB_MODEL_FORMAT_VALUES);
    assert_int_equal(a->storage, EB_STORAGE_INT8);
    assert_int_equal(a->missing, EB_MISSING_UNKNOWN_ROW);
    assert_true(a->has_default);
    assert_int_equal(a->default_index, INT64_MIN);
    assert_int_equal(a->unknown_row, 7);
    const struct eb_model_config_table *b = eb_model_config_find_table(&config, "b");
    assert_string_equal(b->source, "emb.weight");
    assert_int_equal(b->format, EB_MODEL_FORMAT_FBGEMM_INT4);
    assert_int_equal(b->dim, 24);
    assert_int_equal(a->dim, 0);
    assert_int_equal(b->storage, EB_STORAGE_UNSPECIFIED);
    assert_int_equal(b->missing, EB_MISSING_UNSPECIFIED);
    assert_true(b->has_default);
    assert_int_equal(b->default_index, -1);
    assert_int_equal(b->unknown_row, -1);
    assert_null(eb_model_config_find_table(&config, "c"));
    eb_model_config_deinit(&config);
}

static void reads_default_vectors(void **state)
{
    (void)state;
    struct eb_model_config config;
    parse_config("tables:\n"
                 "- {name: a, default_vector: [0.01], unknown_row: Default_Vector}\n"
                 "- {name: b, default_vector: [-1, +2.5, .5, 1e-3, 18446744073709551615],\n"
                 "   unknown_row: 3}\n"
                 "- {name: c, default_vector: }\n"
                 "- {name: d, default_vector: []}\n",
        &config);
    const struct eb_model_config_table *tables = config.tables;
    assert_int_equal(tables[0].vector_count, 1);
    assert_string_equal(tables[0].vector[0], "0.01");
    assert_true(tables[0].unknown_is_vector);
    assert_int_equal(tables[0].unknown_row, -1);
    assert_false(tables[0].has_default);
    assert_int_equal(tables[1].vector_count, 5);
    assert_string_equal(tables[1].vector[4], "18446744073709551615");
    assert_false(tables[1].unknown_is_vector);
    assert_int_equal(tables[1].unknown_row, 3);
    assert_int_equal(tables[2].vector_count, 0);
    assert_false(tables[2].unknown_is_vector);
    assert_int_equal(tables[3].vector_count, 0);
    eb_model_config_deinit(&config);
}

static void rejects_bad_default_vectors(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"default_vector: 0.01", "Expecting SEQUENCE, got event: SCALAR"},
        {"default_vector: [[1]]", "default_vector"},
        {"default_vector: [1, two]",
            "tables[0].default_vector[1]: 'two' is not a finite decimal number"},
        {"default_vector: ['']", "tables[0].default_vector[0]: '' is not a finite"},
        {"default_vector: [' 1']", "' 1' is not a finite"},
        {"default_vector: ['1 ']", "'1 ' is not a finite"},
        {"default_vector: [-]", "default_vector"},
        {"default_vector: [.]", "'.' is not a finite"},
        {"default_vector: [0x10]", "'0x10' is not a finite"},
        {"default_vector: [-0X1p3]", "'-0X1p3' is not a finite"},
        {"default_vector: [.inf]", "'.inf' is not a finite"},
        {"default_vector: [-inf]", "'-inf' is not a finite"},
        {"default_vector: [nan]", "'nan' is not a finite"},
        {"default_vector: [1e999]", "'1e999' is not a finite"},
        {"default_vector: [1], default_index: 1",
            "tables[0].default_vector: is given in addition to default_index"},
        {"unknown_row: default_vector",
            "tables[0].unknown_row: 'default_vector' requires a default_vector"},
        {"unknown_row: default_vector, default_vector: []",
            "tables[0].unknown_row: 'default_vector' requires a default_vector"},
        {"unknown_row: vector", "tables[0].unknown_row: 'vector' is not a number from 0 to"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char yaml[256];
        snprintf(yaml, sizeof yaml, "tables: [{name: a, %s}]", cases[i][0]);
        expect_failure(yaml, cases[i][1]);
    }
}

static void bounds_the_values_of_a_default_vector(void **state)
{
    (void)state;
    assert_int_equal(EB_MODEL_CONFIG_VECTOR_MAX, 65536);
    for (size_t count = EB_MODEL_CONFIG_VECTOR_MAX; count < EB_MODEL_CONFIG_VECTOR_MAX + 2;
         count++) {
        size_t room = count * 2 + 64;
        char *yaml = malloc(room);
        assert_non_null(yaml);
        size_t used = (size_t)snprintf(yaml, room, "tables: [{name: a, default_vector: [");
        for (size_t i = 0; i < count; i++) {
            used += (size_t)snprintf(yaml + used, room - used, "%s1", i > 0 ? "," : "");
        }
        used += (size_t)snprintf(yaml + used, room - used, "]}]");
        struct eb_model_config config;
        struct eb_failure failure = {.text = ""};
        assert_int_equal(
            eb_model_config_parse((uint8_t *)yaml, used, NAME_BYTES_MAX, &config, &failure),
            count == EB_MODEL_CONFIG_VECTOR_MAX);
        eb_model_config_deinit(&config);
        free(yaml);
    }
}

static void rejects_bad_dims(void **state)
{
    (void)state;
    expect_failure("tables: [{name: a, dim: 4}]", "tables[0].dim: '4' requires a format");
    expect_failure("tables: [{name: a, format: torchrec_int8, dim: 0}]", "tables[0].dim: '0'");
    expect_failure("tables: [{name: a, format: torchrec_int8, dim: 4294967296}]", "tables[0].dim");
    expect_failure("tables: [{name: b}, {name: a, format: torchrec_int8}]",
        "tables[1].dim: is missing but required, since rows of torchrec_int8 may end with padding; "
        "rows "
        "without padding have (bytes - 4) * 1 values");
    expect_failure("tables: [{name: a, format: torchrec_int4}]", "(bytes - 4) * 2 values");
    expect_failure("tables: [{name: a, format: torchrec_int2}]", "(bytes - 4) * 4 values");
    expect_failure("tables: [{name: a, format: torchrec}]",
        "fbgemm_int8, fbgemm_int4, fbgemm_int2, fbgemm_int8_f16, torchrec_int8, torchrec_int4, "
        "torchrec_int2, codes_int8, codes_int4, codes_int2");
}

static void reads_where_scales_and_biases_are(void **state)
{
    (void)state;
    struct eb_model_config config;
    parse_config("tables:\n"
                 "- {name: a, format: codes_int8, scales: a_scale}\n"
                 "- {name: b, format: CODES_INT4, scales: s, biases: z, dim: 3, storage: int4}\n"
                 "- {name: c, format: codes_int2, scales: s, biases: z}\n"
                 "- {name: d}\n",
        &config);
    const struct eb_model_config_table *tables = config.tables;
    assert_int_equal(tables[0].format, EB_MODEL_FORMAT_CODES_INT8);
    assert_string_equal(tables[0].scales, "a_scale");
    assert_null(tables[0].biases);
    assert_int_equal(tables[1].format, EB_MODEL_FORMAT_CODES_INT4);
    assert_int_equal(tables[1].dim, 3);
    assert_string_equal(tables[1].scales, "s");
    assert_string_equal(tables[1].biases, "z");
    assert_int_equal(tables[2].format, EB_MODEL_FORMAT_CODES_INT2);
    assert_null(tables[3].scales);
    assert_true(eb_model_format_is_codes(EB_MODEL_FORMAT_CODES_INT8));
    assert_true(eb_model_format_is_codes(EB_MODEL_FORMAT_CODES_INT2));
    assert_false(eb_model_format_is_codes(EB_MODEL_FORMAT_TORCHREC_INT2));
    assert_false(eb_model_format_is_codes(EB_MODEL_FORMAT_VALUES));
    eb_model_config_deinit(&config);
}

static void rejects_scales_that_do_not_fit_the_format(void **state)
{
    (void)state;
    expect_failure("tables: [{name: a, scales: s}]",
        "tables[0].scales: 's' requires format codes_int8, codes_int4 or codes_int2; fp8 and other "
        "values with scales are not supported: dequantise the table to F32 or BF16");
    expect_failure("tables: [{name: a, biases: z}]", "tables[0].biases: 'z' requires format");
    expect_failure("tables: [{name: a}, {name: b, format: fbgemm_int8, scales: s}]",
        "tables[1].scales: 's' is not possible with this format");
    expect_failure("tables: [{name: a, format: codes_int8}]",
        "tables[0].scales: is missing but required, since rows of this format hold only codes");
    expect_failure(
        "tables: [{name: a, format: codes_int8, biases: z}]", "tables[0].scales: is missing");
    expect_failure("tables: [{name: a, format: codes_int8, scales: s, biases: s}]",
        "tables[0].biases: 's' is also the tensor of the scales");
    expect_failure("tables: [{name: a, format: codes_int8, scales: a}]",
        "tables[0].scales: 'a' is also the source of the table");
    expect_failure("tables: [{name: a, source: x, format: codes_int8, scales: a, biases: x}]",
        "tables[0].biases: 'x' is also the source of the table");
    expect_failure(
        "tables: [{name: a, format: codes_int8, scales: ''}]", "tables[0].scales: '' is empty");
    expect_failure("tables: [{name: a, format: codes_int8, scales: s, biases: ''}]",
        "tables[0].biases: '' is empty");
    expect_failure("only: [a]\ntables: [{name: a, format: codes_int8, scales: s}]",
        "tables[0].scales: 's' is left out by the patterns of only and exclude");
    expect_failure("exclude: [z]\ntables: [{name: a, format: codes_int8, scales: s, biases: z}]",
        "tables[0].biases: 'z' is left out");
}

static void reads_which_tables_are_chosen(void **state)
{
    (void)state;
    struct eb_model_config config;
    parse_config("only: ['emb.*', '[st]']\n"
                 "exclude: ['*.bias', 'emb.?']\n"
                 "tables: [{name: a, source: emb.10}]\n"
                 "features: [{name: f, table: s}, {name: g, table: a}]\n",
        &config);
    assert_int_equal(config.only.count, 2);
    assert_string_equal(config.only.texts[1], "[st]");
    assert_int_equal(config.exclude.count, 2);
    assert_true(eb_model_config_selects(&config, "emb.10"));
    assert_true(eb_model_config_selects(&config, "emb.a/b"));
    assert_true(eb_model_config_selects(&config, "t"));
    assert_false(eb_model_config_selects(&config, "u"));
    assert_false(eb_model_config_selects(&config, "emb.1"));
    assert_false(eb_model_config_selects(&config, "emb.1.bias"));
    assert_false(eb_model_config_selects(&config, "EMB.10"));
    eb_model_config_deinit(&config);
    parse_config("only: []\nexclude: ~\n", &config);
    assert_true(eb_model_config_selects(&config, "anything"));
    eb_model_config_deinit(&config);
    parse_config("exclude: ['.*']\n", &config);
    assert_true(eb_model_config_selects(&config, "a"));
    assert_false(eb_model_config_selects(&config, ".a"));
    eb_model_config_deinit(&config);
}

static void reads_whether_a_manifest_is_required(void **state)
{
    (void)state;
    struct eb_model_config config;
    parse_config("", &config);
    assert_false(config.is_manifest_required);
    eb_model_config_deinit(&config);
    parse_config("require_manifest: false", &config);
    assert_false(config.is_manifest_required);
    eb_model_config_deinit(&config);
    parse_config("require_manifest: True", &config);
    assert_true(config.is_manifest_required);
    eb_model_config_deinit(&config);
    expect_failure(
        "require_manifest: yes", "require_manifest: 'yes' is unknown; expected true or false");
}

static void rejects_bad_choices(void **state)
{
    (void)state;
    expect_failure("only: ['']", "only[0]: the pattern is empty");
    expect_failure("exclude: [a, \"b\\tc\"]", "exclude[1]: the pattern");
    expect_failure("only: a*", "only");
    expect_failure("tables: [{name: a}, {name: b}]\nexclude: [b]",
        "tables[1].source: 'b' is left out by the patterns of only and exclude");
    expect_failure("only: [x.*]\ntables: [{name: x.1, source: y}]", "tables[0].source: 'y'");
    expect_failure("only: [x.*]\nfeatures: [{name: f, table: y}]",
        "features[0].table: 'y' is left out by the patterns");
}

/* Returns whether a list of `count` patterns of `bytes` bytes each is accepted. */
static bool may_have(size_t count, size_t bytes)
{
    size_t size = 16 + count * (bytes + 3);
    char *yaml = malloc(size);
    struct eb_model_config config;
    struct eb_failure failure = {.text = ""};
    assert_non_null(yaml);
    size_t used = (size_t)snprintf(yaml, size, "only: [");
    for (size_t i = 0; i < count; i++) {
        memset(yaml + used, 'a', bytes);
        yaml[used + bytes] = ',';
        used += bytes + 1;
    }
    yaml[used++] = ']';
    bool is_good =
        eb_model_config_parse((const uint8_t *)yaml, used, NAME_BYTES_MAX, &config, &failure);
    assert_true(is_good == (failure.text[0] == '\0'));
    eb_model_config_deinit(&config);
    free(yaml);
    return is_good;
}

static void bounds_patterns(void **state)
{
    (void)state;
    assert_int_equal(EB_MODEL_CONFIG_PATTERNS_MAX, 64);
    assert_int_equal(EB_MODEL_CONFIG_PATTERN_BYTES_MAX, 255);
    assert_true(may_have(EB_MODEL_CONFIG_PATTERNS_MAX, 3));
    assert_false(may_have(EB_MODEL_CONFIG_PATTERNS_MAX + 1, 3));
    assert_true(may_have(2, EB_MODEL_CONFIG_PATTERN_BYTES_MAX));
    assert_false(may_have(2, EB_MODEL_CONFIG_PATTERN_BYTES_MAX + 1));
    char yaml[EB_MODEL_CONFIG_PATTERN_BYTES_MAX + 32];
    snprintf(yaml, sizeof yaml, "only: [x, %0*d]", EB_MODEL_CONFIG_PATTERN_BYTES_MAX + 1, 7);
    expect_failure(yaml, "only[1]: the pattern has 256 bytes: expected at most 255");
}

/* A pattern that some matchers need exponential time for. */
static void matches_hostile_patterns_in_bounded_time(void **state)
{
    (void)state;
    struct eb_model_config config;
    char yaml[EB_MODEL_CONFIG_PATTERN_BYTES_MAX + 32] = "only: ['";
    char name[256];
    for (size_t i = 0; i < EB_MODEL_CONFIG_PATTERN_BYTES_MAX / 2 - 1; i++) {
        strcat(yaml, "*a");
    }
    strcat(yaml, "b']");
    memset(name, 'a', sizeof name);
    name[sizeof name - 1] = '\0';
    parse_config(yaml, &config);
    assert_false(eb_model_config_selects(&config, name));
    eb_model_config_deinit(&config);
}

static void matches_no_name_that_is_too_long(void **state)
{
    (void)state;
    struct eb_model_config config;
    char name[NAME_BYTES_MAX + 2];
    parse_config("only: ['a*']", &config);
    memset(name, 'a', sizeof name);
    name[NAME_BYTES_MAX] = '\0';
    assert_true(eb_model_config_selects(&config, name));
    name[NAME_BYTES_MAX] = 'a';
    name[NAME_BYTES_MAX + 1] = '\0';
    assert_false(eb_model_config_selects(&config, name));
    eb_model_config_deinit(&config);
}

static void reads_features_and_groups(void **state)
{
    (void)state;
    struct eb_model_config config;
    parse_config("features:\n"
                 "- {name: z, table: t, reduction: mean, missing: zero, default_index: 3,\n"
                 "   id_map: hash_modulo, seed: 18446744073709551615, max_ids: 50}\n"
                 "- {name: y, table: t}\n"
                 "groups: [{name: g, features: [z, y, z]}]\n",
        &config);
    assert_int_equal(config.feature_count, 2);
    const struct eb_model_config_feature *z = eb_model_config_find_feature(&config, "z");
    assert_string_equal(z->table, "t");
    assert_int_equal(z->reduction, EB_REDUCTION_MEAN);
    assert_int_equal(z->missing, EB_MISSING_ZERO);
    assert_true(z->has_default);
    assert_int_equal(z->default_index, 3);
    assert_int_equal(z->id_map.kind, EB_ID_MAP_HASH_MODULO);
    assert_true(z->id_map.seed == UINT64_MAX);
    assert_int_equal(z->max_ids, 50);
    const struct eb_model_config_feature *y = eb_model_config_find_feature(&config, "y");
    assert_int_equal(y->reduction, EB_REDUCTION_UNSPECIFIED);
    assert_int_equal(y->missing, EB_MISSING_UNSPECIFIED);
    assert_false(y->has_default);
    assert_int_equal(y->id_map.kind, EB_ID_MAP_NONE);
    assert_int_equal(y->max_ids, 0);
    const struct eb_model_config_group *g = eb_model_config_find_group(&config, "g");
    assert_int_equal(g->feature_count, 3);
    assert_ptr_equal(&config.features[g->features[0]], z);
    assert_ptr_equal(&config.features[g->features[1]], y);
    assert_ptr_equal(&config.features[g->features[2]], z);
    eb_model_config_deinit(&config);
}

static void reads_versions(void **state)
{
    (void)state;
    struct eb_model_config config;
    parse_config("versions: {keep: 5, keep_s: 0, serve: 12,\n"
                 "  labels: [{name: stable, version: 12}, {name: canary, version: 13}]}\n",
        &config);
    assert_int_equal(config.keep, 5);
    assert_int_equal(config.keep_s, 0);
    assert_int_equal(config.serve, 12);
    assert_int_equal(config.label_count, 2);
    assert_string_equal(config.labels[0].name, "canary");
    assert_int_equal(config.labels[0].version, 13);
    eb_model_config_deinit(&config);
    parse_config("versions: {serve: highest}", &config);
    assert_int_equal(config.serve, 0);
    eb_model_config_deinit(&config);
}

static void says_what_is_wrong_and_where(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"tables: [{name: a}, {name: b, storage: int7}]",
            "tables[1].storage: 'int7' is unknown; expected one of f32, f16, bf16, f8_e4m3, "
            "f8_e5m2, "
            "int8, int4, int2"},
        {"tables: [{name: a, missing: never}]", "tables[0].missing: 'never' is unknown; expected "
                                                "one of error, skip, zero, unknown_row"},
        {"tables: [{name: a, missing: ''}]", "tables[0].missing: '' is unknown"},
        {"tables: [{name: a, format: fbgemm}]", "tables[0].format: 'fbgemm' is unknown"},
        {"tables: [{storage: int8}]", "tables[0].name: is missing"},
        {"tables: [{}]", "tables[0].name: is missing"},
        {"tables: [{name: ''}]", "tables[0].name: '' is empty"},
        {"tables: [{name: \"a\\x07b\"}]", "tables[0].name: 'a\\x07b'"},
        {"tables: [{name: a12345678901234567890123456789012}]", "tables[0].name: "},
        {"tables: [{name: a, source: ''}]", "tables[0].source: '' is empty"},
        {"tables: [{name: a}, {name: b}, {name: a}]", "tables: two entries are called 'a'"},
        {"tables: [{name: a, default_index: 1.5}]",
            "tables[0].default_index: '1.5' is not a 64-bit integer"},
        {"tables: [{name: a, default_index: 9223372036854775808}]", "is not a 64-bit integer"},
        {"tables: [{name: a, default_index: +1}]", "is not a 64-bit integer"},
        {"tables: [{name: a, default_index: ' 1'}]", "is not a 64-bit integer"},
        {"tables: [{name: a, unknown_row: -1}]",
            "tables[0].unknown_row: '-1' is not a number from 0 to 9223372036854775807"},
        {"features: [{name: f}]", "features[0].table: is missing"},
        {"features: [{name: f, table: t}, {name: f, table: u}]",
            "features: two entries are called 'f'"},
        {"tables: [{name: f}]\nfeatures: [{name: f, table: t}]",
            "features[0].name: 'f' is also the name of a table"},
        {"features: [{name: f, table: t, reduction: average}]",
            "features[0].reduction: 'average' is unknown; expected one of sum, mean, "
            "weighted_mean"},
        {"features: [{name: f, table: t, id_map: hash}]",
            "features[0].id_map: 'hash' is unknown; expected one of none, modulo, hash_modulo"},
        {"features: [{name: f, table: t, seed: 1}]", "features[0].seed: '1' requires id_map"},
        {"features: [{name: f, table: t, max_ids: 0}]", "features[0].max_ids: '0' is not a number"},
        {"features: [{name: f, table: t}]\ngroups: [{name: g, features: [f, h]}]",
            "groups[0].features: 'h' is not a feature"},
        {"groups: [{name: g}]", "groups[0].features: is missing or empty"},
        {"groups: [{name: g, features: []}]", "groups[0].features: is missing or empty"},
        {"versions: {keep: 0}", "versions.keep: '0' is not a number from 1 to 64"},
        {"versions: {keep: 65}", "versions.keep: '65' is not a number from 1 to 64"},
        {"versions: {keep_s: forever}", "versions.keep_s: 'forever' is not a number from 0 to"},
        {"versions: {serve: lowest}",
            "versions.serve: 'lowest' is invalid; expected 'highest' or a version"},
        {"versions: {labels: [{name: a}]}", "versions.labels[0].version: is missing"},
        {"versions: {labels: [{name: a, version: 0}]}", "versions.labels[0].version: '0' is no"},
        {"versions: {labels: [{name: a, version: 1}, {name: a, version: 2}]}",
            "versions.labels: two entries are called 'a'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        expect_failure(cases[i][0], cases[i][1]);
    }
}

static void refuses_yaml_that_is_none_of_ours(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"tabels: []", "Unexpected key: tabels"},
        {"tables: [{name: a, stroage: int8}]", "Unexpected key: stroage"},
        {"tables: {name: a}", "tables"},
        {"tables: a", "tables"},
        {"- a", "Expecting MAPPING"},
        {"tables: [{name: [a]}]", "name"},
        {"tables: [[[[[[[[a]]]]]]]]", "tables"},
        {"tables: [{name: a, name: b}]", "name"},
        {"tables: []\ntables: []", "tables"},
        {"tables: &x [{name: a}]\nfeatures: *x", "lias"},
        {"a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]", "Unexpected key: a"},
        {"tables: [{name: \"a\\0b\"}]", "escaped NUL"},
        {"tables: [{name: \"a\\x00\"}]", "escaped NUL"},
        {"%YAML 1.1\n---\ntables: []", "begins with '%'"},
        {"\xef\xbb\xbf%TAG !a! tag:a\n---\ntables: []", "begins with '%'"},
        {"# a\n%TAG !a! tag:a\n---\ntables: []", "begins with '%'"},
        {"# a\r%TAG !a! tag:a\n---\ntables: []", "begins with '%'"},
        {"# a\xc2\x85%TAG !a! tag:a\n---\ntables: []", "begins with '%'"},
        {"# a\xe2\x80\xa8%TAG !a! tag:a\n---\ntables: []", "begins with '%'"},
        {"# a\xe2\x80\xa9%TAG !a! tag:a\n---\ntables: []", "begins with '%'"},
        {"\xff\xfet", "UTF-16"},
        {"\xfe\xfft", "UTF-16"},
        {"tables: []\n---\ntables: []", "document"},
        {"tables:\n\t- {name: t}\n", "line 2 is indented with a tab"},
        {"tables:\n- name: t\n\tstorage: int8\n", "line 3 is indented with a tab"},
        {"tables:\n- \tname: t\n  storage: f16\n", "line 2 is indented with a tab"},
        {"versions: {keep: 3,\n\tkeep_s: x}", "versions.keep_s: 'x'"},
        {"tables: [{name: a", ""},
        {"\xff\xfe\xff", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        expect_failure(cases[i][0], cases[i][1]);
    }
}

static void stops_at_its_caps(void **state)
{
    (void)state;
    size_t room = EB_MODEL_CONFIG_LABELS_MAX * 64 + 64;
    for (size_t count = EB_MODEL_CONFIG_LABELS_MAX; count < EB_MODEL_CONFIG_LABELS_MAX + 2;
         count++) {
        char *yaml = malloc(room);
        size_t used = (size_t)snprintf(yaml, room, "versions:\n  labels:\n");
        for (size_t i = 0; i < count; i++) {
            used += (size_t)snprintf(yaml + used, room - used, "  - {name: l%zu, version: 1}\n", i);
        }
        struct eb_model_config config;
        struct eb_failure failure = {.text = ""};
        assert_int_equal(
            eb_model_config_parse((uint8_t *)yaml, used, NAME_BYTES_MAX, &config, &failure),
            count == EB_MODEL_CONFIG_LABELS_MAX);
        eb_model_config_deinit(&config);
        free(yaml);
    }
}

static void reads_a_file(void **state)
{
    (void)state;
    struct eb_scratch scratch;
    char path[EB_SCRATCH_PATH_BYTES];
    struct eb_model_config config;
    struct eb_failure failure = {.text = ""};
    eb_scratch_init(&scratch);
    eb_scratch_path(&scratch, "model.yaml", path);
    assert_true(eb_model_config_read(path, NAME_BYTES_MAX, &config, &failure));
    expect_defaults(&config);
    eb_model_config_deinit(&config);
    eb_scratch_write(&scratch, "model.yaml", "versions: {keep: 3}", 19);
    assert_true(eb_model_config_read(path, NAME_BYTES_MAX, &config, &failure));
    assert_int_equal(config.keep, 3);
    eb_model_config_deinit(&config);
    eb_scratch_write(&scratch, "model.yaml", "versions: {keep: x}", 19);
    assert_false(eb_model_config_read(path, NAME_BYTES_MAX, &config, &failure));
    eb_scratch_expect(failure.text, path);
    eb_scratch_expect(failure.text, ": versions.keep: 'x'");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("nowhere", path), 0);
    assert_false(eb_model_config_read(path, NAME_BYTES_MAX, &config, &failure));
    eb_scratch_expect(failure.text, path);
    eb_scratch_deinit(&scratch);
}

static void refuses_a_file_that_is_too_large(void **state)
{
    (void)state;
    struct eb_scratch scratch;
    char path[EB_SCRATCH_PATH_BYTES];
    struct eb_model_config config;
    struct eb_failure failure = {.text = ""};
    eb_scratch_init(&scratch);
    eb_scratch_path(&scratch, "model.yaml", path);
    char *comment = malloc(EB_MODEL_CONFIG_BYTES_MAX + 1);
    memset(comment, '#', EB_MODEL_CONFIG_BYTES_MAX + 1);
    eb_scratch_write(&scratch, "model.yaml", comment, EB_MODEL_CONFIG_BYTES_MAX);
    assert_true(eb_model_config_read(path, NAME_BYTES_MAX, &config, &failure));
    eb_model_config_deinit(&config);
    eb_scratch_write(&scratch, "model.yaml", comment, EB_MODEL_CONFIG_BYTES_MAX + 1);
    assert_false(eb_model_config_read(path, NAME_BYTES_MAX, &config, &failure));
    eb_scratch_expect(failure.text, "larger than 4194304 bytes");
    free(comment);
    eb_scratch_deinit(&scratch);
}

/* The content of the file is not the cause, so it may be good for the next attempt. */
static void a_lack_of_memory_is_transient(void **state)
{
    (void)state;
    static const char yaml[] = "tables: [{name: a}]\nfeatures: [{name: f, table: a}]\n"
                               "groups: [{name: g, features: [f]}]\n"
                               "versions: {labels: [{name: x, version: 1}]}\n";
    bool is_good = false;
    unsigned tries = 0;
    while (!is_good) {
        struct eb_model_config config;
        struct eb_failure failure = {.text = ""};
        eb_faults_fail_allocation(++tries);
        is_good = eb_model_config_parse(
            (const uint8_t *)yaml, strlen(yaml), NAME_BYTES_MAX, &config, &failure);
        eb_faults_fail_allocation(0);
        assert_int_equal(failure.is_transient, !is_good);
        eb_model_config_deinit(&config);
    }
    assert_true(tries > 2);
}

EB_TEST_GROUP(model_config)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(has_defaults_where_nothing_is_said),
        cmocka_unit_test(reads_tables),
        cmocka_unit_test(reads_default_vectors),
        cmocka_unit_test(rejects_bad_default_vectors),
        cmocka_unit_test(bounds_the_values_of_a_default_vector),
        cmocka_unit_test(rejects_bad_dims),
        cmocka_unit_test(reads_where_scales_and_biases_are),
        cmocka_unit_test(rejects_scales_that_do_not_fit_the_format),
        cmocka_unit_test(reads_which_tables_are_chosen),
        cmocka_unit_test(reads_whether_a_manifest_is_required),
        cmocka_unit_test(rejects_bad_choices),
        cmocka_unit_test(bounds_patterns),
        cmocka_unit_test(matches_hostile_patterns_in_bounded_time),
        cmocka_unit_test(matches_no_name_that_is_too_long),
        cmocka_unit_test(reads_features_and_groups),
        cmocka_unit_test(reads_versions),
        cmocka_unit_test(says_what_is_wrong_and_where),
        cmocka_unit_test(refuses_yaml_that_is_none_of_ours),
        cmocka_unit_test(stops_at_its_caps),
        cmocka_unit_test(reads_a_file),
        cmocka_unit_test(refuses_a_file_that_is_too_large),
        cmocka_unit_test(a_lack_of_memory_is_transient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
