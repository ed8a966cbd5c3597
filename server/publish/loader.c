#include "server/publish/loader.h"

#include "proto/list.h"
#include "server/models/repository.h"
#include "server/publish/model_log.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NS_PER_S UINT64_C(1000000000)
/* Longest sleep of a load, and so the longest time until it notices that it was cancelled. A server
 * that shuts down may have to wait this long. */
#define SLEEP_NS_MAX UINT64_C(50000000)

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
    eb_worker_post(load->loader->worker, &load->job);
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
    struct eb_loader *loader, const char *path, uint64_t done_bytes, uint64_t total_bytes)
{
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
        eb_mailbox_post(&loader->worker->results, &progress->mail);
    }
}

static void on_loader_progress(
    void *context, const char *path, uint64_t done_bytes, uint64_t total_bytes)
{
    struct eb_load *load = context;
    atomic_store_explicit(&load->done_bytes, done_bytes, memory_order_relaxed);
    atomic_store_explicit(&load->total_bytes, total_bytes, memory_order_relaxed);
    eb_model_log_progress(path, done_bytes, total_bytes);
    if (load->loader->on_progress) {
        tell_progress(load->loader, path, done_bytes, total_bytes);
    }
}

/* Sleeps until due_ns, when the pace allows the next read. Returns false if the load was
 * cancelled. */
static bool sleep_until_due(const struct eb_load *load)
{
    uint64_t due_ns = load->due_ns;
    bool is_cancelled = atomic_load_explicit(&load->is_cancelled, memory_order_relaxed);
    for (uint64_t now_ns = uv_hrtime(); now_ns < due_ns && !is_cancelled; now_ns = uv_hrtime()) {
        uint64_t left_ns = due_ns - now_ns;
        struct timespec wait = {.tv_nsec = (long)(left_ns < SLEEP_NS_MAX ? left_ns : SLEEP_NS_MAX)};
        (void)nanosleep(&wait, NULL);
        is_cancelled = atomic_load_explicit(&load->is_cancelled, memory_order_relaxed);
    }
    return !is_cancelled;
}

/* Slows the load down to bytes_per_s. A load that was slower for some time may not catch up, so
 * that there are no bursts. Returns false if it was cancelled. */
static bool keep_pace(void *context, uint64_t bytes)
{
    struct eb_load *load = context;
    uint64_t now_ns = uv_hrtime();
    double per_byte_ns = (double)NS_PER_S / (double)load->loader->bytes_per_s;
    load->due_ns += (uint64_t)((double)bytes * per_byte_ns);
    if (load->due_ns < now_ns) {
        load->due_ns = now_ns;
    }
    return sleep_until_due(load);
}

static void on_loader_short(void *context, uint64_t missing_bytes)
{
    ((struct eb_load *)context)->missing_bytes = missing_bytes;
}

static void run_load(struct eb_job *job)
{
    struct eb_load *load = EB_CONTAINER_OF(job, struct eb_load, job);
    const struct eb_table_options *tables = load->loader->tables;
    struct eb_version_source source = {load->model, load->number, load->path, load->settings,
        load->residents, load->resident_count};
    struct eb_load_progress progress = {.report = on_loader_progress,
        .go_on = load->loader->bytes_per_s > 0 ? keep_pace : NULL,
        .run_short = on_loader_short,
        .context = load};
    load->files = eb_repository_stamp_files(load->path);
    load->start_ns = uv_hrtime();
    load->due_ns = load->start_ns;
    load->version = eb_model_version_load(&source, tables, &progress, &load->failure);
    if (load->version) {
        load->outcome = EB_LOAD_DONE;
    } else {
        load->outcome = load->missing_bytes > 0 ? EB_LOAD_SHORT : EB_LOAD_FAILED;
    }
}

static void on_load_done(struct eb_job *job)
{
    struct eb_load *load = EB_CONTAINER_OF(job, struct eb_load, job);
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
    if (!load) {
        return NULL;
    }
    load->loader = loader;
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

struct eb_load *eb_loader_start(struct eb_loader *loader, const struct eb_version_source *source)
{
    struct eb_load *load = make_load(loader, source->model, source->version, source->path);
    if (load && !take_residents(load, source)) {
        free_load(load);
        load = NULL;
    }
    if (load) {
        load->settings = source->settings ? eb_model_settings_take(source->settings) : NULL;
        load->job = (struct eb_job){.run = run_load, .done = on_load_done};
        eb_worker_post(loader->worker, &load->job);
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
