/* One lookup on its way: decoded, checked, computed (at once on the loop, or by the executor) and
 * laid out as the answer's bytes.
 *
 * Thread: its loop's; between QUEUED and the mail that ends it the executor owns jobs and answer.
 * Memory: lookups are pooled per loop; arena, scratch and answer come from the loop's pools, the
 * message from its connection's share of them, and all goes back with eb_lookup_give. */
#pragma once

#include "proto/codec.h"
#include "proto/grpc_server.h"
#include "server/base/limits.h"
#include "server/models/snapshot.h"
#include "server/net/loop.h"
#include "server/rpc/auth.h"
#include "server/rpc/lookup_codec.h"
#include "server/rpc/plan_answer.h"
#include "server/work/executor.h"

#include <stdatomic.h>

/* What all lookups of a process share; read-only while serving. */
struct eb_lookup_context {
    const struct eb_bag_ops *ops;
    const struct eb_bag_schedules *schedules;
    struct eb_executor *executor;
    const struct eb_limits *limits;
};

struct eb_lookup;

/* The lookups of one loop. */
struct eb_lookup_home {
    const struct eb_lookup_context *context;
    struct eb_loop *loop;
    struct eb_snapshot *snapshot;   /* what requests are answered from as they come */
    struct eb_feature_memo memo;    /* of the snapshot's versions */
    struct eb_memory answer_memory; /* of the loop's answer pool */
    struct eb_lookup *idle;         /* kept for the next requests */
    size_t idle_count;
    /* Parts with the executor. What is small overtakes those of batch priority, not the others. */
    uint64_t queued_count;
    uint64_t queued_batch_count;
    /* Called for a lookup that was run and is over, while its inputs are there; what follows comes
     * later. */
    void (*on_result)(const struct eb_lookup *lookup);
    /* Called on the loop's thread for a lookup that eb_lookup_run left QUEUED: it is over. */
    void (*on_finish)(struct eb_lookup *lookup);
    /* Before that, for a lookup that is answered in parts: takes one that is not the last. */
    void (*on_part)(struct eb_lookup *lookup, struct eb_outgoing *part);
};

/* How often there was not the memory for inputs, scratch and answers. */
static inline uint64_t eb_lookup_home_shortages(const struct eb_lookup_home *home)
{
    return eb_loop_answer_pool(home->loop)->refusals;
}

enum eb_lookup_state {
    EB_LOOKUP_IDLE,
    EB_LOOKUP_READING,
    EB_LOOKUP_CHECKED,
    EB_LOOKUP_QUEUED, /* with the executor, queued or running */
    EB_LOOKUP_REPLYING
};

/* What of a lookup is computed and answered together: all of it, or one result. */
struct eb_lookup_part {
    struct eb_mail mail; /* the way back from the executor */
    struct eb_work work;
    struct eb_lookup *lookup;
    enum eb_work_outcome outcome;
    struct eb_outgoing *answer;
};

struct eb_lookup {
    struct eb_lookup_home *home;
    const struct eb_lookup_codec *codec;
    enum eb_lookup_state state;
    size_t part_count;
    size_t open_part_count;       /* with the executor */
    struct eb_lookup_part *parts; /* &whole, or from the arena */
    struct eb_lookup_part whole;
    atomic_bool cancelled;
    bool undecodable;        /* the message was none: it ends a stream */
    bool withdraws;          /* the message is a `cancel`, faulty or not */
    bool is_repeated;        /* the service's: another lookup of its call has its id */
    bool is_batch;           /* of batch priority */
    bool may_be_in_parts;    /* the service's: its call takes several answers */
    bool is_inline;          /* computed on the loop's thread */
    enum eb_refusal refusal; /* why it was not done though nothing is wrong with it; else COUNT */
    uint64_t request_id;
    uint64_t arrival_ns; /* uv_hrtime, as are all times */
    uint64_t begun_ns;   /* the first value; 0: none yet */
    uint64_t deadline_ns;
    uint64_t looked_ns; /* at the end of eb_lookup_run, or shortly before */
    /* Whose it is: the service's until the lookup has been run, which asks what he may. NULL: error
     * says that it is nobody who is known. */
    const struct eb_principal *caller;
    struct eb_outgoing *answer; /* the last one; NULL: error says why */
    uint64_t shortages;         /* of the answer memory, when it began to be read */
    uint64_t taken_bytes_max;   /* the service's: what it may leave taken of the answer memory */
    uint64_t parts_bytes;       /* of answers before the last */
    uint32_t pushback_ms;       /* of what queue or memory refused: when to come again */
    const struct eb_memory *message_memory;
    struct eb_grpc_message message;
    struct eb_wire_request *request;
    struct eb_model_version *version;
    struct eb_plan plan;
    /* The service's. */
    uint64_t held_bytes; /* counted against the connection; 0: not queued */
    struct eb_lookup *next;
    struct eb_lookup *previous;
    struct eb_rpc_conn *conn; /* NULL: gone */
    struct eb_rpc_call *call; /* NULL: over */
    struct eb_lookup *bucket_next;
    struct eb_lookup **bucket_link; /* what points at it */
    /* What taking an idle one does not clear: its text, and blocks. */
    struct eb_error error;
    struct eb_arena arena;
};

/* An idle lookup, to be asked for and answered in that form, whose message goes back to
 * `message_memory`. NULL: no memory. */
struct eb_lookup *eb_lookup_take(struct eb_lookup_home *home, const struct eb_lookup_codec *codec,
    const struct eb_memory *message_memory);
/* Everything it holds goes back. Not while QUEUED. */
void eb_lookup_give(struct eb_lookup *lookup);
/* Frees the idle ones, which all must be, and the memo. */
void eb_lookup_home_deinit(struct eb_lookup_home *home);

/* Reads the request: takes `message`, which came at `arrival_ns`. `deadline_ns` is the call's; the
 * request's own timeout_us, or the longest that there may be, where earlier, replaces it. false:
 * lookup->error (and undecodable) say why; request_id and withdraws are set where they could be
 * told. */
bool eb_lookup_read(struct eb_lookup *lookup, struct eb_grpc_message message, uint64_t arrival_ns,
    uint64_t deadline_ns);
/* Checks and computes what was read. true: it is over, answer or error are set; false: QUEUED,
 * home->on_finish follows. */
bool eb_lookup_run(struct eb_lookup *lookup);
/* Refuses what was read and not run: more of its kind wait already. */
void eb_lookup_refuse_batch(struct eb_lookup *lookup);
/* Nobody waits for it any longer. */
void eb_lookup_cancel(struct eb_lookup *lookup);
