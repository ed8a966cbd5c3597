#include "tests/variants/variant_pieces.h"

#include "kernels/bag_variant.h"

#include <string.h>

#define JOB_COUNT 3
#define AHEAD_MAX 80

/* Draws a schedule of any kind: vector functions are compiled for some kinds of schedules, and have
 * one function for all others. */
static struct eb_bag_schedule draw_schedule(void)
{
    uint32_t limit = draw(2) ? AHEAD_MAX : 4;
    uint16_t near = (uint16_t)(1 + draw(limit));
    uint16_t far = (uint16_t)(1 + draw(limit));
    switch (draw(7)) {
    case 0: return (struct eb_bag_schedule){0};
    case 1: return (struct eb_bag_schedule){0, false, near, true};
    case 2: return (struct eb_bag_schedule){0, false, near, false};
    case 3: return (struct eb_bag_schedule){far, false, near, false};
    case 4: return (struct eb_bag_schedule){far, true, near, draw(2)};
    case 5: return (struct eb_bag_schedule){far, false, near, true};
    default: return (struct eb_bag_schedule){far, draw(2), 0, draw(2)};
    }
}

/* Draws schedules that prefetch the rows of tables of any size. Half of the time, small tables have
 * a schedule of their own. */
static void draw_schedules(struct eb_bag_schedules *schedules)
{
    schedules->cached_bytes = 0;
    schedules->nearby_bytes = draw(2) ? 0 : draw(4096);
    for (unsigned class = 0; class < EB_BAG_ROW_CLASS_COUNT; class ++) {
        schedules->of_class[class] = draw_schedule();
        schedules->nearby[class] = draw_schedule();
    }
}

/* Returns bags [first, end) of a job as a job of its own. */
static struct eb_bag_job slice(const struct eb_bag_job *job, uint32_t first, uint32_t end)
{
    struct eb_bag_job part = *job;
    part.bag_count = end - first;
    part.out += first * job->out_stride_bytes;
    if (job->starts) {
        part.starts += first;
        return part;
    }
    enum eb_type type = job->table->type;
    bool is_narrow = eb_type_is_float(type) && type != EB_F64;
    part.rows += first;
    if (job->weights) {
        part.weights = (const uint8_t *)job->weights + first * (size_t)(is_narrow ? 4 : 8);
    }
    return part;
}

static void draw_jobs(const struct eb_bag_job *job, struct eb_bag_job *jobs)
{
    uint32_t first = 0;
    for (uint32_t n = 0; n + 1 < JOB_COUNT; n++) {
        uint32_t end = first + draw(job->bag_count - first + 1);
        jobs[n] = slice(job, first, end);
        first = end;
    }
    jobs[JOB_COUNT - 1] = slice(job, first, job->bag_count);
}

static uint64_t count_rows(const struct eb_bag_tile *tile)
{
    uint64_t count = 0;
    for (uint32_t n = 0; n < tile->job_count; n++) {
        struct eb_bag_range range = eb_bag_tile_range(tile, n);
        count += eb_bag_range_rows(&range);
    }
    return count;
}

/* Checks the position of the cursor after a tile has been pooled: at the tile's end if the next
 * tile is not known, otherwise in that tile, and not far from its beginning. */
static void check_cursor(const struct eb_bag_prefetch *prefetch, const struct eb_bag_tile *next)
{
    const struct eb_bag_cursor *cursor = &prefetch->cursor;
    assert_in_range(cursor->taken, 0, cursor->head_count);
    assert_in_range(cursor->head_count, 0, AHEAD_MAX);
    if (cursor->head_count > cursor->row_count) {
        fail_msg("%u of %u rows are a head", cursor->head_count, cursor->row_count);
    }
    if (!next || count_rows(next) == 0) {
        assert_int_equal(prefetch->rows_before + cursor->row_count, 0);
    } else {
        assert_in_range(prefetch->rows_before, 0, AHEAD_MAX);
        assert_int_equal(cursor->tile, 1);
    }
}

/* Cuts some jobs into tiles of about the same size. */
struct cutter {
    struct eb_bag_job jobs[JOB_COUNT];
    uint64_t bytes_target;
    struct eb_bag_cut cut;
};

static bool cut_next(struct cutter *cutter, struct eb_bag_tile *tile)
{
    if (eb_bag_cut_is_over(cutter->jobs, JOB_COUNT, &cutter->cut)) {
        return false;
    }
    eb_bag_cut_tile(cutter->jobs, JOB_COUNT, cutter->bytes_target, &cutter->cut, tile);
    return true;
}

void pool_in_pieces(const struct fixture *fixture, const struct eb_bag_ops *ops)
{
    struct eb_bag_schedules schedules;
    struct eb_bag_stream stream;
    struct eb_bag_tile tiles[2];
    struct cutter cutter = {.bytes_target = 1 + draw(1u << draw(16))};
    draw_schedules(&schedules);
    draw_jobs(&fixture->job, cutter.jobs);
    eb_bag_stream_init(&stream, ops, &schedules);
    bool is_known = draw(4) > 0;
    bool is_left = cut_next(&cutter, &tiles[0]);
    while (is_left) {
        is_left = cut_next(&cutter, &tiles[1]);
        bool is_next_known = is_left && is_known;
        eb_bag_stream_pool(&stream, &tiles[0], is_next_known ? &tiles[1] : NULL);
        /* Without rows to prefetch, the stream leaves the cursor alone. */
        if (!is_next_known || stream.prefetch.tile_count == 2) {
            check_cursor(&stream.prefetch, is_next_known ? &tiles[1] : NULL);
        }
        tiles[0] = tiles[1];
    }
}
