/* Parses bytes as a record of what is served, first as they are, then as JSON behind a first line
 * that fits. An accepted record names only resident files, and reads back as it is written. */
#include "server/tables/served_record.h"

#include "tests/fuzz/input.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define HEAD_BYTES 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require_equal_version(
    const struct eb_served_version *a, const struct eb_served_version *b)
{
    require(a->version == b->version && a->digest == b->digest);
    require(a->is_complete == b->is_complete && a->table_count == b->table_count);
    require(!a->model_yaml == !b->model_yaml);
    require(!a->model_yaml || strcmp(a->model_yaml, b->model_yaml) == 0);
    require(!a->manifest_yaml == !b->manifest_yaml && a->is_router == b->is_router);
    require(!a->manifest_yaml || strcmp(a->manifest_yaml, b->manifest_yaml) == 0);
    require(a->part.part == b->part.part && a->part.parts == b->part.parts);
    require(a->manifest_yaml ? a->part.part < a->part.parts : a->part.parts == 0);
    for (size_t i = 0; i < a->table_count; i++) {
        enum eb_resident_kind kind;
        uint64_t key;
        const struct eb_served_table *table = &a->tables[i];
        require(strcmp(table->name, b->tables[i].name) == 0 && table->name[0] != '\0');
        require(strcmp(table->file, b->tables[i].file) == 0);
        require(eb_resident_dir_parse(table->file, &kind, &key));
        require(table->slot == b->tables[i].slot && table->slot < EB_RESIDENT_TABLES_MAX);
        require(table->unknown_row == b->tables[i].unknown_row);
    }
}

static void require_equal_record(const struct eb_served_record *a, const struct eb_served_record *b)
{
    require(a->model_count == b->model_count);
    for (size_t i = 0; i < a->model_count; i++) {
        const struct eb_served_model *model = &a->models[i];
        require(strcmp(model->name, b->models[i].name) == 0);
        require(model->version_count == b->models[i].version_count);
        require(eb_served_record_find(a, model->name));
        for (size_t k = 0; k < model->version_count; k++) {
            require_equal_version(&model->versions[k], &b->models[i].versions[k]);
        }
    }
}

static void parse_record(const void *bytes, size_t size)
{
    struct eb_served_record record;
    struct eb_served_record back;
    struct eb_failure failure = {.text = ""};
    if (!eb_served_record_parse(bytes, size, &record, &failure)) {
        require(failure.text[0] != '\0' && record.model_count == 0 && !record.models);
        return;
    }
    size_t again_size;
    void *again = eb_served_record_encode(&record, &again_size, &failure);
    require(again);
    require(eb_served_record_parse(again, again_size, &back, &failure));
    require_equal_record(&record, &back);
    eb_served_record_deinit(&back);
    eb_served_record_deinit(&record);
    free(again);
}

/* Parses the bytes as the JSON of a file whose first line has this number. */
static void parse_behind_head(int format, const uint8_t *data, size_t size)
{
    char *bytes = malloc(HEAD_BYTES + size);
    require(bytes);
    int head = snprintf(bytes, HEAD_BYTES, "embag served %d %zu %016" PRIx64 "\n", format, size,
        (uint64_t)XXH3_64bits(data, size));
    require(head > 0 && head < HEAD_BYTES);
    memcpy(bytes + head, data, size);
    parse_record(bytes, (size_t)head + size);
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    parse_record(data, size);
    parse_behind_head(1, data, size);
    parse_behind_head(2, data, size);
    return 0;
}
