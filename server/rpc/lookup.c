#include "server/rpc/lookup.h"

#include "server/rpc/model_choice.h"
#include "server/rpc/reply.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

/* Idle lookups of a loop that are kept, each with its arena's first block. */
#define IDLE_LOOKUPS_MAX 64

/* What planning and answering one query takes from the arena, beside what decoding takes. */
#define PLAN_BYTES_PER_QUERY 2048

static_assert(EB_PLAN_QUERY_BYTES + sizeof(struct eb_lookup_part) + sizeof(struct eb_wire_result) +
                      EB_TENSOR_RANK_MAX * sizeof(uint64_t) + sizeof(uint8_t *) + 128 <=
                  PLAN_BYTES_PER_QUERY,
    "a query's share of the arena must hold its plan and the description of its result");

/* Rough speed of one thread, for deciding where work runs: what it gathers from memory, what it
 * writes (empty bags gather nothing), and how many bags' overhead it deals with in a microsecond.
 */
#define GATHER_BYTES_PER_US 8192
#define WRITE_BYTES_PER_US 32768
#define BAGS_PER_US 32

/* From here on reading a message takes long enough to ask whether checking it is of use. */
#define SLOW_MESSAGE_BYTES 4096

struct eb_lookup *eb_lookup_take(struct eb_lookup_home *home, const struct eb_lookup_codec *codec,
    const struct eb_memory *message_memory)
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
    memset(lookup, 0, offsetof(struct eb_lookup, error));
    lookup->error.status = EB_STATUS_OK;
    lookup->home = home;
    lookup->codec = codec;
    lookup->message_memory = message_memory;
    lookup->refusal = EB_REFUSAL_COUNT;
    lookup->state = EB_LOOKUP_READING;
    return lookup;
}

static void free_lookup(struct eb_lookup *lookup)
{
    eb_arena_deinit(&lookup->arena);
    free(lookup);
}

static void drop_answers(struct eb_lookup *lookup)
{
    for (size_t i = 0; i < lookup->part_count; i++) {
        if (lookup->parts[i].answer) {
            eb_outgoing_drop(lookup->parts[i].answer);
            lookup->parts[i].answer = NULL;
        }
    }
    if (lookup->answer) {
        eb_outgoing_drop(lookup->answer);
        lookup->answer = NULL;
    }
}

/* What is needed only until the values are computed. */
static void give_inputs(struct eb_lookup *lookup)
{
    eb_plan_deinit(&lookup->plan);
    eb_grpc_message_give(lookup->message_memory, &lookup->message);
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
    if (lookup->state != EB_LOOKUP_REPLYING) { /* Where it has been run they have gone. */
        give_inputs(lookup);
    }
    drop_answers(lookup);
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
    assert(home->queued_count == 0 && home->queued_batch_count == 0);
    while (home->idle) {
        struct eb_lookup *lookup = home->idle;
        home->idle = lookup->next;
        free_lookup(lookup);
    }
    eb_feature_memo_deinit(&home->memo);
}

/* A lookup that fails before the executor has it does so at once where there is no memory: nothing
 * else has asked for any meanwhile. */
static void note_shortage(struct eb_lookup *lookup)
{
    if (lookup->error.status == EB_STATUS_RESOURCE_EXHAUSTED &&
        lookup->refusal == EB_REFUSAL_COUNT &&
        eb_lookup_home_shortages(lookup->home) != lookup->shortages) {
        lookup->refusal = EB_REFUSAL_MEMORY;
        lookup->pushback_ms = eb_executor_retry_after_ms(lookup->home->context->executor);
    }
}

