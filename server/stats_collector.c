#include "server/stats_collector.h"

#include "server/base/clock.h"
#include "server/rpc/service.h"
#include "server/stats/table_stats.h"
#include "server/work/executor.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define PHASE_COUNT (EB_STATS_DRAINING + 1)

/* What a loop is asked for, on its way to it and back. */
struct question {
    struct eb_mail mail;
    struct eb_stats_collector *taker;
    struct eb_loop *loop;
    bool is_bare;
    struct eb_loop_stats part; /* left empty where it is bare */
};

struct phase_mail {
    struct eb_mail mail;
    struct eb_stats_collector *taker;
    enum eb_stats_phase phase;
};

struct facts_mail {
    struct eb_mail mail;
    struct eb_stats_collector *taker;
    struct eb_process_facts facts;
};

struct attach_mail {
    struct eb_mail mail;
    struct eb_stats_collector *taker;
    struct eb_loop *const *loops;
    size_t loop_count;
    struct eb_executor *executor;
    struct eb_snapshot *snapshot;
};

struct detach_mail {
    struct eb_mail mail;
    struct eb_stats_collector *taker;
};

struct eb_stats_collector {
    struct eb_mailbox *mailbox; /* of its owner's thread, whose all below are */
    enum eb_stats_phase phase;
    uint64_t started_unix_ms;
    struct eb_loop *const *loops;
    size_t loop_count;
    struct eb_executor *executor; /* NULL: not attached */
    struct eb_snapshot *snapshot;
    struct eb_process_facts facts;
    struct eb_stats_request *first; /* what is being taken, and those that wait */
    struct eb_stats_request **end;
    struct question *questions; /* [loop_count], on their way; NULL: nothing is being taken */
    size_t open_count;          /* of them */
    bool is_going_on;
    bool is_detaching;
    /* Main's, until they are posted. */
    struct phase_mail phases[PHASE_COUNT];
    struct attach_mail attachment;
    struct detach_mail detachment;
    uv_sem_t detached;
};

/* ---- what stats is made of ---- */

static void fill_methods(struct eb_stats *stats)
{
    const struct eb_method_table *table;
    assert(eb_method_count() < EB_COUNTERS_METHODS_MAX);
    for (size_t i = 0; (table = eb_method_table_at(i)); i++) {
        for (size_t k = 0; k < table->count; k++) {
            stats->methods[stats->method_count++] =
                (struct eb_stats_method){table->service, table->methods[k].name};
        }
    }
    stats->methods[stats->method_count++] = (struct eb_stats_method){"", ""};
}

/* A copy of a text that may be NULL. false: no memory. */
static bool copy_text(const char *from, char **to)
{
    *to = from ? strdup(from) : NULL;
    return *to || !from;
}

static void copy_loaded(const struct eb_model_version *from, struct eb_stats_version *to)
{
    const struct eb_table_set *tables = &from->tables;
    to->loaded_unix_ms = from->loaded_unix_ms;
    to->load_ms = from->load_ms;
    to->tables = tables->count;
    to->bytes = tables->bytes;
    to->pages = (struct eb_stats_page_bytes){
        .small = tables->pages.bytes - tables->pages.bytes_2m - tables->pages.bytes_1g,
        .huge_2m = tables->pages.bytes_2m,
        .huge_1g = tables->pages.bytes_1g,
    };
    for (size_t i = 0; i < tables->count; i++) {
        to->rows += tables->tables[i].dims[0];
    }
}

static bool copy_version(const struct eb_snapshot_version *from, struct eb_stats_version *to)
{
    to->number = from->number;
    to->state = from->state;
    if (from->loaded) {
        copy_loaded(from->loaded, to);
    }
    return copy_text(from->failure, &to->failure);
}

static bool copy_model(const struct eb_snapshot_model *from, struct eb_stats_model *to)
{
    to->served = from->served ? from->served->version : 0;
    to->versions = calloc(from->version_count + 1, sizeof *to->versions);
    bool is_good =
        to->versions && copy_text(from->name, &to->name) && copy_text(from->failure, &to->failure);
    for (size_t i = 0; is_good && i < from->version_count; i++) {
        is_good = copy_version(&from->versions[i], &to->versions[to->version_count++]);
    }
    return is_good;
}

