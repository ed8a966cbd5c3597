#include "server/isa.h"

#include "server/base/log.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* Why it cannot be chosen, or what can. */
#define REASON_BYTES 128

static bool is_built(const char *name)
{
    const struct eb_bag_ops *ops;
    for (size_t n = 0; (ops = eb_bag_ops_at(n)); n++) {
        if (strcmp(name, eb_bag_ops_name(ops)) == 0) {
            return true;
        }
    }
    return false;
}

/* What runs here can be chosen instead. */
static void log_failure(const char *name)
{
    char reason[REASON_BYTES];
    char hint[REASON_BYTES];
    const char *why = is_built(name) ? "this machine cannot run" : "this build does not have";
    snprintf(reason, sizeof reason, "%s %s", why, name);
    int used = snprintf(hint, sizeof hint, "leave isa unset to take the best of");
    const struct eb_bag_ops *ops;
    for (size_t n = 0; (ops = eb_bag_ops_at(n)); n++) {
        if (eb_bag_ops_runs_here(ops)) {
            used += snprintf(hint + used, sizeof hint - (size_t)used, " %s", eb_bag_ops_name(ops));
            assert((size_t)used < sizeof hint);
        }
    }
    eb_log_fail_start("isa", reason, hint);
}

const struct eb_bag_ops *eb_isa_choose(const char *name)
{
    const struct eb_bag_ops *ops = eb_bag_ops_find(name);
    if (!ops) {
        log_failure(name);
    }
    return ops;
}
