/* Finds out that a replica no longer answers: its process is stopped, or its packets are lost. Only
 * bytes of the application count. A mesh's proxy acknowledges TCP segments and answers PING frames
 * for a stopped process.
 *   calls were sent, and no byte has come for some time   -> a probe is due (an empty lookup)
 *   no byte has come for as long again after the probe    -> the replica is suspect
 *   a byte comes                                          -> it is not suspect any more
 * The time runs from the first call after the last byte. It goes on when that call is given up,
 * because calls with short deadlines are given up sooner than a probe is due.
 * Thread: one at a time; pure. Memory: part of its owner. A zeroed one is ready for use. Times are
 * never 0. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Silences that are shorter are not unusual: a process may not be scheduled for that long. */
#define EB_SUSPICION_SILENCE_MIN_NS UINT64_C(50000000)
/* A replica is silent after this many hedge delays, because a hedge is cheaper than a probe. */
#define EB_SUSPICION_HEDGE_DELAYS 3
/* Time between probes to a replica that is suspect: the earlier ones may have expired there. */
#define EB_SUSPICION_PROBE_AGAIN_NS UINT64_C(1000000000)

struct eb_suspicion {
    bool is_suspect;
    uint64_t silent_since_ns; /* when the first call since the last byte was sent; 0: none was */
    uint64_t probed_ns;       /* when a probe was last due in this silence; 0: none was */
};

enum eb_suspicion_step {
    EB_SUSPICION_WAIT,
    EB_SUSPICION_PROBE,  /* a probe must be sent now */
    EB_SUSPICION_SUSPECT /* the replica has become suspect */
};

/* Returns the time of silence after which a probe is due; hedge_delay_ns is 0 if not known. */
static inline uint64_t eb_suspicion_silence_ns(uint64_t hedge_delay_ns)
{
    uint64_t silence_ns = EB_SUSPICION_HEDGE_DELAYS * hedge_delay_ns;
    return silence_ns > EB_SUSPICION_SILENCE_MIN_NS ? silence_ns : EB_SUSPICION_SILENCE_MIN_NS;
}

/* Notes that a call was sent, or a probe. */
static inline void eb_suspicion_note_sent(struct eb_suspicion *suspicion, uint64_t now_ns)
{
    if (suspicion->silent_since_ns == 0) {
        suspicion->silent_since_ns = now_ns;
    }
}

/* Notes that a byte of the application has come. */
static inline void eb_suspicion_note_heard(struct eb_suspicion *suspicion)
{
    *suspicion = (struct eb_suspicion){0};
}

/* Notes that the connections are lost, and with them all calls. A suspect replica stays suspect: a
 * proxy may accept connections for a stopped process. */
void eb_suspicion_note_lost(struct eb_suspicion *suspicion);
/* Notes that a connection is open. If the replica is suspect, a probe is due at once. */
void eb_suspicion_note_connected(struct eb_suspicion *suspicion, uint64_t now_ns);

/* Returns when eb_suspicion_check has something to do; UINT64_MAX if nothing was sent. */
uint64_t eb_suspicion_due_ns(const struct eb_suspicion *suspicion, uint64_t silence_ns);
/* Does what is due at now_ns. A replica becomes suspect only if may_suspect; if not, it does as
 * soon as it may. */
enum eb_suspicion_step eb_suspicion_check(
    struct eb_suspicion *suspicion, uint64_t silence_ns, bool may_suspect, uint64_t now_ns);
