#include "server/stats/slow_list.h"

#include "server/base/clock.h"

#include <assert.h>
#include <string.h>

static uint64_t total_ns(const struct eb_slow_list *list, size_t index)
{
    return list->requests[index].shown.ns[EB_STAGE_TOTAL];
}

static size_t find_quickest(const struct eb_slow_list *list)
{
    size_t quickest = 0;
    for (size_t i = 1; i < list->count; i++) {
        if (total_ns(list, i) < total_ns(list, quickest)) {
            quickest = i;
        }
    }
    return quickest;
}

static void set_floor(struct eb_slow_list *list)
{
    list->floor_ns = 0;
    if (list->count == EB_STATS_SLOW_REQUESTS) {
        uint64_t quickest_ns = total_ns(list, find_quickest(list));
        list->floor_ns = quickest_ns + quickest_ns / EB_SLOW_LIST_STEP;
    }
}

/* Copies a text and, if it is too long, cuts it between two characters of UTF-8. */
static void copy_cut_text(char out[EB_STATS_TEXT_BYTES], const char *text)
{
    size_t size = strnlen(text, EB_STATS_TEXT_BYTES);
    if (size == EB_STATS_TEXT_BYTES) {
        size--;
        while (size > 0 && ((unsigned char)text[size] & 0xc0) == 0x80) {
            size--;
        }
    }
    memcpy(out, text, size);
    out[size] = '\0';
}

static void describe_request(struct eb_stats_slow *out, const struct eb_access_record *record)
{
    *out = (struct eb_stats_slow){
        .unix_ms = eb_clock_unix_ms(),
        .ns = {[EB_STAGE_QUEUE] = record->queue_ns,
            [EB_STAGE_COMPUTE] = record->compute_ns,
            [EB_STAGE_TOTAL] = record->total_ns},
        .indices = record->rows,
        .value_bytes = record->value_bytes,
        .status = record->status,
    };
    copy_cut_text(out->method, record->method);
    copy_cut_text(out->model, record->model);
    copy_cut_text(out->peer, record->peer);
    static_assert(sizeof out->trace >= EB_TRACE_ID_BYTES, "a trace id has room");
    static_assert(sizeof out->span >= EB_TRACE_SPAN_BYTES, "a span id has room");
    memcpy(out->trace, record->trace->trace_id, EB_TRACE_ID_BYTES);
    memcpy(out->span, record->trace->parent_id, EB_TRACE_SPAN_BYTES);
}

void eb_slow_list_add(
    struct eb_slow_list *list, const struct eb_access_record *record, uint64_t now_ms)
{
    eb_slow_list_age(list, now_ms);
    bool is_full = list->count == EB_STATS_SLOW_REQUESTS;
    size_t index = is_full ? find_quickest(list) : list->count++;
    list->requests[index].over_ms = now_ms;
    describe_request(&list->requests[index].shown, record);
    set_floor(list);
}

void eb_slow_list_age(struct eb_slow_list *list, uint64_t now_ms)
{
    size_t count = list->count;
    if (now_ms - list->aged_ms < EB_SLOW_LIST_LOOK_MS) {
        return;
    }
    list->aged_ms = now_ms;
    for (size_t i = count; i-- > 0;) {
        if (now_ms - list->requests[i].over_ms >= EB_SLOW_LIST_AGE_MS) {
            list->requests[i] = list->requests[--list->count];
        }
    }
    if (list->count < count) {
        set_floor(list);
    }
}

size_t eb_slow_list_copy(
    struct eb_slow_list *list, uint64_t now_ms, struct eb_stats_slow out[EB_STATS_SLOW_REQUESTS])
{
    eb_slow_list_age(list, now_ms);
    for (size_t i = 0; i < list->count; i++) {
        out[i] = list->requests[i].shown;
    }
    return list->count;
}
