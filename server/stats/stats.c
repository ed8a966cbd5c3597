#include "server/stats/stats.h"

#include <stdlib.h>
#include <string.h>

struct eb_stats *eb_stats_make(size_t loop_count)
{
    struct eb_stats *stats = calloc(1, sizeof *stats);
    if (!stats) {
        return NULL;
    }
    stats->loops = calloc(loop_count + 1, sizeof *stats->loops);
    if (!stats->loops) {
        free(stats);
        return NULL;
    }
    return stats;
}

static void free_model(struct eb_stats_model *model)
{
    for (size_t i = 0; i < model->version_count; i++) {
        free(model->versions[i].failure);
    }
    free(model->versions);
    free(model->failure);
    free(model->name);
}

void eb_stats_free(struct eb_stats *stats)
{
    if (!stats) {
        return;
    }
    for (size_t i = 0; i < stats->table_count; i++) {
        free(stats->tables[i].model);
        free(stats->tables[i].table);
    }
    for (size_t i = 0; i < stats->model_count; i++) {
        free_model(&stats->models[i]);
    }
    eb_route_facts_drop(stats->route_facts);
    free(stats->route);
    free(stats->models);
    free(stats->tables);
    free(stats->loops);
    free(stats);
}

static bool is_slower(const struct eb_stats_slow *left, const struct eb_stats_slow *right)
{
    return left->ns[EB_STAGE_TOTAL] > right->ns[EB_STAGE_TOTAL];
}

static void insert_slow(struct eb_stats *stats, const struct eb_stats_slow *request)
{
    size_t position = stats->slow_count;
    while (position > 0 && is_slower(request, &stats->slow[position - 1])) {
        position--;
    }
    if (position == EB_STATS_SLOW_REQUESTS) {
        return;
    }
    stats->slow_count += stats->slow_count < EB_STATS_SLOW_REQUESTS;
    memmove(&stats->slow[position + 1], &stats->slow[position],
        (stats->slow_count - 1 - position) * sizeof *stats->slow);
    stats->slow[position] = *request;
}

void eb_stats_add_slow(struct eb_stats *stats, const struct eb_stats_slow *slow, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        insert_slow(stats, &slow[i]);
    }
}

void eb_stats_add(struct eb_stats *stats, const struct eb_loop_stats *loop)
{
    stats->loops[stats->loop_count++] = (struct eb_stats_loop){
        .connections = loop->connections,
        .handshakes = loop->handshakes,
        .receive_bytes = loop->receive_bytes,
        .answer_bytes = loop->answer_bytes,
        .lag = loop->counters.lag,
    };
    eb_counters_merge(&stats->total, &loop->counters);
    eb_stats_add_slow(stats, loop->slow, loop->slow_count);
}

const char *eb_stats_phase_name(enum eb_stats_phase phase)
{
    static const char *const names[] = {
#define X(name, text) [EB_STATS_##name] = text,
        EB_STATS_PHASE_LIST(X)
#undef X
    };
    return names[phase];
}
