#include "server/stats/stats.h"

#include "server/stats/slow_list.h"

#include <stdlib.h>

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
    free(stats->models);
    free(stats->tables);
    free(stats->loops);
    free(stats);
}

void eb_stats_add(struct eb_stats *stats, const struct eb_loop_stats *part)
{
    stats->loops[stats->loop_count++] = (struct eb_stats_loop){
        .connections = part->connections,
        .receive_bytes = part->receive_bytes,
        .answer_bytes = part->answer_bytes,
        .lag = part->counters.lag,
    };
    eb_counters_merge(&stats->total, &part->counters);
    eb_slow_list_merge(stats, part->slow, part->slow_count);
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
