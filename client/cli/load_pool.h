/* What a load asks for: the target, which is the tables of one model as the server describes them,
 * and the pool, which is the requests of a run. They are made before it, so that making them costs
 * nothing while it is measured.
 * Thread: one at a time makes and frees them; immutable in between. Memory: on the heap; the
 * requests are within a budget unless their number was given. With --verify there are no more
 * requests than their answers fit a budget. A pool borrows its target. */
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

/* All zero is an empty one. */
struct eb_load_pool {
    const struct eb_load_target *target;
    uint32_t bag_count;             /* of each query */
    enum embag_type output_type;    /* unspecified: each table's own */
    uint64_t count;                 /* of requests */
    struct embag_request *requests; /* [count] */
    struct embag_query *queries;    /* [count][tables]; with groups what they mean */
    struct embag_group *groups;     /* [count]; NULL where queries are sent */
    const char **features;          /* [tables] of every group */
    int32_t *lengths;               /* [tables][bag_count] of every group */
    int64_t *indices;               /* of all requests, one behind the other */
    int64_t *offsets;               /* of all tables: [tables][bag_count] */
    uint64_t request_indices;       /* of one request */
    uint32_t kept_versions;         /* whose answers are compared with what is kept */
    uint64_t answer_bytes;          /* values of one answer; f32 where each type is a table's own */
};

/* Draws the requests. `timeout_us` and all else come from the options. false: no memory, or more
 * than can be asked or compared; said on stderr. */
bool eb_load_pool_init(struct eb_load_pool *pool, const struct eb_load_options *options,
    const struct eb_load_target *target);
void eb_load_pool_deinit(struct eb_load_pool *pool);