bool eb_lookup_read(struct eb_lookup *lookup, struct eb_grpc_message message, uint64_t arrival_ns,
    uint64_t deadline_ns)
{
    const struct eb_limits *limits = lookup->home->context->limits;
    const struct eb_feature_memo *memo = &lookup->home->memo;
    const struct eb_codec_limits caps = {.queries_max = (uint32_t)limits->queries_max,
        .name_bytes_max = (uint32_t)limits->name_bytes_max,
        .known = memo->lists,
        .known_count = memo->count};
    struct eb_decode_failure failure;
    lookup->shortages = eb_lookup_home_shortages(lookup->home);
    lookup->message = message;
    lookup->arrival_ns = arrival_ns;
    lookup->deadline_ns = lookup->arrival_ns + limits->deadline_max_ms * 1000000;
    eb_arena_reset(&lookup->arena, eb_lookup_request_arena_bytes(message.size, &caps) +
                                       limits->queries_max * PLAN_BYTES_PER_QUERY);
    lookup->request = lookup->codec->read(lookup, &caps, &failure);
    if (!lookup->request) {
        lookup->error = failure.error;
        lookup->request_id = failure.request_id;
        lookup->withdraws = failure.cancel;
        lookup->undecodable = failure.undecodable;
        note_shortage(lookup);
        return false;
    }
    lookup->request_id = lookup->request->request_id;
    lookup->withdraws = lookup->request->cancel;
    lookup->is_batch = lookup->request->priority != 0;
    uint64_t timeout_us = lookup->request->timeout_us;
    if (timeout_us != 0 && timeout_us <= limits->deadline_max_ms * 1000) {
        lookup->deadline_ns = lookup->arrival_ns + timeout_us * 1000;
    }
    if (deadline_ns < lookup->deadline_ns) {
        lookup->deadline_ns = deadline_ns;
    }
    return true;
}

static bool take_version(struct eb_lookup *lookup)
{
    const struct eb_model_choice choice = {
        .snapshot = lookup->home->snapshot,
        .caller = lookup->caller,
        .right = EB_MODEL_RIGHT_LOOK_UP,
        .model = lookup->request->model,
        .label = lookup->request->version_label,
        .version = lookup->request->version,
    };
    const struct eb_snapshot_model *model = eb_model_choice_find(&choice, &lookup->error);
    struct eb_model_version *version =
        model ? eb_model_choice_find_version(&choice, model, &lookup->error) : NULL;
    lookup->version = version ? eb_model_version_take(version) : NULL;
    return version;
}

static bool check_lookup(struct eb_lookup *lookup)
{
    if (!take_version(lookup) || (lookup->codec->resolve && !lookup->codec->resolve(lookup))) {
        return false;
    }
    struct eb_plan *plan = &lookup->plan;
    plan->request = lookup->request;
    plan->version = lookup->version;
    plan->limits = lookup->home->context->limits;
    plan->ops = lookup->home->context->ops;
    plan->arena = &lookup->arena;
    plan->pool = eb_loop_answer_pool(lookup->home->loop);
    plan->memo = &lookup->home->memo;
    return eb_plan_check(plan, &lookup->error);
}

/* What jobs [first, first + count) read and write. */
static uint64_t weigh_jobs(const struct eb_plan *plan, size_t first, size_t count)
{
    uint64_t bytes = 0;
    for (size_t i = first; i < first + count; i++) {
        const struct eb_bag_job *job = &plan->jobs[i];
        bytes += job->gather_bytes + job->bag_count * plan->queries[i].result_row_bytes;
    }
    return bytes;
}

/* Lays out the answer of a part, which is zeroed, with results [first, first + count), whose jobs,
 * one behind the other, become its work. */
static bool lay_out_answer(
    struct eb_lookup *lookup, struct eb_lookup_part *part, size_t first, size_t count)
{
    struct eb_plan *plan = &lookup->plan;
    const struct eb_plan_result *results = plan->results + first;
    part->lookup = lookup;
    part->work.jobs = plan->jobs;
    if (count > 0) {
        const struct eb_plan_result *last = &results[count - 1];
        part->work.jobs += results->query_first;
        part->work.job_count = last->query_first + last->query_count - results->query_first;
    }
    part->answer = eb_plan_answer(plan, first, count, &lookup->error);
    lookup->part_count++;
    return part->answer;
}

/* How many results from `first` on make a part: as many as are worth a tile, since each part costs
 * its passage through the queue and a message. */
