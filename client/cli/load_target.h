/* What a load asks for, as the server describes it: the tables of one model, and their sizes.
 * Thread: one at a time. Memory: names and tables are on the heap. */
#pragma once

#include "client/cli/load_options.h"
#include "client/cli/pack_keys.h"

struct eb_load_table {
    char *name;
    uint64_t row_count;
    uint32_t column_count; /* of a row, flattened */
    uint32_t indices_per_bag;
    bool is_f32;     /* in type and storage */
    bool is_keyed;   /* asked for by the target's keys */
    bool is_feature; /* of the model, with a table of that kind */
};

/* All zero is an empty one. */
struct eb_load_target {
    char *model;
    uint64_t version; /* the one that was served when it was asked */
    uint32_t table_count;
    struct eb_load_table *tables;
    struct eb_pack_keys keys; /* of the one table that is keyed */
    char *keyed_name;         /* of that; NULL: none is */
};

/* Finds the tables that the options name in `list`. false: said on stderr. */
bool eb_load_target_init(struct eb_load_target *target, const struct eb_load_options *options,
    const struct embag_model_list *list);
void eb_load_target_deinit(struct eb_load_target *target);
