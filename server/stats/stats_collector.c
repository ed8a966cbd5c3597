#include "server/stats/stats_collector.h"

#include "server/base/clock.h"
#include "server/stats/table_sums.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#define PHASE_COUNT (EB_STATS_DRAINING + 1)

/* A request to one loop, on its way there and back. */
struct loop_mail {
    struct eb_mail mail;
    struct eb_stats_collector *collector;
    struct eb_loop *loop;
    bool is_bare;
    struct eb_loop_stats stats; /* left empty if is_bare */
};

struct phase_mail {
    struct eb_mail mail;
    struct eb_stats_collector *collector;
    enum eb_stats_phase phase;
};

struct facts_mail {
    struct eb_mail mail;
    struct eb_stats_collector *collector;
    struct eb_process_facts facts;
};

struct route_mail {
    struct eb_mail mail;
    struct eb_stats_collector *collector;
    struct eb_route_facts *facts;
};

struct attach_mail {
    struct eb_mail mail;
    struct eb_stats_collector *collector;
    struct eb_loop *const *loops;
    size_t loop_count;
    struct eb_executor *executor;
    struct eb_snapshot *snapshot;
};

struct detach_mail {
    struct eb_mail mail;
    struct eb_stats_collector *collector;
};

struct eb_stats_collector {
    const struct eb_stats_provider *provider;
    struct eb_mailbox *mailbox; /* the owner's; only its thread uses what is below */
    enum eb_stats_phase phase;
    uint64_t started_unix_ms;
    struct eb_loop *const *loops;
    size_t loop_count;
    struct eb_executor *executor; /* NULL if not attached */
    struct eb_snapshot *snapshot;
    struct eb_process_facts facts;
    struct eb_route_facts *route; /* NULL if this is no router, or nothing is known yet */
    struct eb_list requests;      /* the first is being served */
    struct loop_mail
        *loop_mails;   /* [loop_count], on their way; NULL if no request is being served */
    size_t open_count; /* loop_mails that are not back yet */
    bool is_serving;   /* serve_requests is running */
    bool is_detaching;
    /* Owned by the main thread until they are posted. */
    struct phase_mail phases[PHASE_COUNT];
    struct attach_mail attachment;
    struct detach_mail detachment;
    uv_sem_t detached;
};

/* ---- making stats ---- */

/* Copies a text that may be NULL. Returns false if out of memory. */
static bool copy_optional_text(const char *from, char **to)
{
    *to = from ? strdup(from) : NULL;
    return *to || !from;
}

/* Splits the pages of tables. `bytes_2m` of their bytes are in pages of 2 MiB now. */
static struct eb_stats_page_bytes split_pages(const struct eb_page_count *pages, uint64_t bytes_2m)
{
    return (struct eb_stats_page_bytes){
        .small = pages->bytes - bytes_2m - pages->bytes_1g,
        .huge_2m = bytes_2m,
        .huge_1g = pages->bytes_1g,
    };
}

static void copy_loaded(const struct eb_model_version *from, struct eb_stats_version *to)
{
    const struct eb_table_set *tables = &from->tables;
    to->loaded_unix_ms = from->loaded_unix_ms;
    to->load_ms = from->load_ms;
    to->tables = tables->count;
    to->bytes = tables->bytes;
    to->pages = split_pages(&tables->pages, atomic_load(&tables->bytes_2m));
    bool is_hugetlbfs = tables->file_fs == EB_RESIDENT_HUGETLBFS;
    *(is_hugetlbfs ? &to->hugetlbfs_pages : &to->tmpfs_pages) =
        split_pages(&tables->file_pages, atomic_load(&tables->file_bytes_2m));
    for (size_t i = 0; i < tables->count; i++) {
        to->rows += tables->tables[i].dims[0];
    }
}

static bool copy_version(const struct eb_snapshot_version *from, struct eb_stats_version *to)
{
    to->number = from->number;
    to->state = from->state;
    to->is_claimed = from->is_claimed;
    to->is_served_by_router = from->is_served_by_router;
    if (from->loaded) {
        copy_loaded(from->loaded, to);
    }
    return copy_optional_text(from->failure, &to->failure);
}