static size_t count_together(const struct eb_plan *plan, size_t first)
{
    size_t end = first;
    uint64_t bytes = 0;
    while (end < plan->result_count && bytes < EB_WORK_TILE_BYTES) {
        const struct eb_plan_result *result = &plan->results[end];
        bytes += weigh_jobs(plan, result->query_first, result->query_count);
        end++;
    }
    return end - first;
}

/* Lays out the answer, in parts where that is asked for and has a point. */
static bool lay_out_all(struct eb_lookup *lookup, bool is_small)
{
    const struct eb_plan *plan = &lookup->plan;
    const bool is_in_parts = lookup->request->partial && lookup->may_be_in_parts && !is_small &&
                             count_together(plan, 0) < plan->result_count;
    lookup->parts = &lookup->whole;
    if (!is_in_parts) {
        return lay_out_answer(lookup, &lookup->whole, 0, plan->result_count);
    }
    lookup->parts = eb_arena_take(&lookup->arena, plan->result_count * sizeof *lookup->parts);
    if (!lookup->parts) {
        return eb_plan_refuse_memory(&lookup->error, "the answer's parts");
    }
    memset(lookup->parts, 0, plan->result_count * sizeof *lookup->parts);
    bool is_good = true;
    for (size_t first = 0; first < plan->result_count && is_good;) {
        size_t count = count_together(plan, first);
        is_good = lay_out_answer(lookup, &lookup->parts[lookup->part_count], first, count);
        first += count;
    }
    return is_good;
}

/* Whether what it takes, now that all is laid out, leaves enough to other connections. */
static bool check_share(struct eb_lookup *lookup)
{
    struct eb_buffer_pool *pool = eb_loop_answer_pool(lookup->home->loop);
    if (pool->taken_bytes <= lookup->taken_bytes_max) {
        return true;
    }
    pool->refusals++;
    eb_error_set(&lookup->error, EB_STATUS_RESOURCE_EXHAUSTED,
        "the request and its answer take %llu bytes more than this connection may have now of "
        "what is left (answer_memory_bytes); send less at once or come again later",
        (unsigned long long)(pool->taken_bytes - lookup->taken_bytes_max));
    return false;
}

static uint32_t in_us(uint64_t from_ns, uint64_t to_ns)
{
    uint64_t us = to_ns > from_ns ? (to_ns - from_ns) / 1000 : 0;
    return us < UINT32_MAX ? (uint32_t)us : UINT32_MAX;
}

/* What a part's peer is told of its times. */
static void note_times(const struct eb_lookup *lookup, struct eb_outgoing *answer, uint64_t now_ns)
{
    uint64_t begun_ns = lookup->begun_ns ? lookup->begun_ns : now_ns;
    if (lookup->codec->set_times) {
        lookup->codec->set_times(
            eb_reply_body(answer), in_us(lookup->arrival_ns, begun_ns), in_us(begun_ns, now_ns));
    }
}

/* The last step of every lookup: error or answer, never both. */
static void conclude_lookup(struct eb_lookup *lookup)
{
    const uint64_t now_ns = uv_hrtime();
    lookup->looked_ns = now_ns;
    if (lookup->error.status == EB_STATUS_OK && now_ns >= lookup->deadline_ns) {
        lookup->refusal = EB_REFUSAL_EXPIRED_UNSENT;
        eb_error_set(&lookup->error, EB_STATUS_DEADLINE_EXCEEDED,
            "the deadline passed before the answer was ready");
    }
    if (lookup->error.status != EB_STATUS_OK) {
        drop_answers(lookup);
    } else {
        note_times(lookup, lookup->answer, now_ns);
    }
    lookup->state = EB_LOOKUP_REPLYING;
    lookup->home->on_result(lookup);
    lookup->part_count = 0;
    give_inputs(lookup);
}

/* A part that is not the last. What comes after an error is of no use to its peer. */
static void give_part(struct eb_lookup *lookup, struct eb_outgoing *answer)
{
    const uint64_t now_ns = uv_hrtime();
    if (lookup->error.status != EB_STATUS_OK || now_ns >= lookup->deadline_ns) {
        eb_outgoing_drop(answer);
        return;
    }
    note_times(lookup, answer, now_ns);
    lookup->parts_bytes += answer->size;
    lookup->home->on_part(lookup, answer);
}