static bool copy_models(const struct eb_snapshot *from, struct eb_stats *to)
{
    to->loads = from->loads;
    to->models = calloc(from->count + 1, sizeof *to->models);
    bool is_good = to->models;
    for (size_t i = 0; is_good && i < from->count; i++) {
        is_good = copy_model(&from->models[i], &to->models[to->model_count++]);
    }
    return is_good;
}

/* The loops' tables become those of the stats. false: no memory. */
static bool merge_tables(const struct eb_stats_collector *taker, struct eb_stats *stats)
{
    const struct eb_table_stats **parts =
        calloc(taker->loop_count + 1, sizeof(const struct eb_table_stats *));
    bool is_good = parts;
    for (size_t i = 0; is_good && i < taker->loop_count; i++) {
        parts[i] = taker->questions[i].part.tables;
        is_good = parts[i];
    }
    is_good = is_good && eb_table_stats_merge(parts, taker->loop_count, stats);
    free(parts);
    return is_good;
}

/* What the loops have answered, the models, and all else that is counted. false: no memory. */
static bool fill(const struct eb_stats_collector *taker, struct eb_stats *stats)
{
    for (size_t i = 0; i < taker->loop_count; i++) {
        eb_stats_add(stats, &taker->questions[i].part);
    }
    stats->facts = taker->facts;
    fill_methods(stats);
    if (taker->executor) {
        eb_executor_count(taker->executor, &stats->executor);
    }
    return merge_tables(taker, stats) && (!taker->snapshot || copy_models(taker->snapshot, stats));
}

/* NULL: no memory. */
static struct eb_stats *compile(const struct eb_stats_collector *taker)
{
    struct eb_stats *stats = eb_stats_make(taker->loop_count);
    if (!stats || (!taker->first->is_bare && !fill(taker, stats))) {
        eb_stats_free(stats);
        return NULL;
    }
    stats->phase = taker->phase;
    stats->taken_unix_ms = eb_clock_unix_ms();
    stats->started_unix_ms = taker->started_unix_ms;
    return stats;
}

/* ---- one after the other ---- */

static void give(struct eb_stats_collector *taker, struct eb_stats *stats)
{
    struct eb_stats_request *request = taker->first;
    taker->first = request->next;
    if (!taker->first) {
        taker->end = &taker->first;
    }
    request->on_taken(request, stats);
}

static void end(struct eb_stats_collector *taker)
{
    struct eb_stats *stats = compile(taker);
    for (size_t i = 0; i < taker->loop_count; i++) {
        free(taker->questions[i].part.tables);
    }
    free(taker->questions);
    taker->questions = NULL;
    if (taker->is_detaching) {
        uv_sem_post(&taker->detached);
    }
    give(taker, stats);
}

static void go_on(struct eb_stats_collector *taker);

static void on_answer(struct eb_mail *mail)
{
    struct eb_stats_collector *taker = ((struct question *)mail)->taker;
    taker->open_count--;
    if (taker->open_count == 0) {
        end(taker);
        go_on(taker);
    }
}

/* On the loop's thread. */
static void on_question(struct eb_mail *mail)
{
    struct question *question = (struct question *)mail;
    if (!question->is_bare) {
        eb_service_count(question->loop, &question->part);
    }
    question->mail.deliver = on_answer;
    eb_mailbox_post(question->taker->mailbox, &question->mail);
}

/* Asks the loops. false: no memory, or there will be none any more. */
static bool begin(struct eb_stats_collector *taker)
{
    if (taker->is_detaching) {
        return false;
    }
    taker->questions = calloc(taker->loop_count + 1, sizeof *taker->questions);
    if (!taker->questions) {
        return false;
    }
    taker->open_count = taker->loop_count;
    for (size_t i = 0; i < taker->loop_count; i++) {
        struct question *question = &taker->questions[i];
        question->mail.deliver = on_question;
        question->taker = taker;
        question->loop = taker->loops[i];
        question->is_bare = taker->first->is_bare;
        eb_mailbox_post(eb_loop_mailbox(question->loop), &question->mail);
    }
    return true;
}

/* Begins what is wished for, unless the loops are being asked; who is told may ask again. */
static void go_on(struct eb_stats_collector *taker)
{
    if (taker->is_going_on) {
        return;
    }
    taker->is_going_on = true;
    while (taker->first && !taker->questions) {
        if (!begin(taker)) {
            give(taker, NULL);
        } else if (taker->open_count == 0) {
            end(taker);
        }
    }
    taker->is_going_on = false;
}

