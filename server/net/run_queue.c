#include "server/net/run_queue.h"

void eb_run_usage_add(struct eb_run_usage *usage)
{
    usage->slices++;
}

void eb_run_usage_idle(struct eb_run_usage *usage, uint64_t now_ns)
{
    usage->idle_since_ns = now_ns;
}

uint64_t eb_run_usage_resume(struct eb_run_usage *usage, uint64_t now_ns)
{
    if (usage->slices > 0) {
        uint64_t halvings = (now_ns - usage->idle_since_ns) / EB_RUN_HALVED_NS;
        usage->slices = halvings < 64 ? usage->slices >> halvings : 0;
        usage->idle_since_ns += halvings * EB_RUN_HALVED_NS;
    }
    return usage->slices;
}

void eb_run_queue_init(struct eb_run_queue *queue)
{
    *queue = (struct eb_run_queue){.count = 0};
    for (unsigned level = 0; level < EB_RUN_LEVELS; level++) {
        eb_list_init(&queue->levels[level]);
    }
}

void eb_run_entry_init(struct eb_run_entry *entry)
{
    *entry = (struct eb_run_entry){.level = 0};
    eb_list_init(&entry->link);
}

unsigned eb_run_queue_find_level(uint64_t slices)
{
    unsigned level = 0;
    while (slices > 0 && level < EB_RUN_LEVELS - 1) {
        slices /= 2;
        level++;
    }
    return level;
}

void eb_run_queue_push(struct eb_run_queue *queue, struct eb_run_entry *entry, uint64_t slices)
{
    if (!entry->is_waiting) {
        entry->is_waiting = true;
        entry->level = eb_run_queue_find_level(slices);
        eb_list_push(&queue->levels[entry->level], &entry->link);
        queue->count++;
    }
}

/* Returns the first level, from `level` on and wrapping around, that has a connection waiting. The
 * queue must not be empty. */
static unsigned find_waiting_level(const struct eb_run_queue *queue, unsigned level)
{
    while (eb_list_is_empty(&queue->levels[level])) {
        level = (level + 1) % EB_RUN_LEVELS;
    }
    return level;
}

struct eb_run_entry *eb_run_queue_pop(struct eb_run_queue *queue)
{
    if (queue->count == 0) {
        return NULL;
    }
    unsigned level;
    if (++queue->slice_count == EB_RUN_ROUND) {
        queue->slice_count = 0;
        level = find_waiting_level(queue, queue->next_level);
        queue->next_level = (level + 1) % EB_RUN_LEVELS;
    } else {
        level = find_waiting_level(queue, 0);
    }
    struct eb_run_entry *entry =
        EB_CONTAINER_OF(queue->levels[level].next, struct eb_run_entry, link);
    eb_run_queue_remove(queue, entry);
    return entry;
}

void eb_run_queue_remove(struct eb_run_queue *queue, struct eb_run_entry *entry)
{
    if (entry->is_waiting) {
        entry->is_waiting = false;
        eb_list_remove(&entry->link);
        queue->count--;
    }
}
