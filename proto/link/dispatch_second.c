#include "proto/link/dispatch_second.h"

#include "proto/link/dispatch_attempt.h"
#include "proto/link/request_message.h"

#define RESCUE_STEP_NS 1000000 /* between attempts to rescue lookups while no server has room */

/* Returns the call's only attempt that is sent; NULL if none is, or both are. */
static struct eb_attempt *find_only_sent(struct eb_dispatch_call *call)
{
    struct eb_attempt *sent = eb_dispatch_is_sent(&call->attempt) ? &call->attempt : &call->hedge;
    return eb_dispatch_is_sent(&call->attempt) == eb_dispatch_is_sent(&call->hedge) ? NULL : sent;
}

/* Sets *terms for a second attempt. Returns false if the call may not have one, or has two. */
static bool describe_second(const struct eb_dispatcher *dispatcher, struct eb_dispatch_call *call,
    struct eb_peer_terms *terms)
{
    const struct eb_attempt *first = find_only_sent(call);
    if (!first || call->path || call->attempts > dispatcher->options.retries_max) {
        return false;
    }
    *terms = (struct eb_peer_terms){.priority = call->priority,
        .now_ns = dispatcher->now_ns,
        .filter = call->filter,
        .tried = {first->peer, call->tried[0] != first->peer ? call->tried[0] : call->tried[1]},
        .is_other = true};
    return true;
}

/* Sends a second attempt beside the one that is sent. Returns false if it cannot. */
static bool send_second(struct eb_dispatcher *dispatcher, struct eb_connection *connection,
    struct eb_dispatch_call *call)
{
    const struct eb_attempt *first = find_only_sent(call);
    struct eb_attempt *second = first == &call->attempt ? &call->hedge : &call->attempt;
    struct eb_outgoing *copy = eb_request_message_copy(call->request);
    if (!copy) {
        return false;
    }
    eb_dispatch_drop_copy(call, second);
    *second = *first;
    second->peer = NULL;
    second->connection = NULL;
    second->request = copy;
    return eb_dispatch_send_attempt(dispatcher, connection, second);
}

void eb_dispatch_hedge(struct eb_dispatch_call *call)
{
    struct eb_dispatcher *dispatcher = call->dispatcher;
    struct eb_dispatch_group *group = call->group;
    struct eb_hedge_call described = eb_dispatch_describe(call);
    uint64_t now_ns = dispatcher->now_ns;
    struct eb_peer_terms terms;
    const struct eb_attempt *first = find_only_sent(call);
    /* Another router would only send the same to the same servers. */
    bool is_hedged_there = first && first->peer && first->peer->is_router;
    if (is_hedged_there || !describe_second(dispatcher, call, &terms) ||
        !eb_peer_set_has_untried(&dispatcher->servers, &terms)) {
        return;
    }
    struct eb_connection *connection = eb_peer_set_choose(&dispatcher->servers, &terms);
    if (connection && eb_resend_budget_has(&group->resends, now_ns) &&
        eb_hedge_take(&group->hedging, &described, now_ns) &&
        send_second(dispatcher, connection, call)) {
        (void)eb_resend_budget_take(&group->resends, now_ns);
        group->counters.hedges++;
        call->is_hedged = true;
    }
}

bool eb_dispatch_rescue(struct eb_dispatch_call *call)
{
    struct eb_dispatcher *dispatcher = call->dispatcher;
    struct eb_peer_terms terms;
    if (!describe_second(dispatcher, call, &terms)) {
        return true;
    }
    struct eb_connection *connection = eb_peer_set_choose(&dispatcher->servers, &terms);
    if (!connection && eb_peer_set_has_untried(&dispatcher->servers, &terms)) {
        dispatcher->rescue_ns = dispatcher->now_ns + RESCUE_STEP_NS;
        return false;
    }
    if (connection && eb_dispatch_pay_resend(call, true, dispatcher->now_ns) &&
        send_second(dispatcher, connection, call)) {
        call->group->counters.resent[EB_RESEND_SILENT]++;
        eb_dispatch_lose_hedge(call);
    }
    return true;
}

void eb_dispatch_rescue_from(struct eb_peer *peer)
{
    const uint64_t *full = NULL; /* the servers of the last call that could not be rescued */
    for (uint32_t i = 0; i < peer->connection_count; i++) {
        const struct eb_list *links = &peer->connections[i].attempts.links;
        for (struct eb_list *link = links->next; peer->connections[i].session && link != links;
             link = link->next) {
            struct eb_dispatch_call *call = EB_CONTAINER_OF(link, struct eb_attempt, link)->owner;
            /* Without an owner it is the peer's question for its instance. */
            bool is_full = call && full && call->filter.instances == full;
            if (call && !is_full && !eb_dispatch_rescue(call)) {
                full = call->filter.instances;
            }
        }
    }
}

void eb_dispatch_rescue_again(struct eb_dispatcher *dispatcher)
{
    struct eb_peer_set *servers = &dispatcher->servers;
    dispatcher->rescue_ns = UINT64_MAX;
    for (uint32_t i = 0; i < servers->count; i++) {
        if (servers->peers[i]->replica.suspicion.is_suspect) {
            eb_dispatch_rescue_from(servers->peers[i]);
        }
    }
}
