#include "server/stats/census.h"

#include "server/stats/slow_list.h"

#include <stdlib.h>

struct eb_census *eb_census_make(size_t loop_count)
{
    struct eb_census *census = calloc(1, sizeof *census);
    if (!census) {
        return NULL;
    }
    census->loops = calloc(loop_count + 1, sizeof *census->loops);
    if (!census->loops) {
        free(census);
        return NULL;
    }
    return census;
}

static void free_model(struct eb_census_model *model)
{
    for (size_t i = 0; i < model->version_count; i++) {
        free(model->versions[i].fault);
    }
    free(model->versions);
    free(model->fault);
    free(model->name);
}

void eb_census_free(struct eb_census *census)
{
    if (!census) {
        return;
    }
    for (size_t i = 0; i < census->table_count; i++) {
        free(census->tables[i].model);
        free(census->tables[i].table);
    }
    for (size_t i = 0; i < census->model_count; i++) {
        free_model(&census->models[i]);
    }
    free(census->models);
    free(census->tables);
    free(census->loops);
    free(census);
}

void eb_census_add(struct eb_census *census, const struct eb_census_part *part)
{
    census->loops[census->loop_count++] = (struct eb_census_loop){
        .connections = part->connections,
        .receive_bytes = part->receive_bytes,
        .answer_bytes = part->answer_bytes,
        .lag = part->tally.lag,
    };
    eb_tally_merge(&census->total, &part->tally);
    eb_slow_list_merge(census, part->slow, part->slow_count);
}

const char *eb_census_phase_name(enum eb_census_phase phase)
{
    static const char *const names[] = {
#define X(name, text) [EB_CENSUS_##name] = text,
        EB_CENSUS_PHASE_LIST(X)
#undef X
    };
    return names[phase];
}

const char *eb_census_priority_name(enum eb_census_priority priority)
{
    static const char *const names[] = {
#define X(name, text) [EB_CENSUS_##name] = text,
        EB_CENSUS_PRIORITY_LIST(X)
#undef X
    };
    return names[priority];
}
