#include "server/publish/flip_link.h"

#include "server/base/log.h"

#include <stdlib.h>

/* How often a flip is told of the models in a row, at most, if it chooses anew each time. */
#define TELLS_MAX 16

/* Returns false if out of memory; the flip is then not told. */
static bool tell_models(struct eb_flip_link *link)
{
    size_t count;
    link->is_new = false;
    if (!link->on_models) {
        return true;
    }
    struct eb_routed_model *models = eb_registry_list_routed(link->registry, &count);
    if (!models) {
        eb_log(EB_LOG_WARN, "out_of_memory",
            eb_log_text("what", "the list of models for choosing versions"),
            eb_log_text("remedy", "free some memory; the router retries"));
        return false;
    }
    link->is_telling = true;
    link->on_models(link->context, models, count);
    link->is_telling = false;
    free(models);
    return true;
}

bool eb_flip_link_tell(struct eb_flip_link *link)
{
    bool is_told = tell_models(link);
    link->tells++;
    bool goes_on = link->is_new && link->tells < TELLS_MAX;
    link->tells = goes_on ? link->tells : 0;
    link->is_pending = !is_told || (link->is_new && !goes_on);
    return goes_on;
}

bool eb_flip_link_await(struct eb_flip_link *link, uv_loop_t *loop)
{
    bool is_new = eb_flip_link_tell(link);
    while (!is_new && link->is_settled && !link->is_settled(link->context)) {
        uv_run(loop, UV_RUN_ONCE);
        is_new = link->is_new;
    }
    return is_new;
}

bool eb_flip_link_take(struct eb_flip_link *link, const struct eb_routed_choice *choice)
{
    bool is_new = eb_registry_route(link->registry, choice);
    link->is_new = link->is_new || is_new;
    return is_new && !link->is_telling;
}
