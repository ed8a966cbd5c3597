/* Measures how long each variant of the kernels takes to convert rows of f32, as a load does: in
 * chunks of 512 KiB, which a load has just read. The variants take turns, and must give the same
 * bytes. Prints the medians.
 * Usage: embag-quantize-rows TURNS */
#include "kernels/bag_ops.h"
#include "kernels/quantize.h"
#include "kernels/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CHUNK_BYTES (512u << 10)
#define TURNS_MAX 51
#define VARIANTS_MAX 8 /* others are not measured */

static const enum eb_storage storages[] = {
    EB_STORAGE_INT8, EB_STORAGE_INT4, EB_STORAGE_INT2, EB_STORAGE_F16, EB_STORAGE_BF16};
static const uint32_t dims[] = {16, 64, 100, 128, 256};

/* The chunk that is converted. */
struct chunk {
    struct eb_quantize_job job;
    uint64_t row_count;
    float *rows;
    uint8_t *expected; /* what the reference writes */
    uint8_t *out;
    size_t out_bytes;
};

static double times[VARIANTS_MAX][TURNS_MAX];

static bool prepare_chunk(struct chunk *chunk, enum eb_storage to, uint32_t dim)
{
    struct eb_row_format format = eb_row_format_of(to, dim);
    uint64_t count = CHUNK_BYTES / (dim * sizeof(float));
    *chunk = (struct chunk){
        .job = {.from = EB_STORAGE_F32,
            .to = to,
            .elements = dim,
            .from_stride_bytes = dim * sizeof(float),
            .to_stride_bytes = format.stride_bytes,
            .to_offset_bytes = format.row_offset_bytes},
        .row_count = count,
        .rows = malloc(count * dim * sizeof(float)),
        .expected = calloc(count, format.stride_bytes),
        .out = calloc(count, format.stride_bytes),
        .out_bytes = count * format.stride_bytes,
    };
    if (!chunk->rows || !chunk->expected || !chunk->out) {
        return false;
    }
    for (uint64_t i = 0; i < count * dim; i++) {
        chunk->rows[i] = ((float)rand() / (float)RAND_MAX - 0.5f) * 0.1f;
    }
    return true;
}

static void free_chunk(struct chunk *chunk)
{
    free(chunk->rows);
    free(chunk->expected);
    free(chunk->out);
}

static double thread_nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* Converts the chunk once. Returns false if the bytes differ from the reference's. */
static bool convert_chunk(
    struct chunk *chunk, const struct eb_bag_ops *ops, bool is_reference, double *nanoseconds)
{
    uint8_t *out = is_reference ? chunk->expected : chunk->out;
    double start = thread_nanoseconds();
    uint64_t done =
        eb_quantize_rows(ops, &chunk->job, (const uint8_t *)chunk->rows, chunk->row_count, out);
    *nanoseconds = (thread_nanoseconds() - start) / (double)chunk->row_count;
    return done == chunk->row_count && memcmp(out, chunk->expected, chunk->out_bytes) == 0;
}

static int compare_times(const void *left, const void *right)
{
    const double *a = left;
    const double *b = right;
    return (*a > *b) - (*a < *b);
}

static void print_medians(const struct chunk *chunk, size_t turns)
{
    const struct eb_bag_ops *ops;
    double reference = 0;
    printf("%s dim %u:", eb_storage_name(chunk->job.to), chunk->job.elements);
    for (size_t n = 0; n < VARIANTS_MAX && (ops = eb_bag_ops_at(n)); n++) {
        if (!eb_bag_ops_runs_here(ops)) {
            continue;
        }
        qsort(times[n], turns, sizeof times[n][0], compare_times);
        double median = times[n][turns / 2];
        reference = n == 0 ? median : reference;
        printf(" %s %.1f ns (%.2f)", eb_bag_ops_name(ops), median, reference / median);
    }
    printf("\n");
}

/* Measures all variants. Returns false if one gives wrong bytes. */
static bool measure_chunk(struct chunk *chunk, size_t turns)
{
    const struct eb_bag_ops *ops;
    for (size_t turn = 0; turn < turns; turn++) {
        for (size_t n = 0; n < VARIANTS_MAX && (ops = eb_bag_ops_at(n)); n++) {
            if (eb_bag_ops_runs_here(ops) && !convert_chunk(chunk, ops, n == 0, &times[n][turn])) {
                fprintf(stderr, "%s: %s dim %u: the bytes differ from the reference's\n",
                    eb_bag_ops_name(ops), eb_storage_name(chunk->job.to), chunk->job.elements);
                return false;
            }
        }
    }
    print_medians(chunk, turns);
    return true;
}

int main(int argument_count, char **arguments)
{
    long turns = argument_count == 2 ? strtol(arguments[1], NULL, 10) : 0;
    if (turns < 1 || turns > TURNS_MAX) {
        fprintf(stderr, "usage: embag-quantize-rows TURNS (1 to %d)\n", TURNS_MAX);
        return 2;
    }
    bool is_good = true;
    for (size_t s = 0; is_good && s < sizeof storages / sizeof storages[0]; s++) {
        for (size_t d = 0; is_good && d < sizeof dims / sizeof dims[0]; d++) {
            struct chunk chunk;
            is_good =
                prepare_chunk(&chunk, storages[s], dims[d]) && measure_chunk(&chunk, (size_t)turns);
            free_chunk(&chunk);
        }
    }
    return is_good ? 0 : 1;
}
