#include "server/rpc/lookup.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <uv.h>

/* Idle lookups of a loop that are kept, each with its arena's first block. */
#define IDLE_LOOKUPS_MAX 64

/* What planning one query takes from the arena, beside what decoding takes. */
#define PLAN_BYTES_PER_QUERY 768

static_assert(sizeof(struct eb_plan_query) + sizeof(struct eb_bag_job) +
                      sizeof(struct eb_wire_result) + EB_TENSOR_RANK_MAX * sizeof(uint64_t) +
                      sizeof(uint8_t *) + 64 <=
                  PLAN_BYTES_PER_QUERY,
    "a query's share of the arena must hold its plan and the description of its result");

/* Rough speed of one thread, for deciding where work runs: what it gathers from memory, what it
 * writes (empty bags gather nothing), and how many bags' overhead it deals with in a microsecond.
 */
#define GATHER_BYTES_PER_US 8192
#define WRITE_BYTES_PER_US 32768
#define BAGS_PER_US 32

struct eb_lookup *eb_lookup_take(struct eb_lookup_home *home)
{
    struct eb_lookup *lookup = home->idle;
    if (lookup) {
        home->idle = lookup->next;
        home->idle_count--;
    } else {
        lookup = malloc(sizeof *lookup);
        if (!lookup) {
            return NULL;
        }
        eb_arena_init(&lookup->arena, &home->answer_memory);
    }
    *lookup = (struct eb_lookup){.home = home, .arena = lookup->arena, .state = EB_LOOKUP_READING};
    return lookup;
}

static void free_lookup(struct eb_lookup *lookup)
{
    eb_arena_deinit(&lookup->arena);
    free(lookup);
}

/* What is needed only until the values are computed. */
static void give_inputs(struct eb_lookup *lookup)
{
    eb_plan_deinit(&lookup->plan);
    eb_grpc_message_give(eb_loop_receive_memory(lookup->home->loop), &lookup->message);
    if (lookup->version) {
        eb_model_version_give(lookup->version);
        lookup->version = NULL;
    }
    eb_arena_reset(&lookup->arena, 0);
}

void eb_lookup_give(struct eb_lookup *lookup)
{
    assert(lookup->state != EB_LOOKUP_QUEUED && lookup->state != EB_LOOKUP_IDLE);
    struct eb_lookup_home *home = lookup->home;
    give_inputs(lookup);
    if (lookup->answer) {
        eb_outgoing_drop(lookup->answer);
    }
    if (home->idle_count == IDLE_LOOKUPS_MAX) {
        free_lookup(lookup);
        return;
    }
    lookup->state = EB_LOOKUP_IDLE;
    lookup->next = home->idle;
    home->idle = lookup;
    home->idle_count++;
}

void eb_lookup_home_deinit(struct eb_lookup_home *home)
{
    assert(home->queued_count == 0);
    while (home->idle) {
        struct eb_lookup *lookup = home->idle;
        home->idle = lookup->next;
        free_lookup(lookup);
    }
}

bool eb_lookup_read(struct eb_lookup *lookup, struct eb_grpc_message message, uint64_t deadline_ns)
{
    const struct eb_limits *limits = lookup->home->context->limits;
    struct eb_codec_limits caps = {.queries_max = (uint32_t)limits->queries_max,
        .name_bytes_max = (uint32_t)limits->name_bytes_max};
    struct eb_decode_failure failure;
    lookup->message = message;
    lookup->deadline_ns = deadline_ns;
    eb_arena_reset(&lookup->arena, eb_lookup_request_arena_bytes(message.size, &caps) +
                                       limits->queries_max * PLAN_BYTES_PER_QUERY);
    lookup->request =
        eb_lookup_request_decode(&lookup->arena, message.bytes, message.size, &caps, &failure);
    if (!lookup->request) {
        lookup->error = failure.error;
        lookup->request_id = failure.request_id;
        lookup->undecodable = failure.undecodable;
        return false;
    }
    lookup->request_id = lookup->request->request_id;
    uint64_t timeout_us = lookup->request->timeout_us;
    if (timeout_us != 0 && timeout_us <= limits->deadline_max_ms * 1000) {
        uint64_t own_ns = uv_hrtime() + timeout_us * 1000;
        lookup->deadline_ns = own_ns < deadline_ns ? own_ns : deadline_ns;
    }
    return true;
}

static bool find_version(struct eb_lookup *lookup)
{
    const struct eb_repository *repository = lookup->home->context->repository;
    const char *name = lookup->request->model;
    const struct eb_model *model = eb_repository_find(repository, name);
    if (!model && name[0] == '\0') {
        eb_error_set(&lookup->error, EB_STATUS_NOT_FOUND,
            "model is empty, which is possible with one model only; this server has %zu",
            repository->count);
        return false;
    }
    if (!model) {
        eb_error_set(&lookup->error, EB_STATUS_NOT_FOUND, "no model \"%s\"", name);
        return false;
    }
    lookup->version = eb_model_take_version(model, lookup->request->version);
    if (!lookup->version) {
        eb_error_set(&lookup->error, EB_STATUS_NOT_FOUND,
            "model \"%s\" has no version %llu in memory", model->name,
            (unsigned long long)lookup->request->version);
        return false;
    }
    return true;
}