static uint64_t *count_queued(const struct eb_lookup *lookup)
{
    struct eb_lookup_home *home = lookup->home;
    return lookup->is_batch ? &home->queued_batch_count : &home->queued_count;
}

static void on_lookup_back(struct eb_mail *mail)
{
    struct eb_lookup_part *part =
        (struct eb_lookup_part *)((char *)mail - offsetof(struct eb_lookup_part, mail));
    struct eb_lookup *lookup = part->lookup;
    struct eb_lookup_home *home = lookup->home;
    struct eb_outgoing *answer = part->answer;
    part->answer = NULL;
    lookup->open_part_count--;
    *count_queued(lookup) -= 1;
    const uint64_t begun_ns = part->work.begun_ns;
    if (begun_ns != 0 && (lookup->begun_ns == 0 || begun_ns < lookup->begun_ns)) {
        lookup->begun_ns = begun_ns;
    }
    if (part->outcome == EB_WORK_EXPIRED && lookup->error.status == EB_STATUS_OK) {
        lookup->refusal = EB_REFUSAL_EXPIRED;
        eb_error_set(&lookup->error, EB_STATUS_DEADLINE_EXCEEDED,
            "the deadline passed while the request was queued");
    }
    if (lookup->open_part_count > 0) {
        give_part(lookup, answer);
    } else {
        if (lookup->part_count > 1) {
            eb_lookup_response_set_last(eb_reply_body(answer));
        }
        lookup->answer = answer;
        conclude_lookup(lookup);
        home->on_finish(lookup);
    }
    eb_loop_release(home->loop);
}

/* On a thread of the executor. */
static void on_work_done(struct eb_work *work, enum eb_work_outcome outcome)
{
    struct eb_lookup_part *part =
        (struct eb_lookup_part *)((char *)work - offsetof(struct eb_lookup_part, work));
    part->outcome = outcome;
    part->mail.deliver = on_lookup_back;
    eb_mailbox_post(eb_loop_mailbox(part->lookup->home->loop), &part->mail);
}

static bool is_small(const struct eb_lookup *lookup)
{
    const struct eb_plan *plan = &lookup->plan;
    uint64_t gather_bytes =
        plan->counts.gather_bytes * eb_bag_ops_slowness(lookup->home->context->ops);
    uint64_t work_us = gather_bytes / GATHER_BYTES_PER_US +
                       plan->counts.values_bytes / WRITE_BYTES_PER_US +
                       plan->counts.result_rows / BAGS_PER_US;
    return lookup->home->queued_count == 0 && !lookup->is_batch &&
           work_us < lookup->home->context->limits->inline_below_us;
}

static bool refuse_lookup(
    struct eb_lookup *lookup, enum eb_admit admit, const struct eb_admission *admission)
{
    lookup->pushback_ms = admission->retry_after_ms;
    lookup->refusal = admit == EB_ADMIT_LATE ? EB_REFUSAL_LATE : EB_REFUSAL_QUEUE_FULL;
    if (admit == EB_ADMIT_LATE) {
        eb_error_set(&lookup->error, EB_STATUS_DEADLINE_EXCEEDED,
            "the deadline cannot be met: more is queued before it; come again in %u ms",
            lookup->pushback_ms);
    } else {
        eb_error_set(&lookup->error, EB_STATUS_RESOURCE_EXHAUSTED,
            "the queue is full (queue_bytes_max); come again in %u ms", lookup->pushback_ms);
    }
    return false;
}

