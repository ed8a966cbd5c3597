#include "tests/unit/tables/set_fixture.h"

#include "server/formats/npy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define HEADER_BYTES 512

void eb_set_fixture_init(struct eb_set_fixture *fixture)
{
    eb_scratch_init(&fixture->scratch);
    fixture->progress = NULL;
}

void eb_set_fixture_deinit(struct eb_set_fixture *fixture)
{
    eb_scratch_deinit(&fixture->scratch);
}

void eb_set_fixture_write_npy(const struct eb_set_fixture *fixture, const char *name,
    enum eb_storage storage, const uint64_t dims[2], const void *data)
{
    struct eb_tensor tensor = {
        .storage = storage, .rank = dims[1] > 0 ? 2 : 1, .dims = {dims[0], dims[1]}};
    struct eb_failure failure;
    assert_true(eb_tensor_measure(&tensor, &failure));
    uint8_t header[HEADER_BYTES];
    uint64_t header_bytes = eb_npy_header_write(&tensor, header, sizeof header);
    assert_true(header_bytes > 0);
    uint8_t *file = malloc(header_bytes + tensor.data_bytes);
    assert_non_null(file);
    memcpy(file, header, header_bytes);
    memcpy(file + header_bytes, data, tensor.data_bytes);
    eb_scratch_write(&fixture->scratch, name, file, header_bytes + tensor.data_bytes);
    free(file);
}

void eb_set_fixture_remove(const struct eb_set_fixture *fixture, const char *name)
{
    char path[EB_SCRATCH_PATH_BYTES];
    eb_scratch_path(&fixture->scratch, name, path);
    assert_int_equal(unlink(path), 0);
}

static bool try_load(const struct eb_set_fixture *fixture, const char *yaml,
    struct eb_table_set *set, struct eb_failure *failure)
{
    struct eb_model_config config;
    if (!eb_model_config_parse((const uint8_t *)yaml, strlen(yaml), 255, &config, failure)) {
        fail_msg("%s: %s", yaml, failure->text);
    }
    struct eb_table_options options = {
        .row_bytes_max = 65536, .name_bytes_max = 255, .config = &config};
    bool is_good = eb_set_load(fixture->scratch.root, &options, fixture->progress, set, failure);
    eb_model_config_deinit(&config);
    return is_good;
}

void eb_set_fixture_load(
    const struct eb_set_fixture *fixture, const char *yaml, struct eb_table_set *set)
{
    struct eb_failure failure = {.text = ""};
    if (!try_load(fixture, yaml, set, &failure)) {
        fail_msg("%s: %s", yaml, failure.text);
    }
}

void eb_set_fixture_expect_failure(const struct eb_set_fixture *fixture, const char *yaml,
    const char *part, const char *other_part)
{
    struct eb_table_set set;
    struct eb_failure failure = {.text = ""};
    if (try_load(fixture, yaml, &set, &failure)) {
        fail_msg("loaded: %s", yaml);
    }
    assert_int_equal(set.count, 0);
    assert_null(set.tables);
    assert_null(set.memory.holds);
    eb_scratch_expect(failure.text, part);
    eb_scratch_expect(failure.text, other_part);
}
