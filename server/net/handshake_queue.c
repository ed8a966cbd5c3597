#include "server/net/handshake_queue.h"

#include <assert.h>

#define NS_PER_S UINT64_C(1000000000)

void eb_handshake_queue_init(struct eb_handshake_queue *queue)
{
    *queue = (struct eb_handshake_queue){.fresh_count = 0};
    eb_list_init(&queue->fresh);
    eb_list_init(&queue->begun);
}

void eb_handshake_entry_init(struct eb_handshake_entry *entry)
{
    *entry = (struct eb_handshake_entry){.late_ns = 0};
    eb_list_init(&entry->link);
}

size_t eb_handshake_queue_count(const struct eb_handshake_queue *queue)
{
    return queue->fresh_count + queue->begun_count;
}

/* Returns the time that `count` handshakes use up at `per_s_max` per second. */
static uint64_t find_cost_ns(uint64_t count, uint64_t per_s_max)
{
    return per_s_max == 0 ? 0 : count * NS_PER_S / per_s_max;
}

/* Returns the time until a handshake may begin if `count` others begin before it. */
static uint64_t find_pause_ns(
    const struct eb_handshake_queue *queue, uint64_t count, uint64_t per_s_max, uint64_t now_ns)
{
    uint64_t paid_ns = per_s_max > 0 && queue->paid_ns > now_ns ? queue->paid_ns : now_ns;
    uint64_t due_ns = paid_ns + find_cost_ns(count, per_s_max);
    return due_ns - now_ns <= EB_HANDSHAKE_BURST_NS ? 0 : due_ns - now_ns - EB_HANDSHAKE_BURST_NS;
}

bool eb_handshake_queue_push(struct eb_handshake_queue *queue, struct eb_handshake_entry *entry,
    uint64_t per_s_max, uint64_t late_ns, uint64_t now_ns)
{
    assert(!entry->is_waiting);
    if (!entry->has_begun && (late_ns <= now_ns || find_pause_ns(queue, queue->fresh_count,
                                                       per_s_max, now_ns) >= late_ns - now_ns)) {
        return false;
    }
    entry->is_waiting = true;
    entry->late_ns = late_ns;
    eb_list_push(entry->has_begun ? &queue->begun : &queue->fresh, &entry->link);
    *(entry->has_begun ? &queue->begun_count : &queue->fresh_count) += 1;
    return true;
}

/* Removes and returns the first entry of a list that is not empty. */
static struct eb_handshake_entry *pop_first(
    struct eb_handshake_queue *queue, const struct eb_list *list)
{
    struct eb_handshake_entry *entry = EB_CONTAINER_OF(list->next, struct eb_handshake_entry, link);
    eb_handshake_queue_remove(queue, entry);
    return entry;
}

struct eb_handshake_entry *eb_handshake_queue_pop(
    struct eb_handshake_queue *queue, uint64_t per_s_max, uint64_t now_ns)
{
    bool may_begin = queue->fresh_count > 0 && find_pause_ns(queue, 0, per_s_max, now_ns) == 0;
    if (!may_begin && queue->begun_count == 0) {
        return NULL;
    }
    queue->was_fresh = may_begin && (queue->begun_count == 0 || !queue->was_fresh);
    if (!queue->was_fresh) {
        return pop_first(queue, &queue->begun);
    }
    struct eb_handshake_entry *entry = pop_first(queue, &queue->fresh);
    entry->has_begun = true;
    queue->paid_ns =
        (queue->paid_ns > now_ns ? queue->paid_ns : now_ns) + find_cost_ns(1, per_s_max);
    return entry;
}

struct eb_handshake_entry *eb_handshake_queue_pop_late(
    struct eb_handshake_queue *queue, uint64_t now_ns)
{
    if (queue->fresh_count == 0) {
        return NULL;
    }
    const struct eb_handshake_entry *first =
        EB_CONTAINER_OF(queue->fresh.next, struct eb_handshake_entry, link);
    return first->late_ns <= now_ns ? pop_first(queue, &queue->fresh) : NULL;
}

uint64_t eb_handshake_queue_pause_ns(
    const struct eb_handshake_queue *queue, uint64_t per_s_max, uint64_t now_ns)
{
    if (queue->begun_count > 0) {
        return 0;
    }
    return queue->fresh_count > 0 ? find_pause_ns(queue, 0, per_s_max, now_ns) : UINT64_MAX;
}

void eb_handshake_queue_remove(struct eb_handshake_queue *queue, struct eb_handshake_entry *entry)
{
    if (entry->is_waiting) {
        entry->is_waiting = false;
        eb_list_remove(&entry->link);
        *(entry->has_begun ? &queue->begun_count : &queue->fresh_count) -= 1;
    }
}
