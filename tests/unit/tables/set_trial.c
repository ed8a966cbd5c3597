#include "tests/unit/tables/set_trial.h"

#include "server/formats/npy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define HEADER_BYTES 512

void eb_set_trial_init(struct eb_set_trial *trial)
{
    eb_scratch_init(&trial->scratch);
    trial->progress = NULL;
}

void eb_set_trial_deinit(struct eb_set_trial *trial)
{
    eb_scratch_deinit(&trial->scratch);
}

void eb_set_trial_write_npy(const struct eb_set_trial *trial, const char *name,
    enum eb_storage storage, const uint64_t dims[2], const void *data)
{
    struct eb_tensor tensor = {
        .storage = storage, .rank = dims[1] > 0 ? 2 : 1, .dims = {dims[0], dims[1]}};
    struct eb_file_fault fault;
    assert_true(eb_tensor_measure(&tensor, &fault));
    uint8_t header[HEADER_BYTES];
    uint64_t header_bytes = eb_npy_header_write(&tensor, header, sizeof header);
    assert_true(header_bytes > 0);
    uint8_t *file = malloc(header_bytes + tensor.data_bytes);
    assert_non_null(file);
    memcpy(file, header, header_bytes);
    memcpy(file + header_bytes, data, tensor.data_bytes);
    eb_scratch_write(&trial->scratch, name, file, header_bytes + tensor.data_bytes);
    free(file);
}

void eb_set_trial_remove(const struct eb_set_trial *trial, const char *name)
{
    char path[EB_SCRATCH_PATH_BYTES];
    eb_scratch_path(&trial->scratch, name, path);
    assert_int_equal(unlink(path), 0);
}

static bool try_load(const struct eb_set_trial *trial, const char *yaml, struct eb_table_set *set,
    struct eb_file_fault *fault)
{
    struct eb_model_config config;
    if (!eb_model_config_parse((const uint8_t *)yaml, strlen(yaml), 255, &config, fault)) {
        fail_msg("%s: %s", yaml, fault->text);
    }
    const struct eb_table_options options = {
        .row_bytes_max = 65536, .name_bytes_max = 255, .config = &config};
    bool is_good = eb_table_set_load(trial->scratch.root, &options, trial->progress, set, fault);
    eb_model_config_deinit(&config);
    return is_good;
}

void eb_set_trial_load(const struct eb_set_trial *trial, const char *yaml, struct eb_table_set *set)
{
    struct eb_file_fault fault = {.text = ""};
    if (!try_load(trial, yaml, set, &fault)) {
        fail_msg("%s: %s", yaml, fault.text);
    }
}

void eb_set_trial_expect_fault(
    const struct eb_set_trial *trial, const char *yaml, const char *part, const char *other_part)
{
    struct eb_table_set set;
    struct eb_file_fault fault = {.text = ""};
    if (try_load(trial, yaml, &set, &fault)) {
        fail_msg("loaded: %s", yaml);
    }
    assert_int_equal(set.count, 0);
    assert_null(set.tables);
    assert_null(set.memory.holds);
    eb_scratch_expect(fault.text, part);
    eb_scratch_expect(fault.text, other_part);
}
