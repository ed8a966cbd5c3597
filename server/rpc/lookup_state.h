/* One lookup in progress: everything that it holds from its message to its answer. Also the pool of
 * idle lookups.
 *
 * Thread: its loop's. While a lookup is EB_LOOKUP_QUEUED, the executor owns its jobs and its
 * answer. Memory: lookups are pooled per loop; arena, scratch and answer come from the loop's
 * pools, the message from its connection's quota of the receive pool. */
#pragma once

#include "proto/codec.h"
#include "proto/grpc_server.h"
#include "proto/list.h"
#include "proto/trace_parent.h"
#include "server/base/limits.h"
#include "server/models/snapshot.h"
#include "server/net/loop.h"
#include "server/rpc/auth.h"
#include "server/rpc/plan.h"
#include "server/work/executor.h"

#include <stdatomic.h>

struct eb_leg_link;
struct eb_lookup;
struct eb_remote;
struct eb_rpc_call;
struct eb_rpc_conn;

/* How the messages of one service become lookups, and how their answers are completed. embag.v1 and
 * the other services each have one. Memory comes from the lookup's arena. */
struct eb_lookup_codec {
    /* Decodes lookup->message. Returns NULL with *failure set if the message is malformed. */
    struct eb_wire_request *(*read)(struct eb_lookup *lookup, const struct eb_codec_limits *limits,
        struct eb_decode_failure *failure);
    /* Completes the request from lookup->version, once that is known. Returns false with
     * lookup->error set. NULL if there is nothing to complete. */
    bool (*resolve)(struct eb_lookup *lookup);
    /* Writes how long the lookup took into the message of an answer. NULL if the answer has no
     * field for it. */
    void (*set_times)(uint8_t *message, uint32_t queue_us, uint32_t compute_us);
};

/* Shared by all lookups of a process; read-only while serving. */
struct eb_lookup_context {
    const struct eb_bag_ops *ops;
    const struct eb_bag_schedules *schedules;
    struct eb_executor *executor;
};

/* The lookups of one loop. */
struct eb_lookup_pool {
    const struct eb_lookup_context *context;
    struct eb_limits limits; /* change only between two requests */
    struct eb_loop *loop;
    struct eb_snapshot *snapshot;   /* the snapshot that new requests are answered from */
    struct eb_feature_memo memo;    /* for the versions of the snapshot */
    struct eb_memory answer_memory; /* takes from the loop's answer pool */
    /* The way to part servers; NULL if this is no router. */
    struct eb_leg_link *legs;
    /* remote.h; set by lookup.c. lay_out lays out the answer, as one message if `is_small`.
     * Returns false with lookup->error set if it cannot. */
    bool (*lay_out)(struct eb_lookup *lookup, bool is_small);
    void (*on_remote_over)(struct eb_lookup *lookup);
    struct eb_list given_up; /* lookups that nobody waits for, linked by eb_lookup.given_up; their
                                legs are still in flight */
    struct eb_list idle;     /* kept for the next requests, linked by eb_lookup.link */
    size_t idle_count;
    /* Numbers of partial answers that the executor has. Small lookups are computed on the loop
     * ahead of those of batch priority, but not ahead of the others. */
    uint64_t queued_count;
    uint64_t queued_batch_count;
};

enum eb_lookup_state {
    EB_LOOKUP_IDLE,
    EB_LOOKUP_READING,
    EB_LOOKUP_CHECKED,
    EB_LOOKUP_REMOTE, /* waits for part servers (remote.h) */
    EB_LOOKUP_QUEUED, /* with the executor, queued or running */
    EB_LOOKUP_REPLYING
};

/* The results that are computed and answered together: all results of a lookup, or some of them. */
struct eb_partial_answer {
    struct eb_mail mail; /* its way back from the executor */
    struct eb_work work;
    struct eb_lookup *lookup;
    enum eb_work_outcome outcome;
    struct eb_outgoing *answer;
};

struct eb_lookup {
    struct eb_lookup_pool *pool;
    const struct eb_lookup_codec *codec;
    enum eb_lookup_state state;
    size_t partial_count;
    size_t open_partial_count;          /* number of partial answers that the executor has */
    struct eb_partial_answer *partials; /* &whole, or from the arena */
    struct eb_partial_answer whole;
    atomic_bool is_cancelled;
    bool is_undecodable;     /* whether the message could not be decoded; ends a stream */
    bool is_withdrawal;      /* whether the message is a `cancel`, valid or not */
    bool is_repeated;        /* whether another lookup of its call has the same id */
    bool is_batch;           /* whether it has batch priority */
    bool may_be_partial;     /* whether its call accepts several answers */
    bool is_inline;          /* whether it is computed on the loop's thread */
    enum eb_refusal refusal; /* why a valid request was not computed; COUNT if it was not refused */
    uint64_t request_id;
    uint64_t arrival_ns; /* uv_hrtime, as all times are */
    uint64_t begun_ns;   /* when computing its values began; 0 if not yet */
    uint64_t deadline_ns;
    uint64_t looked_ns; /* last reading of the clock for it: at its end, or shortly before */
    /* The caller; valid until the lookup has been run. NULL if the caller is unknown, as `error`
     * says. */
    const struct eb_principal *caller;
    struct eb_outgoing *answer; /* the last answer; NULL if there is none, and `error` says why */
    uint64_t shortages;         /* number of refusals of the answer memory when reading began */
    uint64_t taken_bytes_max;   /* limit on taken bytes of the answer memory, its answer included */
    uint64_t partial_bytes;     /* bytes of the answers before the last one */
    uint32_t pushback_ms;       /* time after which to retry, if queue or memory refused it */
    const struct eb_memory *message_memory;
    struct eb_grpc_message message;
    struct eb_wire_request *request;
    struct eb_model_version *version;
    struct eb_plan plan;
    struct eb_remote *remote; /* from the remote arena; NULL if all tables are here */
    struct eb_list given_up;  /* in the pool's list */
    /* Kept by conn_state.c. */
    uint64_t held_bytes;      /* bytes counted against the connection; 0 if not queued */
    struct eb_list link;      /* in the connection's lookups or in the idle ones of the pool */
    struct eb_rpc_conn *conn; /* NULL if gone */
    struct eb_rpc_call *call; /* NULL if the call is over or has withdrawn this lookup */
    struct eb_lookup *bucket_next;
    struct eb_lookup **bucket_link;      /* the pointer that points to this lookup */
    const struct eb_trace_parent *trace; /* &own_trace; NULL if its call's trace applies */
    /* Not cleared when an idle lookup is taken: their text and blocks are reused. */
    struct eb_error error;
    struct eb_trace_parent own_trace; /* from the request; unset if `trace` is NULL */
    struct eb_arena arena;
    struct eb_arena remote_arena; /* see remote.h */
};

/* Returns how often memory for inputs, scratch or answers was refused. */
static inline uint64_t eb_lookup_pool_shortages(const struct eb_lookup_pool *pool)
{
    return eb_loop_answer_pool(pool->loop)->refusals;
}
