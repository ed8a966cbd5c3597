#include "server/publish/loader.h"

#include "proto/list.h"
#include "server/base/machine.h"
#include "server/models/repository.h"
#include "server/publish/model_log.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NS_PER_S UINT64_C(1000000000)
/* Longest sleep of a reader, and so the longest time until it notices that it was cancelled. A
 * server that shuts down may have to wait this long. */
#define SLEEP_NS_MAX UINT64_C(50000000)
/* Most threads of a load at start. Beyond that a disk gains little. */
#define FIRST_THREADS_MAX 16u

/* ---- threads ---- */

/* Ends the first `count` workers that load. */
static void stop_workers(struct eb_loader *loader, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        eb_worker_stop(&loader->workers[i]);
    }
}

int eb_loader_open(struct eb_loader *loader, uv_loop_t *owner)
{
    size_t count = 0;
    int rc = eb_worker_start(&loader->freer, owner);
    if (rc < 0) {
        return rc;
    }
    while (count < EB_LOADS_AT_ONCE && rc == 0) {
        rc = eb_worker_start(&loader->workers[count], owner);
        count += rc == 0;
    }
    if (rc < 0) {
        stop_workers(loader, count);
        eb_worker_stop(&loader->freer);
    }
    return rc;
}

void eb_loader_give_way(struct eb_loader *loader)
{
    for (size_t i = 0; i < EB_LOADS_AT_ONCE; i++) {
        eb_worker_give_way(&loader->workers[i]);
    }
    eb_worker_give_way(&loader->freer);
}

bool eb_loader_is_busy(const struct eb_loader *loader)
{
    bool is_busy = loader->freer.job_count > 0;
    for (size_t i = 0; i < EB_LOADS_AT_ONCE; i++) {
        is_busy = is_busy || loader->workers[i].job_count > 0;
    }
    return is_busy;
}

void eb_loader_close(struct eb_loader *loader)
{
    stop_workers(loader, EB_LOADS_AT_ONCE);
    eb_worker_stop(&loader->freer);
}

unsigned eb_loader_choose_threads(uint64_t load_threads, bool is_first)
{
    if (load_threads > 0) {
        return (unsigned)load_threads;
    }
    unsigned cpus = eb_machine_cpu_count("");
    unsigned most = cpus * 2 < FIRST_THREADS_MAX ? cpus * 2 : FIRST_THREADS_MAX;
    unsigned few = cpus / 4 > 0 ? cpus / 4 : 1;
    return is_first ? most : few;
}

static void give_residents(struct eb_load *load)
{
    for (size_t i = 0; i < load->resident_count; i++) {
        eb_model_version_give(load->residents[i]);
    }
    free(load->residents);
    load->residents = NULL;
    load->resident_count = 0;
}

static void free_load(struct eb_load *load)
{
    eb_read_watch_deinit(&load->watch);
    eb_model_settings_give(load->settings);
    free(load->path);
    free(load->model);
    free(load);
}

/* ---- unloading ---- */

static void run_free(struct eb_job *job)
{
    eb_model_version_free(EB_CONTAINER_OF(job, struct eb_load, job)->version);
}

static void on_free_done(struct eb_job *job)
{
    struct eb_load *load = EB_CONTAINER_OF(job, struct eb_load, job);
    load->loader->on_freed(load->loader, load->model, load->number);
    free_load(load);
}

static void on_unused_mail(struct eb_mail *mail)
{
    struct eb_load *load = EB_CONTAINER_OF(mail, struct eb_load, unused);
    load->job = (struct eb_job){.run = run_free, .done = on_free_done};
    eb_worker_post(&load->loader->freer, &load->job);
}

/* Runs on any thread. */
static void on_unused(struct eb_model_version *version)
{
    struct eb_load *load = version->owner;
    load->unused.deliver = on_unused_mail;
    eb_mailbox_post(load->loader->mailbox, &load->unused);
}

/* ---- loading ---- */

/* A progress report on its way from the loading thread. */
struct progress {
    struct eb_mail mail;
    struct eb_loader *loader;
    uint64_t done_bytes;
    uint64_t total_bytes;
    char path[];
};

static void on_progress_mail(struct eb_mail *mail)
{
    struct progress *progress = EB_CONTAINER_OF(mail, struct progress, mail);
    struct eb_loader *loader = progress->loader;
    loader->on_progress(loader, progress->path, progress->done_bytes, progress->total_bytes);
    free(progress);
}

/* Sends a progress report. It arrives before the report that the load is done, because both take
 * the same way. Sends none if out of memory. */
static void tell_progress(
    const struct eb_load *load, const char *path, uint64_t done_bytes, uint64_t total_bytes)
{
    struct eb_loader *loader = load->loader;
    size_t path_bytes = strlen(path) + 1;
    struct progress *progress = malloc(sizeof *progress + path_bytes);
    if (progress) {
        *progress = (struct progress){
            .mail = {.deliver = on_progress_mail},
            .loader = loader,
            .done_bytes = done_bytes,
            .total_bytes = total_bytes,
        };
        memcpy(progress->path, path, path_bytes);
        eb_mailbox_post(&load->job.worker->results, &progress->mail);
    }
}

