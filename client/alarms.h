/* Times at which something is to happen: the earliest first, as many as were made room for.
 * Thread: one at a time. Memory: the heap of pointers from init; alarms are their owners'. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct eb_alarm {
    uint64_t at_ns;
    uint32_t slot; /* in the heap, from 1; 0: not set */
    void (*ring)(struct eb_alarm *alarm);
};

struct eb_alarms {
    struct eb_alarm **heap; /* [count_max + 1], the first unused */
    uint32_t count;
    uint32_t count_max;
};

/* false: no memory. */
bool eb_alarms_init(struct eb_alarms *alarms, uint32_t count_max);
/* Accepts zeroes. Alarms that are set are forgotten. */
void eb_alarms_deinit(struct eb_alarms *alarms);

/* Sets an alarm, or sets it to another time. */
void eb_alarms_set(struct eb_alarms *alarms, struct eb_alarm *alarm, uint64_t at_ns);
/* Accepts an alarm that is not set. */
void eb_alarms_clear(struct eb_alarms *alarms, struct eb_alarm *alarm);

/* The earliest time; UINT64_MAX where no alarm is set. */
uint64_t eb_alarms_next_ns(const struct eb_alarms *alarms);
/* Clears and rings every alarm whose time has come, earliest first. A ring may set and clear. */
void eb_alarms_ring(struct eb_alarms *alarms, uint64_t now_ns);