static bool copy_model(const struct eb_snapshot_model *from, struct eb_stats_model *to)
{
    to->served = from->served ? from->served->version : 0;
    to->claims = from->claims;
    to->versions = calloc(from->version_count + 1, sizeof *to->versions);
    bool is_good = to->versions && copy_optional_text(from->name, &to->name) &&
                   copy_optional_text(from->failure, &to->failure);
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

/* Merges the tables of all loops into the stats. Returns false if out of memory. */
static bool merge_tables(const struct eb_stats_collector *collector, struct eb_stats *stats)
{
    const struct eb_table_sums **sums =
        calloc(collector->loop_count + 1, sizeof(const struct eb_table_sums *));
    bool is_good = sums;
    for (size_t i = 0; is_good && i < collector->loop_count; i++) {
        sums[i] = collector->loop_mails[i].stats.tables;
        is_good = sums[i];
    }
    is_good = is_good && eb_table_sums_merge(sums, collector->loop_count, stats);
    free(sums);
    return is_good;
}

/* Adds what a router counts and knows. Returns false if out of memory. */
static bool add_route(const struct eb_stats_collector *collector, struct eb_stats *stats)
{
    size_t count = collector->loop_count;
    if (count == 0 || !collector->loop_mails[0].stats.is_router) {
        return true;
    }
    const struct eb_route_counts **counts = calloc(count, sizeof(const struct eb_route_counts *));
    bool is_good = counts;
    for (size_t i = 0; is_good && i < count; i++) {
        counts[i] = collector->loop_mails[i].stats.route;
        is_good = counts[i];
    }
    stats->route = is_good ? eb_route_counts_merge(counts, count) : NULL;
    free(counts);
    return stats->route;
}

/* Adds the loops' counts, the models, and all other counts. Returns false if out of memory. */
static bool add_counts(const struct eb_stats_collector *collector, struct eb_stats *stats)
{
    for (size_t i = 0; i < collector->loop_count; i++) {
        eb_stats_add(stats, &collector->loop_mails[i].stats);
    }
    stats->facts = collector->facts;
    if (collector->route) {
        stats->route_facts = collector->route;
        stats->route_facts->holds++;
    }
    collector->provider->list_methods(stats);
    if (collector->executor) {
        eb_executor_count(collector->executor, &stats->executor);
    }
    return merge_tables(collector, stats) && add_route(collector, stats) &&
           (!collector->snapshot || copy_models(collector->snapshot, stats));
}

/* Returns NULL if out of memory. */
static struct eb_stats *make_stats(const struct eb_stats_collector *collector, bool is_bare)
{
    struct eb_stats *stats = eb_stats_make(collector->loop_count);
    if (!stats || (!is_bare && !add_counts(collector, stats))) {
        eb_stats_free(stats);
        return NULL;
    }
    stats->phase = collector->phase;
    stats->taken_unix_ms = eb_clock_unix_ms();
    stats->started_unix_ms = collector->started_unix_ms;
    return stats;
}

/* ---- one request after the other ---- */

static struct eb_stats_request *first_request(const struct eb_stats_collector *collector)
{
    return EB_CONTAINER_OF(collector->requests.next, struct eb_stats_request, link);
}

/* Ends the request that is being served, and passes it `stats`, which is NULL if there are none. */
static void end_request(struct eb_stats_collector *collector, struct eb_stats *stats)
{
    struct eb_stats_request *request = first_request(collector);
    eb_list_remove(&request->link);
    request->on_taken(request, stats);
}

/* Ends the request that is being served, when all loops have answered. */
static void finish_request(struct eb_stats_collector *collector)
{
    struct eb_stats *stats = make_stats(collector, first_request(collector)->is_bare);
    for (size_t i = 0; i < collector->loop_count; i++) {
        free(collector->loop_mails[i].stats.tables);
        free(collector->loop_mails[i].stats.route);
    }
    free(collector->loop_mails);
    collector->loop_mails = NULL;
    if (collector->is_detaching) {
        uv_sem_post(&collector->detached);
    }
    end_request(collector, stats);
}

static void serve_requests(struct eb_stats_collector *collector);

static void on_loop_answer(struct eb_mail *mail)
{
    struct eb_stats_collector *collector = EB_CONTAINER_OF(mail, struct loop_mail, mail)->collector;
    collector->open_count--;
    if (collector->open_count == 0) {
        finish_request(collector);
        serve_requests(collector);
    }
}

/* Runs on the loop's thread. */
static void on_loop_request(struct eb_mail *mail)
{
    struct loop_mail *asked = EB_CONTAINER_OF(mail, struct loop_mail, mail);
    if (!asked->is_bare) {
        asked->collector->provider->gather(asked->loop, &asked->stats);
    }
    mail->deliver = on_loop_answer;
    eb_mailbox_post(asked->collector->mailbox, mail);
}

/* Asks the loops for their stats, for the first request. Returns false if out of memory or after
 * detach. */
static bool ask_loops(struct eb_stats_collector *collector)
{
    if (collector->is_detaching) {
        return false;
    }
    collector->loop_mails = calloc(collector->loop_count + 1, sizeof *collector->loop_mails);
    if (!collector->loop_mails) {
        return false;
    }
    collector->open_count = collector->loop_count;
    for (size_t i = 0; i < collector->loop_count; i++) {
        struct loop_mail *asked = &collector->loop_mails[i];
        asked->mail.deliver = on_loop_request;
        asked->collector = collector;
        asked->loop = collector->loops[i];
        asked->is_bare = first_request(collector)->is_bare;
        eb_mailbox_post(collector->provider->mailbox(asked->loop), &asked->mail);
    }
    return true;
}

/* Serves requests until the loops have been asked or no request is left. Callbacks of requests may
 * add requests. */
static void serve_requests(struct eb_stats_collector *collector)
{
    if (collector->is_serving) {
        return;
    }
    collector->is_serving = true;
    while (!eb_list_is_empty(&collector->requests) && !collector->loop_mails) {
        if (!ask_loops(collector)) {
            end_request(collector, NULL);
        } else if (collector->open_count == 0) {
            finish_request(collector);
        }
    }
    collector->is_serving = false;
}

void eb_stats_collector_request(
    struct eb_stats_collector *collector, struct eb_stats_request *request)
{
    assert(collector->mailbox);
    eb_list_push(&collector->requests, &request->link);
    serve_requests(collector);
}

enum eb_stats_phase eb_stats_collector_phase(const struct eb_stats_collector *collector)
{
    return collector->phase;
}

const char *eb_stats_collector_not_ready(const struct eb_stats_collector *collector)
{
    if (collector->route) {
        return collector->route->not_ready;
    }
    return collector->snapshot ? collector->snapshot->not_ready : NULL;
}

struct eb_snapshot *eb_stats_collector_swap(
    struct eb_stats_collector *collector, struct eb_snapshot *snapshot)
{
    struct eb_snapshot *former = collector->snapshot;
    collector->snapshot = snapshot;
    return former;
}

/* ---- mails of the main thread ---- */

static void on_attach(struct eb_mail *mail)
{
    const struct attach_mail *attachment = EB_CONTAINER_OF(mail, struct attach_mail, mail);
    struct eb_stats_collector *collector = attachment->collector;
    assert(!collector->loop_mails); /* Without loops each request ends at once. */
    collector->loops = attachment->loops;
    collector->loop_count = attachment->loop_count;
    collector->executor = attachment->executor;
    collector->snapshot = attachment->snapshot;
}

void eb_stats_collector_attach(struct eb_stats_collector *collector, struct eb_loop *const *loops,
    size_t loop_count, struct eb_executor *executor, struct eb_snapshot *snapshot)
{
    collector->attachment = (struct attach_mail){
        {.deliver = on_attach}, collector, loops, loop_count, executor, snapshot};
    eb_mailbox_post(collector->mailbox, &collector->attachment.mail);
}

static void on_phase(struct eb_mail *mail)
{
    const struct phase_mail *told = EB_CONTAINER_OF(mail, struct phase_mail, mail);
    told->collector->phase = told->phase;
}

void eb_stats_collector_set_phase(struct eb_stats_collector *collector, enum eb_stats_phase phase)
{
    struct phase_mail *told = &collector->phases[phase];
    assert(!told->collector);
    *told = (struct phase_mail){{.deliver = on_phase}, collector, phase};
    eb_mailbox_post(collector->mailbox, &told->mail);
}

static void on_facts(struct eb_mail *mail)
{
    struct facts_mail *told = EB_CONTAINER_OF(mail, struct facts_mail, mail);
    told->collector->facts = told->facts;
    free(told);
}

void eb_stats_collector_set_facts(
    struct eb_stats_collector *collector, const struct eb_process_facts *facts)
{
    struct facts_mail *told = malloc(sizeof *told);
    if (told) {
        *told = (struct facts_mail){{.deliver = on_facts}, collector, *facts};
        eb_mailbox_post(collector->mailbox, &told->mail);
    }
}

static void on_route(struct eb_mail *mail)
{
    struct route_mail *told = EB_CONTAINER_OF(mail, struct route_mail, mail);
    eb_route_facts_drop(told->collector->route);
    told->collector->route = told->facts;
    free(told);
}

void eb_stats_collector_set_route(
    struct eb_stats_collector *collector, struct eb_route_facts *facts)
{
    struct route_mail *told = malloc(sizeof *told);
    if (told) {
        *told = (struct route_mail){{.deliver = on_route}, collector, facts};
        eb_mailbox_post(collector->mailbox, &told->mail);
    } else {
        eb_route_facts_drop(facts);
    }
}

static void on_detach(struct eb_mail *mail)
{
    struct eb_stats_collector *collector =
        EB_CONTAINER_OF(mail, struct detach_mail, mail)->collector;
    collector->is_detaching = true;
    if (!collector->loop_mails) {
        uv_sem_post(&collector->detached);
    }
}

void eb_stats_collector_detach(struct eb_stats_collector *collector)
{
    collector->detachment = (struct detach_mail){{.deliver = on_detach}, collector};
    eb_mailbox_post(collector->mailbox, &collector->detachment.mail);
    uv_sem_wait(&collector->detached);
}

/* ---- life ---- */

struct eb_stats_collector *eb_stats_collector_create(const struct eb_stats_provider *provider)
{
    struct eb_stats_collector *collector = calloc(1, sizeof *collector);
    if (!collector || uv_sem_init(&collector->detached, 0) < 0) {
        free(collector);
        return NULL;
    }
    collector->provider = provider;
    collector->started_unix_ms = eb_clock_unix_ms();
    eb_list_init(&collector->requests);
    return collector;
}

void eb_stats_collector_destroy(struct eb_stats_collector *collector)
{
    if (!collector) {
        return;
    }
    assert(eb_list_is_empty(&collector->requests) && !collector->loop_mails);
    eb_route_facts_drop(collector->route);
    uv_sem_destroy(&collector->detached);
    free(collector);
}

void eb_stats_collector_open(struct eb_stats_collector *collector, struct eb_mailbox *mailbox)
{
    collector->mailbox = mailbox;
}
