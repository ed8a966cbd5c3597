#include "proto/link/suspicion.h"

void eb_suspicion_note_lost(struct eb_suspicion *suspicion)
{
    *suspicion = (struct eb_suspicion){.is_suspect = suspicion->is_suspect};
}

void eb_suspicion_note_connected(struct eb_suspicion *suspicion, uint64_t now_ns)
{
    if (suspicion->is_suspect) {
        suspicion->silent_since_ns = now_ns;
        suspicion->probed_ns = 0;
    }
}

uint64_t eb_suspicion_due_ns(const struct eb_suspicion *suspicion, uint64_t silence_ns)
{
    if (suspicion->silent_since_ns == 0) {
        return UINT64_MAX;
    }
    if (suspicion->is_suspect) {
        return suspicion->probed_ns == 0 ? suspicion->silent_since_ns
                                         : suspicion->probed_ns + EB_SUSPICION_PROBE_AGAIN_NS;
    }
    return (suspicion->probed_ns == 0 ? suspicion->silent_since_ns : suspicion->probed_ns) +
           silence_ns;
}

enum eb_suspicion_step eb_suspicion_check(
    struct eb_suspicion *suspicion, uint64_t silence_ns, bool may_suspect, uint64_t now_ns)
{
    if (now_ns < eb_suspicion_due_ns(suspicion, silence_ns)) {
        return EB_SUSPICION_WAIT;
    }
    if (suspicion->is_suspect || suspicion->probed_ns == 0) {
        suspicion->probed_ns = now_ns;
        return EB_SUSPICION_PROBE;
    }
    if (!may_suspect) {
        return EB_SUSPICION_WAIT;
    }
    suspicion->is_suspect = true;
    return EB_SUSPICION_SUSPECT;
}