static bool check(struct eb_lookup *lookup)
{
    if (!find_version(lookup)) {
        return false;
    }
    lookup->plan = (struct eb_plan){
        .request = lookup->request,
        .version = lookup->version,
        .limits = lookup->home->context->limits,
        .ops = lookup->home->context->ops,
        .arena = &lookup->arena,
        .pool = eb_loop_answer_pool(lookup->home->loop),
    };
    if (!eb_plan_check(&lookup->plan, &lookup->error)) {
        return false;
    }
    lookup->answer = eb_plan_answer(&lookup->plan, &lookup->error);
    lookup->state = EB_LOOKUP_CHECKED;
    return lookup->answer != NULL;
}

static bool is_late(const struct eb_lookup *lookup)
{
    return uv_hrtime() >= lookup->deadline_ns;
}

/* The last step of every lookup: error or answer, never both. */
static void conclude(struct eb_lookup *lookup)
{
    bool failed = lookup->error.status != EB_STATUS_OK;
    if (!failed && is_late(lookup)) {
        eb_error_set(&lookup->error, EB_STATUS_DEADLINE_EXCEEDED,
            "the deadline passed before the answer was ready");
        failed = true;
    }
    if (failed && lookup->answer) {
        eb_outgoing_drop(lookup->answer);
        lookup->answer = NULL;
    }
    give_inputs(lookup);
    lookup->state = EB_LOOKUP_REPLYING;
}

static void on_back(struct eb_mail *mail)
{
    struct eb_lookup *lookup =
        (struct eb_lookup *)((char *)mail - offsetof(struct eb_lookup, mail));
    struct eb_lookup_home *home = lookup->home;
    home->queued_count--;
    if (lookup->outcome == EB_WORK_EXPIRED) {
        eb_error_set(&lookup->error, EB_STATUS_DEADLINE_EXCEEDED,
            "the deadline passed while the request was queued");
    }
    conclude(lookup);
    home->on_finish(lookup);
    eb_loop_release(home->loop);
}

/* On a thread of the executor. */
static void on_work_done(struct eb_work *work, enum eb_work_outcome outcome)
{
    struct eb_lookup *lookup =
        (struct eb_lookup *)((char *)work - offsetof(struct eb_lookup, work));
    lookup->outcome = outcome;
    lookup->mail.deliver = on_back;
    eb_mailbox_post(eb_loop_mailbox(lookup->home->loop), &lookup->mail);
}

static bool is_small(const struct eb_lookup *lookup)
{
    const struct eb_plan *plan = &lookup->plan;
    uint64_t gather_bytes = 0;
    for (size_t i = 0; i < plan->count; i++) {
        gather_bytes += plan->jobs[i].gather_bytes;
    }
    gather_bytes *= eb_bag_ops_slowness(lookup->home->context->ops);
    uint64_t work_us = gather_bytes / GATHER_BYTES_PER_US +
                       plan->values_bytes / WRITE_BYTES_PER_US + plan->result_rows / BAGS_PER_US;
    return lookup->home->queued_count == 0 &&
           work_us < lookup->home->context->limits->inline_below_us;
}

/* Hands the work over. false: refused, with its error set. */
static bool submit(struct eb_lookup *lookup)
{
    struct eb_lookup_home *home = lookup->home;
    lookup->work = (struct eb_work){
        .jobs = lookup->plan.jobs,
        .job_count = (uint32_t)lookup->plan.count,
        .weight_bytes = lookup->plan.gather_bytes + lookup->plan.values_bytes,
        .deadline_ns = lookup->deadline_ns,
        .cancelled = &lookup->cancelled,
        .on_done = on_work_done,
    };
    lookup->state = EB_LOOKUP_QUEUED;
    home->queued_count++;
    eb_loop_hold(home->loop);
    if (eb_executor_submit(home->context->executor, &lookup->work)) {
        return true;
    }
    lookup->state = EB_LOOKUP_CHECKED;
    home->queued_count--;
    eb_loop_release(home->loop);
    uint64_t queue_us = home->context->limits->queue_bytes_max / GATHER_BYTES_PER_US;
    lookup->pushback_ms = (uint32_t)(queue_us / 1000 + 1);
    eb_error_set(&lookup->error, EB_STATUS_RESOURCE_EXHAUSTED,
        "the queue is full (queue_bytes_max); come again in %u ms", lookup->pushback_ms);
    return false;
}

static void compute(const struct eb_lookup *lookup)
{
    const struct eb_lookup_context *context = lookup->home->context;
    const struct eb_bag_tile all = {
        .jobs = lookup->plan.jobs,
        .job_count = (uint32_t)lookup->plan.count,
        .bag_end = lookup->plan.count > 0 ? lookup->plan.jobs[lookup->plan.count - 1].bag_count : 0,
        .element_end = UINT32_MAX,
    };
    struct eb_bag_stream stream;
    eb_bag_stream_init(&stream, context->ops, context->schedules);
    if (all.job_count > 0) {
        eb_bag_stream_pool(&stream, &all, NULL);
    }
}

bool eb_lookup_run(struct eb_lookup *lookup)
{
    if (is_late(lookup)) {
        eb_error_set(&lookup->error, EB_STATUS_DEADLINE_EXCEEDED,
            "the deadline passed before the request was read");
    } else if (check(lookup)) {
        if (!is_small(lookup) && submit(lookup)) {
            return false;
        }
        if (lookup->error.status == EB_STATUS_OK) {
            compute(lookup);
        }
    }
    conclude(lookup);
    return true;
}

void eb_lookup_cancel(struct eb_lookup *lookup)
{
    atomic_store_explicit(&lookup->cancelled, true, memory_order_relaxed);
}
