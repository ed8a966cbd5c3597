/* Measures how much of its time slice a connection has used. When the slice is over, the connection
 * is not read any further, is written after those whose slice is not over, and waits for its next
 * slice (run_queue.h). So a connection that asks for little waits for one slice and one write of a
 * connection that floods, however many connections flood.
 * Thread: its loop's. Memory: none; time is passed in. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Length of a slice: the time for reading, serving and writing one connection before the other
 * connections of its loop get theirs. The others wait this long for a connection that floods, and
 * its own answers wait this long for each other. Half of it shortened that wait by a third (from
 * 0.27 to 0.18 ms of the server's time), but would make twice as many writes. Each write that wakes
 * its peer costs some 20 us. */
#define EB_TIME_SLICE_NS 150000
/* A connection that has been the only one to be read for this long has slices of twice the length.
 * No other is known to wait, and fewer writes with more answers each cost less: by 7 % of the
 * server's time with 32 lookups of 26 tables in flight, by 12 % if they are groups. */
#define EB_TIME_SLICE_ALONE_NS 100000000
/* Within a message a slice may be this many times as long if the queue is so long that the next
 * slice would be far off: reading a request of 500 KB is cheap and should not take five slices. */
#define EB_TIME_SLICE_INSIDE 4
#define EB_TIME_SLICE_READ_MIN 16384   /* least bytes asked for at once */
#define EB_TIME_SLICE_READ_FIRST 32768 /* bytes first asked for on a new connection */
#define EB_TIME_SLICE_READ_MAX 262144

struct eb_time_slice {
    uint64_t slice_ns; /* length, if it is neither alone nor inside a message */
    uint64_t begun_ns; /* first reading of the clock in the present piece of work; 0 if there was
                          none yet */
    uint64_t seen_ns;  /* last reading of the clock */
    uint64_t spent_ns; /* time used in this slice before begun_ns */
    size_t read_bytes; /* bytes to ask for at once */
    bool is_alone;
    bool is_inside; /* whether the next bytes to read continue a message; set by the caller */
    bool is_over;
};

/* The connection of a loop that was read last. Zeroed if there was none yet. */
struct eb_time_slice_reader {
    const struct eb_time_slice *slice; /* only compared, because it may be gone */
    uint64_t since_ns;                 /* when it became the only connection read */
};

void eb_time_slice_init(struct eb_time_slice *slice, uint64_t slice_ns);
/* Ends one piece of work of the slice. The next one begins when the clock is read next, so that
 * time spent on other connections in between is not counted. */
void eb_time_slice_leave(struct eb_time_slice *slice);
/* Finds out whether the connection, which is about to be read, has been the only one for long
 * (EB_TIME_SLICE_ALONE_NS). */
void eb_time_slice_enter(
    struct eb_time_slice *slice, struct eb_time_slice_reader *reader, uint64_t now_ns);
/* Counts the time until `now_ns`. Returns whether the slice is over. */
bool eb_time_slice_look(struct eb_time_slice *slice, uint64_t now_ns);
/* Adapts the number of bytes to ask for, after bytes were read and processed since
 * eb_time_slice_leave. `is_full` says whether as many were read as were asked for. Asks for more
 * next time if that was quick, and for fewer if it took more than a slice. */
void eb_time_slice_adapt(struct eb_time_slice *slice, bool is_full);
/* Begins the next slice. */
void eb_time_slice_renew(struct eb_time_slice *slice);
