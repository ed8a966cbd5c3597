/* The requests of a load. The target is the tables of one model, as the server describes them. The
 * pool is the requests of a run. Both are made before the run, so that making them does not disturb
 * the measurement.
 * Thread: target and pool are made and freed by one thread at a time, and do not change in between.
 * Memory: on the heap. The size of the pool is bounded by a budget unless the number of requests
 * was given. With --verify it is also bounded by a budget for the expected answers. A pool borrows
 * its target. */
#pragma once

#include "client/cli/load_options.h"
#include "client/cli/pack_keys.h"

struct eb_load_table {
    char *name;
    uint64_t row_count;
    uint32_t column_count; /* values of a row, flattened */
    uint32_t indices_per_bag;
    bool is_f32;     /* both its type and its storage are f32 */
    bool is_keyed;   /* its indices are drawn from the target's keys */
    bool is_feature; /* the name is a feature of the model that uses this table */
};

/* Zeroes mean an empty target. */
struct eb_load_target {
    char *model;
    uint64_t version; /* version that was being served when the server was asked */
    uint32_t table_count;
    struct eb_load_table *tables;
    struct eb_pack_keys keys; /* keys of the one keyed table */
    char *keyed_name;         /* name of the keyed table; NULL: none */
};

/* Finds the tables that the options name in `list`. Returns false after printing an error to
 * stderr. */
bool eb_load_target_init(struct eb_load_target *target, const struct eb_load_options *options,
    const struct embag_model_list *list);
void eb_load_target_deinit(struct eb_load_target *target);

/* Zeroes mean an empty pool. */
struct eb_load_pool {
    const struct eb_load_target *target;
    uint32_t bag_count;             /* bags of each query */
    enum embag_type output_type;    /* unspecified: each table's own */
    uint64_t count;                 /* number of requests */
    struct embag_request *requests; /* [count] */
    struct embag_query *queries; /* [count][tables]; with groups, they describe the same lookups */
    struct embag_group *groups;  /* [count]; NULL: queries are sent */
    const char **features;       /* [tables] features of every group */
    int32_t *lengths;            /* [tables][bag_count] lengths of every group */
    int64_t *indices;            /* indices of all requests, one after the other */
    int64_t *offsets;            /* [tables][bag_count], shared by all requests */
    uint64_t request_indices;    /* indices of one request */
    uint32_t kept_versions;      /* versions whose expected answers are kept for comparison */
    uint64_t answer_bytes; /* bytes of an answer's values; as f32 if output_type is unspecified */
};

/* Draws the requests, with settings such as `timeout_us` from the options. Returns false after
 * printing an error to stderr: out of memory, or the options ask for more than can be requested or
 * compared. */
bool eb_load_pool_init(struct eb_load_pool *pool, const struct eb_load_options *options,
    const struct eb_load_target *target);
void eb_load_pool_deinit(struct eb_load_pool *pool);