/* Returns the rate since the last report, and notes this one. */
static double measure_rate(struct eb_load *load, uint64_t done_bytes)
{
    uint64_t now_ns = uv_hrtime();
    uint64_t passed_ns = now_ns - load->reported_ns;
    uint64_t fresh_bytes =
        done_bytes > load->reported_bytes ? done_bytes - load->reported_bytes : 0;
    load->reported_ns = now_ns;
    load->reported_bytes = done_bytes;
    return passed_ns > 0 ? (double)fresh_bytes * (double)NS_PER_S / (double)passed_ns : 0;
}

/* Runs on the threads of the load. If one of them is in it, the others pass over their reports. */
static void on_loader_progress(
    void *context, const char *path, uint64_t done_bytes, uint64_t total_bytes)
{
    struct eb_load *load = context;
    if (atomic_flag_test_and_set_explicit(&load->is_reporting, memory_order_acquire)) {
        return;
    }
    atomic_store_explicit(&load->done_bytes, done_bytes, memory_order_relaxed);
    atomic_store_explicit(&load->total_bytes, total_bytes, memory_order_relaxed);
    eb_model_log_progress(path, done_bytes, total_bytes, measure_rate(load, done_bytes));
    if (load->loader->on_progress) {
        tell_progress(load, path, done_bytes, total_bytes);
    }
    atomic_flag_clear_explicit(&load->is_reporting, memory_order_release);
}

static bool is_load_cancelled(const struct eb_load *load)
{
    return atomic_load_explicit(&load->is_cancelled, memory_order_relaxed);
}

/* Sleeps until due_ns, when the pace allows the next read. Returns false if *is_cancelled is
 * set. */
static bool sleep_until(uint64_t due_ns, const atomic_bool *is_cancelled)
{
    bool is_over = atomic_load_explicit(is_cancelled, memory_order_relaxed);
    for (uint64_t now_ns = uv_hrtime(); now_ns < due_ns && !is_over; now_ns = uv_hrtime()) {
        uint64_t left_ns = due_ns - now_ns;
        struct timespec wait = {.tv_nsec = (long)(left_ns < SLEEP_NS_MAX ? left_ns : SLEEP_NS_MAX)};
        (void)nanosleep(&wait, NULL);
        is_over = atomic_load_explicit(is_cancelled, memory_order_relaxed);
    }
    return !is_over;
}

/* Adds the time that `bytes` take to the time when the next read of any load is due, and returns
 * the sum. Loads that were slower for some time may not catch up, so that there are no bursts. */
static uint64_t book_bytes(struct eb_loader *loader, uint64_t bytes, uint64_t bytes_per_s)
{
    uint64_t now_ns = uv_hrtime();
    uint64_t takes_ns = (uint64_t)((double)bytes * (double)NS_PER_S / (double)bytes_per_s);
    uint_fast64_t due_ns = atomic_load_explicit(&loader->due_ns, memory_order_relaxed);
    uint64_t next_ns;
    do {
        next_ns = due_ns + takes_ns > now_ns ? due_ns + takes_ns : now_ns;
    } while (!atomic_compare_exchange_weak_explicit(
        &loader->due_ns, &due_ns, next_ns, memory_order_relaxed, memory_order_relaxed));
    return next_ns;
}

bool eb_loader_keep_pace(struct eb_loader *loader, uint64_t bytes, const atomic_bool *is_cancelled)
{
    uint64_t bytes_per_s = atomic_load_explicit(&loader->bytes_per_s, memory_order_relaxed);
    uint64_t due_ns = bytes_per_s > 0 ? book_bytes(loader, bytes, bytes_per_s) : 0;
    return sleep_until(due_ns, is_cancelled);
}

/* Runs on the threads of a load, which sleep without a lock. */
static bool on_loader_bytes(void *context, uint64_t bytes)
{
    struct eb_load *load = context;
    return eb_loader_keep_pace(load->loader, bytes, &load->is_cancelled);
}

static void on_loader_stalled(void *context, const char *path, uint64_t seconds)
{
    struct eb_load *load = context;
    atomic_fetch_add_explicit(&load->stalled_reads, 1, memory_order_relaxed);
    eb_model_log_stalled(path, seconds);
}

static void on_loader_resumed(void *context)
{
    struct eb_load *load = context;
    atomic_fetch_sub_explicit(&load->stalled_reads, 1, memory_order_relaxed);
}

static void on_loader_short(void *context, uint64_t missing_bytes)
{
    ((struct eb_load *)context)->missing_bytes = missing_bytes;
}

