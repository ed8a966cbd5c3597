/* Alarms: callbacks at set times, earliest first. At most count_max alarms (eb_alarms_init) can be
 * set at a time.
 * Thread: one at a time. Memory: init allocates the heap of pointers; alarms belong to their
 * owners. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct eb_alarm {
    uint64_t at_ns;
    uint32_t slot; /* position in the heap, from 1; 0 if not set */
    void (*ring)(struct eb_alarm *alarm);
};

struct eb_alarms {
    struct eb_alarm **heap; /* [count_max + 1]; [0] is unused */
    uint32_t count;
    uint32_t count_max;
};

/* Returns false if out of memory. */
bool eb_alarms_init(struct eb_alarms *alarms, uint32_t count_max);
/* Forgets alarms that are set. Accepts a zeroed struct. */
void eb_alarms_deinit(struct eb_alarms *alarms);

/* Sets an alarm, or moves it to another time. */
void eb_alarms_set(struct eb_alarms *alarms, struct eb_alarm *alarm, uint64_t at_ns);
/* Clears an alarm. Does nothing if it is not set. */
void eb_alarms_clear(struct eb_alarms *alarms, struct eb_alarm *alarm);

/* Returns the earliest time; UINT64_MAX if no alarm is set. */
uint64_t eb_alarms_next_ns(const struct eb_alarms *alarms);
/* Clears and rings every alarm whose time has come, earliest first. A ring callback may set and
 * clear alarms. */
void eb_alarms_ring(struct eb_alarms *alarms, uint64_t now_ns);
