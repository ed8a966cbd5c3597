#include "proto/link/alarms.h"

#include <assert.h>
#include <stdlib.h>

bool eb_alarms_init(struct eb_alarms *alarms, uint32_t count_max)
{
    *alarms = (struct eb_alarms){.count_max = count_max};
    alarms->heap = malloc(((size_t)count_max + 1) * sizeof(struct eb_alarm *));
    return alarms->heap;
}

void eb_alarms_deinit(struct eb_alarms *alarms)
{
    free(alarms->heap);
    *alarms = (struct eb_alarms){0};
}

static void put_alarm(struct eb_alarms *alarms, struct eb_alarm *alarm, uint32_t slot)
{
    alarms->heap[slot] = alarm;
    alarm->slot = slot;
}

static void rise(struct eb_alarms *alarms, struct eb_alarm *alarm, uint32_t slot)
{
    while (slot > 1 && alarms->heap[slot / 2]->at_ns > alarm->at_ns) {
        put_alarm(alarms, alarms->heap[slot / 2], slot);
        slot /= 2;
    }
    put_alarm(alarms, alarm, slot);
}

static void sink(struct eb_alarms *alarms, struct eb_alarm *alarm, uint32_t slot)
{
    while (2 * slot <= alarms->count) {
        uint32_t child = 2 * slot;
        if (child < alarms->count && alarms->heap[child + 1]->at_ns < alarms->heap[child]->at_ns) {
            child++;
        }
        if (alarms->heap[child]->at_ns >= alarm->at_ns) {
            break;
        }
        put_alarm(alarms, alarms->heap[child], slot);
        slot = child;
    }
    put_alarm(alarms, alarm, slot);
}

void eb_alarms_set(struct eb_alarms *alarms, struct eb_alarm *alarm, uint64_t at_ns)
{
    eb_alarms_clear(alarms, alarm);
    assert(alarms->count < alarms->count_max);
    alarm->at_ns = at_ns;
    rise(alarms, alarm, ++alarms->count);
}

void eb_alarms_clear(struct eb_alarms *alarms, struct eb_alarm *alarm)
{
    uint32_t slot = alarm->slot;
    if (slot == 0) {
        return;
    }
    assert(alarms->heap[slot] == alarm);
    struct eb_alarm *last = alarms->heap[alarms->count--];
    alarm->slot = 0;
    if (last == alarm) {
        return;
    }
    if (last->at_ns < alarm->at_ns) {
        rise(alarms, last, slot);
    } else {
        sink(alarms, last, slot);
    }
}

uint64_t eb_alarms_next_ns(const struct eb_alarms *alarms)
{
    return alarms->count > 0 ? alarms->heap[1]->at_ns : UINT64_MAX;
}

void eb_alarms_ring(struct eb_alarms *alarms, uint64_t now_ns)
{
    while (eb_alarms_next_ns(alarms) <= now_ns) {
        struct eb_alarm *alarm = alarms->heap[1];
        eb_alarms_clear(alarms, alarm);
        alarm->ring(alarm);
    }
}