static void run_load(struct eb_job *job)
{
    struct eb_load *load = EB_CONTAINER_OF(job, struct eb_load, job);
    struct eb_version_source source = {load->model, load->number, load->path, load->settings,
        load->residents, load->resident_count, load->served};
    struct eb_load_progress progress = {.report = on_loader_progress,
        .go_on = on_loader_bytes,
        .stalled = on_loader_stalled,
        .resumed = on_loader_resumed,
        .run_short = on_loader_short,
        .context = load};
    eb_read_watch_attach(&load->watch);
    struct eb_repository_terms terms = eb_repository_terms_of(&load->tables);
    load->files = eb_repository_stamp_files(load->path, &terms);
    /* Resident files say nothing about the version's files. */
    if (load->loader->markers && !load->served) {
        load->marker =
            eb_load_markers_begin(load->loader->markers, load->model, load->number, load->files);
    }
    /* A version that killed the process is loaded with as few threads and as little memory as
     * possible. */
    if (eb_load_marker_has_deaths(load->marker)) {
        load->tables.load_threads = 1;
    }
    load->start_ns = uv_hrtime();
    load->reported_ns = load->start_ns;
    load->version = eb_model_version_load(&source, &load->tables, &progress, &load->failure);
    eb_read_watch_attach(NULL);
    if (load->version) {
        load->outcome = EB_LOAD_DONE;
    } else {
        load->outcome = load->missing_bytes > 0 ? EB_LOAD_SHORT : EB_LOAD_FAILED;
    }
}

/* Removes the marker. Former deaths are forgotten only if the load has shown what the files do: it
 * has succeeded, or has failed because of them. */
static void end_marker(struct eb_load *load)
{
    bool is_broken =
        load->outcome == EB_LOAD_FAILED && !load->failure.is_transient && !is_load_cancelled(load);
    if (load->loader->markers) {
        eb_load_markers_end(
            load->loader->markers, load->marker, load->outcome == EB_LOAD_DONE || is_broken);
    }
}

static void on_load_done(struct eb_job *job)
{
    struct eb_load *load = EB_CONTAINER_OF(job, struct eb_load, job);
    end_marker(load);
    give_residents(load);
    if (load->version) {
        load->version->owner = load;
        load->version->on_unused = on_unused;
        load->loader->on_loaded(load->loader, load);
    } else {
        load->loader->on_loaded(load->loader, load);
        free_load(load);
    }
}

/* Returns NULL if out of memory. */
static struct eb_load *make_load(
    struct eb_loader *loader, const char *model, uint64_t number, const char *path)
{
    struct eb_load *load = calloc(1, sizeof *load);
    if (!load || !eb_read_watch_init(&load->watch)) {
        free(load);
        return NULL;
    }
    load->loader = loader;
    atomic_flag_clear(&load->is_reporting);
    load->number = number;
    load->model = strdup(model);
    load->path = strdup(path);
    if (!load->model || !load->path) {
        free_load(load);
        return NULL;
    }
    return load;
}

/* Takes references to the resident versions. Returns false with none taken if out of memory. */
static bool take_residents(struct eb_load *load, const struct eb_version_source *source)
{
    load->residents = calloc(source->resident_count + 1, sizeof *load->residents);
    if (!load->residents) {
        return false;
    }
    for (size_t i = 0; i < source->resident_count; i++) {
        load->residents[i] = eb_model_version_take(source->residents[i]);
    }
    load->resident_count = source->resident_count;
    return true;
}

void eb_loader_hurry(struct eb_loader *loader, uint64_t load_threads)
{
    atomic_store(&loader->bytes_per_s, 0);
    loader->threads = eb_loader_choose_threads(load_threads, true);
}

void eb_loader_limit(struct eb_loader *loader, uint64_t load_threads, uint64_t bytes_per_s)
{
    atomic_store(&loader->bytes_per_s, bytes_per_s);
    loader->threads = eb_loader_choose_threads(load_threads, false);
}

struct eb_load *eb_loader_start(
    struct eb_loader *loader, size_t slot, const struct eb_version_source *source)
{
    struct eb_load *load = make_load(loader, source->model, source->version, source->path);
    if (load && !take_residents(load, source)) {
        free_load(load);
        load = NULL;
    }
    if (load) {
        load->served = source->served;
        load->tables = *loader->tables;
        load->tables.load_threads = loader->threads;
        load->settings = source->settings ? eb_model_settings_take(source->settings) : NULL;
        load->job = (struct eb_job){.run = run_load, .done = on_load_done};
        eb_worker_post(&loader->workers[slot], &load->job);
    }
    return load;
}

void eb_loader_abandon(struct eb_model_version *version)
{
    if (version->owner) {
        free_load(version->owner);
        version->owner = NULL;
        version->on_unused = NULL;
    }
}

void eb_loader_cancel(struct eb_load *load)
{
    atomic_store_explicit(&load->is_cancelled, true, memory_order_relaxed);
}

void eb_loader_check(struct eb_load *load)
{
    struct eb_read_stall stall;
    switch (eb_read_watch_check(&load->watch, EB_READ_WATCH_STALL_MS, &stall)) {
    case EB_READ_WATCH_STALLED: on_loader_stalled(load, stall.path, stall.seconds); break;
    case EB_READ_WATCH_RESUMED: on_loader_resumed(load); break;
    case EB_READ_WATCH_QUIET: break;
    }
}
