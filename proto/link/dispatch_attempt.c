#include "proto/link/dispatch_attempt.h"

#include "proto/link/request_message.h"

void eb_dispatch_drop_copy(const struct eb_dispatch_call *call, struct eb_attempt *attempt)
{
    if (attempt->request && attempt->request != call->request) {
        eb_outgoing_drop(attempt->request);
    }
    attempt->request = NULL;
}

bool eb_dispatch_copy_request(const struct eb_dispatch_call *call, struct eb_attempt *attempt)
{
    struct eb_outgoing *copy = eb_request_message_copy(call->request);
    if (copy) {
        eb_dispatch_drop_copy(call, attempt);
        attempt->request = copy;
    }
    return copy;
}

bool eb_dispatch_send_attempt(
    struct eb_dispatcher *dispatcher, struct eb_connection *connection, struct eb_attempt *attempt)
{
    struct eb_dispatch_call *call = attempt->owner;
    attempt->is_unary |= dispatcher->options.is_unary || eb_peer_set_find(connection)->is_unary;
    attempt->earlier_count = call->sent_count++;
    call->attempts++;
    if (!eb_peer_set_send(&dispatcher->servers, connection, attempt, dispatcher->now_ns)) {
        return false;
    }
    call->group->counters.sent_bytes += attempt->request->size;
    call->tried[1] = call->tried[0];
    call->tried[0] = eb_peer_set_find(connection);
    return true;
}

bool eb_dispatch_pay_resend(struct eb_dispatch_call *call, bool is_lost, uint64_t now_ns)
{
    struct eb_dispatcher *dispatcher = call->dispatcher;
    if (is_lost && !call->was_resent_free) {
        call->was_resent_free = true;
        return true;
    }
    /* A client's only server may be asked again. What a router sends is paid for even if the part
     * has one server left, because others send to that one as well. */
    bool is_free =
        !call->has_replicas && !eb_peer_set_has_several(&dispatcher->servers, &call->filter);
    return is_free || eb_resend_budget_take(&call->group->resends, now_ns);
}

struct eb_hedge_call eb_dispatch_describe(const struct eb_dispatch_call *call)
{
    return (struct eb_hedge_call){.bytes = call->request->size,
        .deadline_ns = call->deadline_ns,
        .is_batch = call->priority == EB_PRIORITY_BATCH};
}

void eb_dispatch_lose_hedge(struct eb_dispatch_call *call)
{
    call->group->counters.hedges_lost += call->is_hedged;
    call->is_hedged = false;
}
