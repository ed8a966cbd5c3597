#include "server/net/time_slice.h"

void eb_time_slice_init(struct eb_time_slice *slice, uint64_t slice_ns)
{
    *slice = (struct eb_time_slice){.slice_ns = slice_ns, .read_bytes = EB_TIME_SLICE_READ_FIRST};
}

void eb_time_slice_leave(struct eb_time_slice *slice)
{
    slice->spent_ns += slice->seen_ns - slice->begun_ns;
    slice->begun_ns = 0;
    slice->seen_ns = 0;
}

void eb_time_slice_enter(
    struct eb_time_slice *slice, struct eb_time_slice_reader *reader, uint64_t now_ns)
{
    if (reader->slice != slice) {
        *reader = (struct eb_time_slice_reader){slice, now_ns};
    }
    slice->is_alone = now_ns - reader->since_ns >= EB_TIME_SLICE_ALONE_NS;
}

static uint64_t length_ns(const struct eb_time_slice *slice)
{
    return (slice->slice_ns << slice->is_alone) * (slice->is_inside ? EB_TIME_SLICE_INSIDE : 1);
}

bool eb_time_slice_look(struct eb_time_slice *slice, uint64_t now_ns)
{
    if (slice->begun_ns == 0) {
        slice->begun_ns = now_ns;
    }
    slice->seen_ns = now_ns;
    slice->is_over =
        slice->is_over || slice->spent_ns + now_ns - slice->begun_ns >= length_ns(slice);
    return slice->is_over;
}

void eb_time_slice_adapt(struct eb_time_slice *slice, bool is_full)
{
    uint64_t taken_ns = slice->seen_ns - slice->begun_ns;
    if (slice->is_over && slice->read_bytes > EB_TIME_SLICE_READ_MIN) {
        slice->read_bytes /= 2;
    } else if (is_full && taken_ns < length_ns(slice) / 4 &&
               slice->read_bytes < EB_TIME_SLICE_READ_MAX) {
        slice->read_bytes *= 2;
    }
}

void eb_time_slice_renew(struct eb_time_slice *slice)
{
    *slice = (struct eb_time_slice){
        .slice_ns = slice->slice_ns, .read_bytes = slice->read_bytes, .is_alone = slice->is_alone};
}
