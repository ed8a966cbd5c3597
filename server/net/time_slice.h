/* How much of its time slice a connection has used. When the slice is over, the connection is not
 * read any further, is written after those whose slice is not over, and waits for its next slice
 * (run_queue.h). So a connection that asks for little waits for one slice and one write of a
 * connection that floods, however many of those there are.
 * Thread: its loop's. Memory: none; time is passed in. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of reading, serving and writing one connection, before the others of its loop have their slice:
 * what they wait for one that floods, and what its own answers wait for each other. Half of it
 * shortened that wait by a third (0.27 to 0.18 ms of the server's time), and would make twice as
 * many writes, of which each that wakes its peer costs some 20 us. */
#define EB_TIME_SLICE_NS 150000
/* One that has been the only one to be read for so long has slices of twice that length: nobody is
 * known to wait, and fewer writes, each of more answers, cost less (of the server's time 7 % with
 * 32 lookups of 26 tables in flight, 12 % where they are groups). */
#define EB_TIME_SLICE_ALONE_NS 100000000
/* A slice may be this many times as long inside a message if the queue is so long that the next
 * slice would be far off: reading a request of 500 KB is cheap and should not take five slices. */
#define EB_TIME_SLICE_INSIDE 4
#define EB_TIME_SLICE_READ_MIN 16384   /* bytes asked for at once */
#define EB_TIME_SLICE_READ_FIRST 32768 /* of a new connection */
#define EB_TIME_SLICE_READ_MAX 262144

struct eb_time_slice {
    uint64_t slice_ns; /* of reading and serving, beside others */
    uint64_t begun_ns; /* of what goes on now: the first look; 0: none yet */
    uint64_t seen_ns;  /* the last look */
    uint64_t spent_ns; /* on what went on before, in this slice */
    size_t read_bytes; /* to ask for at once */
    bool is_alone;
    bool is_inside; /* what is read next continues a message; set by the caller */
    bool is_over;
};

/* Who of a loop's connections was read last. All zero: none yet. */
struct eb_time_slice_reader {
    const struct eb_time_slice *slice; /* only compared: it may be gone */
    uint64_t since_ns;                 /* since when no other was */
};

void eb_time_slice_init(struct eb_time_slice *slice, uint64_t slice_ns);
/* Something else goes on from now, or from the next look: what others did in between is not
 * counted. */
void eb_time_slice_leave(struct eb_time_slice *slice);
/* It is to be read now: finds out whether it is alone. */
void eb_time_slice_enter(
    struct eb_time_slice *slice, struct eb_time_slice_reader *reader, uint64_t now_ns);
/* Looks at the clock. true: the slice is over. */
bool eb_time_slice_look(struct eb_time_slice *slice, uint64_t now_ns);
/* Bytes were read and dealt with since eb_time_slice_leave, `is_full`: as many as were asked for.
 * Asks for more next time where that was quick, and for fewer where it was too much for a slice. */
void eb_time_slice_adapt(struct eb_time_slice *slice, bool is_full);
/* The next slice begins. */
void eb_time_slice_renew(struct eb_time_slice *slice);
