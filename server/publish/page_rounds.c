#include "server/publish/page_rounds.h"

#include "proto/list.h"
#include "server/base/log.h"
#include "server/base/machine.h"
#include "server/publish/model_log.h"
#include "server/publish/worker.h"
#include "server/tables/page_collapse.h"

#include <stddef.h>
#include <stdlib.h>
#include <time.h>

/* Pause after each page of 2 MiB, which takes about half a millisecond. */
#define PAGE_PAUSE_NS 1000000

/* ---- the round ---- */

/* Runs on the round's thread. */
static bool pause_round(void *context)
{
    const struct eb_page_rounds *rounds = context;
    struct timespec pause = {.tv_nsec = PAGE_PAUSE_NS};
    (void)nanosleep(&pause, NULL);
    return !atomic_load(&rounds->is_cancelled);
}

/* Counts the pages of the round's versions again. Does nothing if the kernel does not tell. */
static void recount_pages(const struct eb_page_rounds *rounds)
{
    struct eb_page_report report;
    if (eb_page_report_open(&report, "") < 0) {
        return;
    }
    for (size_t i = 0; i < rounds->count; i++) {
        eb_page_collapse_recount(&rounds->versions[i]->tables, &report);
    }
    eb_page_report_close(&report);
}

/* Tries what is left of a pass, as far as the round goes. */
static void go_on_with_pass(const struct eb_page_rounds *rounds, struct eb_page_round *round)
{
    round->pass = rounds->passes + 1;
    for (size_t i = 0; i < rounds->count; i++) {
        eb_page_collapse_run(round, &rounds->versions[i]->tables);
    }
}

/* Runs on the round's thread. */
static void run_round(struct eb_background_task *task)
{
    struct eb_page_rounds *rounds = EB_CONTAINER_OF(task, struct eb_page_rounds, task);
    struct eb_page_round round = {
        .pages_left = EB_PAGE_COLLAPSE_ROUND_PAGES, .go_on = pause_round, .context = rounds};
    eb_worker_lower_priority();
    if (eb_machine_memory_pressure("") >= EB_PAGE_ROUNDS_PRESSURE_PERCENT) {
        return;
    }
    go_on_with_pass(rounds, &round);
    if (round.pages_left == EB_PAGE_COLLAPSE_ROUND_PAGES) {
        rounds->passes++; /* The round before has tried the last page of the pass. */
        go_on_with_pass(rounds, &round);
    }
    rounds->passes += round.pages_left > 0;
    if (round.has_joined && !atomic_load(&rounds->is_cancelled)) {
        recount_pages(rounds);
    }
}

/* Gives up the versions of the round. */
static void give_versions(struct eb_page_rounds *rounds)
{
    for (size_t i = 0; i < rounds->count; i++) {
        eb_model_version_give(rounds->versions[i]);
    }
    free(rounds->versions);
    rounds->versions = NULL;
    rounds->count = 0;
}

static void on_round_done(struct eb_background_task *task)
{
    struct eb_page_rounds *rounds = EB_CONTAINER_OF(task, struct eb_page_rounds, task);
    for (size_t i = 0; i < rounds->count; i++) {
        const struct eb_model_version *version = rounds->versions[i];
        if (!eb_page_collapse_is_due(&version->tables)) {
            eb_model_log_joined(version);
        }
    }
    give_versions(rounds);
    rounds->on_round(rounds->context);
}

/* ---- beginning and end ---- */

/* Returns how many versions may be in the round. */
static size_t count_versions(const struct eb_registry *registry)
{
    size_t count = 0;
    for (size_t i = 0; i < registry->count; i++) {
        count += registry->models[i].count;
    }
    return count;
}

/* Lists the versions with tables in small pages. Lists none if out of memory; the next round tries
 * again. */
static void take_versions(struct eb_page_rounds *rounds)
{
    const struct eb_registry *registry = rounds->registry;
    size_t most = count_versions(registry);
    rounds->versions = calloc(most + 1, sizeof *rounds->versions);
    for (size_t i = 0; rounds->versions && i < registry->count; i++) {
        const struct eb_registry_model *model = &registry->models[i];
        for (size_t k = 0; k < model->count; k++) {
            struct eb_model_version *loaded = model->versions[k].loaded;
            if (loaded && eb_page_collapse_is_due(&loaded->tables)) {
                rounds->versions[rounds->count++] = eb_model_version_take(loaded);
            }
        }
    }
}

static void on_round_due(uv_timer_t *timer)
{
    struct eb_page_rounds *rounds = timer->data;
    if (rounds->task.is_running) {
        return;
    }
    take_versions(rounds);
    atomic_store(&rounds->is_cancelled, false);
    if (rounds->count == 0 || !eb_background_task_start(&rounds->task)) {
        give_versions(rounds);
    }
}

void eb_page_rounds_start(struct eb_page_rounds *rounds, uv_loop_t *loop)
{
    uint64_t interval_ms =
        rounds->interval_ms > 0 ? rounds->interval_ms : EB_PAGE_ROUNDS_INTERVAL_MS;
    rounds->task.run = run_round;
    rounds->task.done = on_round_done;
    int rc = eb_background_task_open(&rounds->task, loop);
    if (rc < 0) {
        eb_log(EB_LOG_WARN, "huge_pages_final", eb_log_text("reason", uv_strerror(rc)),
            eb_log_text("remedy", "raise the limit on open files; until the next start, tables "
                                  "keep the pages that they got"));
        return;
    }
    rounds->is_open = true;
    uv_timer_init(loop, &rounds->timer);
    rounds->timer.data = rounds;
    uv_timer_start(&rounds->timer, on_round_due, interval_ms, interval_ms);
}

void eb_page_rounds_advance(struct eb_page_rounds *rounds)
{
    for (size_t i = 0; i < rounds->count; i++) {
        const struct eb_model_version *held = rounds->versions[i];
        struct eb_registry_model *model = eb_registry_find(rounds->registry, held->model);
        const struct eb_registry_version *version =
            model ? eb_registry_find_version(model, held->version) : NULL;
        if (!version || version->loaded != held) {
            atomic_store(&rounds->is_cancelled, true);
        }
    }
}

void eb_page_rounds_stop(struct eb_page_rounds *rounds)
{
    if (rounds->is_open) {
        rounds->is_open = false;
        atomic_store(&rounds->is_cancelled, true);
        uv_close((uv_handle_t *)&rounds->timer, NULL);
        eb_background_task_close(&rounds->task);
    }
}

bool eb_page_rounds_is_busy(const struct eb_page_rounds *rounds)
{
    return rounds->task.is_running;
}
