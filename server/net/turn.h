/* How much of one turn of its loop a connection has had. Its loop serves the others, and writes its
 * answers, once that is enough.
 * Thread: its loop's. Memory: none; time is passed in. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of reading and serving one connection, before the others of its loop have their turn: what they
 * wait for one that floods, and what its own answers wait for each other. */
#define EB_TURN_NS 150000
#define EB_TURN_READ_MIN 16384   /* bytes asked for at once */
#define EB_TURN_READ_FIRST 32768 /* of a new connection */
#define EB_TURN_READ_MAX 262144

struct eb_turn {
    uint64_t turn_ns;  /* of reading and serving */
    uint64_t begun_ns; /* of what goes on now: the first look; 0: none yet */
    uint64_t seen_ns;  /* the last look */
    uint64_t spent_ns; /* on what went on before, in this turn */
    size_t read_bytes; /* to ask for at once */
    bool is_over;
};

void eb_turn_init(struct eb_turn *turn, uint64_t turn_ns);
/* Something else goes on from now, or from the next look: what others did in between is not
 * counted. */
void eb_turn_leave(struct eb_turn *turn);
/* Looks at the clock. true: the turn is over. */
bool eb_turn_look(struct eb_turn *turn, uint64_t now_ns);
/* Bytes were read and dealt with since eb_turn_leave, `is_full`: as many as were asked for. Asks
 * for more next time where that was quick, and for fewer where it was too much for a turn. */
void eb_turn_adapt(struct eb_turn *turn, bool is_full);
/* The next turn begins. */
void eb_turn_renew(struct eb_turn *turn);
