#include "server/work/work.h"

bool eb_work_is_expired(const struct eb_work *work, uint64_t now_ns)
{
    return (work->cancelled && atomic_load_explicit(work->cancelled, memory_order_relaxed)) ||
           (work->deadline_ns != 0 && now_ns >= work->deadline_ns);
}

bool eb_work_is_all_given(struct eb_work *work)
{
    return eb_bag_cut_is_over(work->jobs, work->job_count, &work->cut);
}

bool eb_work_is_last_tile(const struct eb_work *work)
{
    struct eb_bag_cut cut = work->cut;
    struct eb_bag_tile tile;
    if (eb_bag_cut_is_over(work->jobs, work->job_count, &cut)) {
        return false;
    }
    eb_bag_cut_tile(work->jobs, work->job_count, EB_WORK_TILE_BYTES, &cut, &tile);
    return eb_bag_cut_is_over(work->jobs, work->job_count, &cut);
}

void eb_work_cut_tile(struct eb_work *work, struct eb_bag_tile *tile)
{
    eb_bag_cut_tile(work->jobs, work->job_count, EB_WORK_TILE_BYTES, &work->cut, tile);
    tile->owner = work;
    work->open_tiles++;
}

uint64_t eb_work_tile_bytes(const struct eb_bag_tile *tile)
{
    uint64_t bytes = 0;
    for (uint32_t n = 0; n < tile->job_count; n++) {
        const struct eb_bag_part part = eb_bag_tile_part(tile, n);
        const struct eb_bag_job *job = part.job;
        uint32_t elements = part.element_end - part.element_first;
        uint64_t bags = part.bag_end - part.bag_first;
        uint64_t row_bytes = eb_storage_row_bytes(job->table->storage, elements);
        if (job->table->scales && part.element_first == 0) {
            row_bytes += sizeof(struct eb_row_scale);
        }
        bytes +=
            eb_bag_part_rows(&part) * row_bytes + bags * elements * eb_type_bytes(job->output_type);
    }
    return bytes;
}