/* Hands everything over. false: refused, with its error set. */
static bool submit_works(struct eb_lookup *lookup)
{
    struct eb_lookup_home *home = lookup->home;
    const size_t count = lookup->part_count;
    struct eb_admission admission;
    struct eb_work **works = eb_arena_take(&lookup->arena, count * sizeof(struct eb_work *));
    if (!works) {
        return eb_plan_refuse_memory(&lookup->error, "the answer's parts");
    }
    for (size_t i = 0; i < count; i++) {
        works[i] = &lookup->parts[i].work;
        works[i]->weight_bytes = weigh_jobs(
            &lookup->plan, (size_t)(works[i]->jobs - lookup->plan.jobs), works[i]->job_count);
        works[i]->deadline_ns = lookup->deadline_ns;
        works[i]->cancelled = &lookup->cancelled;
        works[i]->priority = lookup->request->priority;
        works[i]->source = lookup->conn;
        works[i]->on_done = on_work_done;
    }
    const enum eb_admit admit =
        eb_executor_admit(home->context->executor, works, count, &admission);
    if (admit != EB_ADMIT_TAKEN) {
        return refuse_lookup(lookup, admit, &admission);
    }
    /* The mails that end them come to this thread, later. */
    lookup->state = EB_LOOKUP_QUEUED;
    lookup->open_part_count = count;
    *count_queued(lookup) += count;
    for (size_t i = 0; i < count; i++) {
        eb_loop_hold(home->loop);
    }
    return true;
}

/* All of it, here and now. */
static void compute(struct eb_lookup *lookup, uint64_t now_ns)
{
    const struct eb_lookup_context *context = lookup->home->context;
    const struct eb_work *work = &lookup->whole.work;
    struct eb_bag_stream stream;
    lookup->begun_ns = now_ns;
    lookup->is_inline = true;
    if (work->job_count > 0) {
        const struct eb_bag_tile all = {
            .jobs = work->jobs,
            .job_count = work->job_count,
            .bag_end = work->jobs[work->job_count - 1].bag_count,
            .element_end = UINT32_MAX,
        };
        eb_bag_stream_init(&stream, context->ops, context->schedules);
        eb_bag_stream_pool(&stream, &all, NULL);
    }
    lookup->answer = lookup->whole.answer;
    lookup->whole.answer = NULL;
}

static bool is_in_time(struct eb_lookup *lookup, uint64_t now_ns)
{
    if (now_ns >= lookup->deadline_ns) {
        lookup->refusal = EB_REFUSAL_EXPIRED;
        eb_error_set(&lookup->error, EB_STATUS_DEADLINE_EXCEEDED,
            "the deadline passed before the request was read and checked");
        return false;
    }
    return true;
}

/* What was checked and laid out. false: QUEUED. */
static bool compute_or_submit(struct eb_lookup *lookup, bool is_inline)
{
    const uint64_t now_ns = uv_hrtime();
    lookup->looked_ns = now_ns;
    lookup->state = EB_LOOKUP_CHECKED;
    if (!is_in_time(lookup, now_ns)) {
        return true;
    }
    if (is_inline) {
        compute(lookup, now_ns);
        return true;
    }
    return !submit_works(lookup);
}

bool eb_lookup_run(struct eb_lookup *lookup)
{
    const bool is_slow = lookup->message.size >= SLOW_MESSAGE_BYTES;
    if ((!is_slow || is_in_time(lookup, uv_hrtime())) && check_lookup(lookup)) {
        const bool is_inline = is_small(lookup);
        if (lay_out_all(lookup, is_inline) && check_share(lookup) &&
            !compute_or_submit(lookup, is_inline)) {
            return false;
        }
    }
    note_shortage(lookup);
    conclude_lookup(lookup);
    return true;
}

void eb_lookup_refuse_batch(struct eb_lookup *lookup)
{
    lookup->refusal = EB_REFUSAL_BATCH;
    lookup->pushback_ms = eb_executor_retry_after_ms(lookup->home->context->executor);
    eb_error_set(&lookup->error, EB_STATUS_RESOURCE_EXHAUSTED,
        "too much of batch priority waits on this connection; come again in %u ms",
        lookup->pushback_ms);
}

void eb_lookup_cancel(struct eb_lookup *lookup)
{
    atomic_store_explicit(&lookup->cancelled, true, memory_order_relaxed);
}