void eb_stats_collector_ask(void *context, struct eb_stats_request *request)
{
    struct eb_stats_collector *taker = context;
    assert(taker->mailbox);
    request->next = NULL;
    *taker->end = request;
    taker->end = &request->next;
    go_on(taker);
}

enum eb_stats_phase eb_stats_collector_phase(const void *taker)
{
    return ((const struct eb_stats_collector *)taker)->phase;
}

struct eb_snapshot *eb_stats_collector_swap(void *context, struct eb_snapshot *snapshot)
{
    struct eb_stats_collector *taker = context;
    struct eb_snapshot *former = taker->snapshot;
    taker->snapshot = snapshot;
    return former;
}

/* ---- what main says ---- */

static void on_attach(struct eb_mail *mail)
{
    const struct attach_mail *attachment = (struct attach_mail *)mail;
    struct eb_stats_collector *taker = attachment->taker;
    assert(!taker->questions); /* Without loops none lasts. */
    taker->loops = attachment->loops;
    taker->loop_count = attachment->loop_count;
    taker->executor = attachment->executor;
    taker->snapshot = attachment->snapshot;
}

void eb_stats_collector_attach(struct eb_stats_collector *taker, struct eb_loop *const *loops,
    size_t loop_count, struct eb_executor *executor, struct eb_snapshot *snapshot)
{
    taker->attachment =
        (struct attach_mail){{.deliver = on_attach}, taker, loops, loop_count, executor, snapshot};
    eb_mailbox_post(taker->mailbox, &taker->attachment.mail);
}

static void on_phase(struct eb_mail *mail)
{
    const struct phase_mail *said = (struct phase_mail *)mail;
    said->taker->phase = said->phase;
}

void eb_stats_collector_say(struct eb_stats_collector *taker, enum eb_stats_phase phase)
{
    struct phase_mail *said = &taker->phases[phase];
    assert(!said->taker);
    *said = (struct phase_mail){{.deliver = on_phase}, taker, phase};
    eb_mailbox_post(taker->mailbox, &said->mail);
}

static void on_facts(struct eb_mail *mail)
{
    struct facts_mail *told = (struct facts_mail *)mail;
    told->taker->facts = told->facts;
    free(told);
}

void eb_stats_collector_tell(struct eb_stats_collector *taker, const struct eb_process_facts *facts)
{
    struct facts_mail *told = malloc(sizeof *told);
    if (told) {
        *told = (struct facts_mail){{.deliver = on_facts}, taker, *facts};
        eb_mailbox_post(taker->mailbox, &told->mail);
    }
}

static void on_detach(struct eb_mail *mail)
{
    struct eb_stats_collector *taker = ((struct detach_mail *)mail)->taker;
    taker->is_detaching = true;
    if (!taker->questions) {
        uv_sem_post(&taker->detached);
    }
}

void eb_stats_collector_detach(struct eb_stats_collector *taker)
{
    taker->detachment = (struct detach_mail){{.deliver = on_detach}, taker};
    eb_mailbox_post(taker->mailbox, &taker->detachment.mail);
    uv_sem_wait(&taker->detached);
}

/* ---- life ---- */

struct eb_stats_collector *eb_stats_collector_create(void)
{
    struct eb_stats_collector *taker = calloc(1, sizeof *taker);
    if (!taker || uv_sem_init(&taker->detached, 0) < 0) {
        free(taker);
        return NULL;
    }
    taker->started_unix_ms = eb_clock_unix_ms();
    taker->end = &taker->first;
    return taker;
}

void eb_stats_collector_destroy(struct eb_stats_collector *taker)
{
    if (!taker) {
        return;
    }
    assert(!taker->first && !taker->questions);
    uv_sem_destroy(&taker->detached);
    free(taker);
}

void eb_stats_collector_open(void *context, struct eb_mailbox *mailbox)
{
    struct eb_stats_collector *taker = context;
    taker->mailbox = mailbox;
}

struct eb_stats_source eb_stats_collector_source(struct eb_stats_collector *taker)
{
    return (struct eb_stats_source){
        taker, eb_stats_collector_open, eb_stats_collector_ask, eb_stats_collector_phase};
}
