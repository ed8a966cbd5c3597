#include "kernels/bag_copy.h"

#include "kernels/element.h"

#include <assert.h>
#include <string.h>

bool eb_bag_is_copied(const struct eb_bag_job *job)
{
    return (int)job->table->storage == (int)job->table->type &&
           job->output_type == job->table->type;
}

/* Copies columns of the table's default vector, as eb_bag_copy_columns copies those of a row. */
static void copy_vector(const struct eb_bag_job *job, uint32_t column, uint32_t count, uint8_t *out)
{
    enum eb_type type = job->table->type;
    size_t from_bytes = eb_type_bytes(type);
    size_t to_bytes = eb_type_bytes(job->output_type);
    const uint8_t *from = (const uint8_t *)job->table->vector + column * from_bytes;
    uint8_t *to = out + column * to_bytes;
    if (job->output_type == type) {
        memcpy(to, from, count * to_bytes);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        double value = eb_element_load_float((enum eb_storage)type, from + i * from_bytes);
        eb_element_store_float(job->output_type, value, to + i * to_bytes);
    }
}

void eb_bag_copy_columns(
    const struct eb_bag_job *job, int64_t row, uint32_t column, uint32_t count, uint8_t *out)
{
    size_t element_bytes = eb_type_bytes(job->output_type);
    size_t offset = column * element_bytes;
    if (row == EB_ROW_VECTOR) {
        copy_vector(job, column, count, out);
        return;
    }
    if (row < 0) {
        memset(out + offset, 0, count * element_bytes);
        return;
    }
    const struct eb_table *table = job->table;
    assert(eb_bag_is_copied(job));
    const uint8_t *from = (const uint8_t *)table->rows + (uint64_t)row * table->row_stride_bytes;
    memcpy(out + offset, from + offset, count * element_bytes);
}

void eb_bag_copy_range(const struct eb_bag_range *range, const struct eb_bag_ahead *ahead)
{
    const struct eb_bag_job *job = range->job;
    uint32_t count = range->element_end - range->element_first;
    struct eb_bag_lines lines = job->lines;
    if (count < job->table->row_elements) {
        lines = eb_bag_lines_find(job->table, range->element_first, range->element_end);
    }
    for (uint32_t b = range->bag_first; b < range->bag_end; b++) {
        if (ahead) {
            eb_bag_ahead_step(ahead, job->table, &lines, &job->rows[b]);
        }
        uint8_t *out = job->out + b * job->out_stride_bytes;
        eb_bag_copy_columns(job, job->rows[b], range->element_first, count, out);
    }
}
