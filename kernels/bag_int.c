#include "kernels/bag_int.h"

#include "kernels/bag_copy.h"

#include <assert.h>
#include <string.h>

/* Number of rows that are folded at a time, as a chunk. From one chunk to the next, sums go through
 * memory. Measured with AVX-512 and i32 rows of 128 in L2: 5.5 ns per row with chunks of 4 rows,
 * 4.5 with 8, 4.0 with 16 and 32. Outside of the caches it makes no difference. */
#define CHUNK_ROWS 16

/* Bags of fewer rows are not compared with the bag before, because pooling them costs about as much
 * as comparing. */
#define COPY_ROWS_MIN 4

#define BLOCK_BYTES_MAX (EB_BAG_INT_BLOCK_VECTORS * EB_BAG_INT_VECTOR_BYTES_MAX)

/* Most pieces of a block. A block of bytes with 64-bit sums has this many. */
#define PIECES_MAX 8

struct piece {
    uint32_t column; /* first column, in the block */
    uint32_t size;   /* logarithm of the count of columns */
};

/* The cut of a block's columns into pieces. All pieces together are at most as long as a whole
 * block. */
struct plan {
    uint32_t columns;
    uint32_t piece_count;
    struct piece pieces[PIECES_MAX];
};

/* The values that are the same for all bags of a range. */
struct pass {
    const struct eb_bag_range *range;
    const struct eb_bag_ahead *ahead; /* NULL: nothing is prefetched */
    const eb_bag_int_fold_fn *folds;  /* functions by size of the piece */
    enum eb_bag_int_fold fold;
    uint64_t flip;
    uint32_t element_bytes;
    uint32_t sum_bytes; /* size of a column's sum between chunks */
    struct plan whole;  /* for a whole block */
    struct plan rest;   /* for a shorter last block of the range; no columns if there is none */
};

/* One bag. */
struct bag {
    const eb_bag_row *rows;  /* [count] */
    const uint64_t *weights; /* parallel to rows; NULL: no weights */
    uint32_t count;
    uint8_t *out; /* the bag's row of the result */
};

/* A block of a bag that is being pooled. */
struct block {
    const struct plan *plan;
    const struct eb_bag_lines *lines; /* of its columns */
    uint8_t *out;                     /* result of the block's columns */
    uint64_t sums[BLOCK_BYTES_MAX];   /* sums of all pieces, in their order; 64-bit sums fill it */
};

static_assert(BLOCK_BYTES_MAX <= EB_ZERO_ROW_BYTES, "a block of a row of zeros");

static struct bag find_int_bag(const struct eb_bag_job *job, uint32_t b)
{
    uint32_t first = job->starts ? job->starts[b] : b;
    return (struct bag){
        .rows = job->rows + first,
        .weights = job->weights ? (const uint64_t *)job->weights + first : NULL,
        .count = job->starts ? job->starts[b + 1] - first : 1,
        .out = job->out + b * job->out_stride_bytes,
    };
}

/* Finds the addresses of a chunk's rows, and prefetches for each row. */
static void find_int_rows(const struct pass *pass, const struct block *block, uint32_t column,
    const eb_bag_row *numbers, struct eb_bag_int_chunk *chunk)
{
    const struct eb_table *table = pass->range->job->table;
    const uint8_t *columns = (const uint8_t *)table->rows + (size_t)column * pass->element_bytes;
    for (uint32_t i = 0; i < chunk->row_count; i++) {
        if (pass->ahead) {
            eb_bag_ahead_step(pass->ahead, table, block->lines, numbers + i);
        }
        int64_t number = numbers[i];
        chunk->rows[i] =
            number < 0 ? eb_zero_row : columns + (uint64_t)number * table->row_stride_bytes;
    }
}

/* Folds a chunk. The sums of the last chunk go to the result, except the 64-bit sums of a mean,
 * which must be divided first. */
static void fold_chunk(const struct pass *pass, const struct eb_bag_int_chunk *chunk, bool is_first,
    bool is_last, struct block *block)
{
    uint8_t *sums = (uint8_t *)block->sums;
    for (uint32_t p = 0; p < block->plan->piece_count; p++) {
        const struct piece *piece = &block->plan->pieces[p];
        size_t offset = (size_t)piece->column * pass->element_bytes;
        bool is_out = is_last && pass->fold != EB_BAG_INT_WIDE;
        pass->folds[piece->size](
            chunk, offset, is_first ? NULL : sums, is_out ? block->out + offset : sums);
        sums += (size_t)pass->sum_bytes << piece->size;
    }
}

/* The divisor of sums. */
struct divisor {
    uint64_t count;
    uint64_t reciprocal; /* 2^64 / count rounded down, or one less than that */
    uint64_t offset;     /* to be added to sums because of flipped bits */
    bool is_signed;
};

__extension__ typedef unsigned __int128 uint128;

/* Divides and truncates. Takes 1 ns (measured); a division instruction takes 3 ns. */
static inline uint64_t divide(const struct divisor *by, uint64_t sum)
{
    uint64_t total = sum + by->offset;
    uint64_t sign = by->is_signed ? -(total >> 63) : 0;
    uint64_t magnitude = (total ^ sign) - sign;
    uint64_t quotient = (uint64_t)((uint128)magnitude * by->reciprocal >> 64);
    /* So far this is the exact quotient or one less. */
    quotient += magnitude - quotient * by->count >= by->count;
    return (quotient ^ sign) - sign;
}

static inline void divide_piece(const struct divisor *by, const uint64_t *sums, uint32_t count,
    size_t element_bytes, uint8_t *out)
{
    for (uint32_t i = 0; i < count; i++) {
        uint64_t mean = divide(by, sums[i]);
        memcpy(out + i * element_bytes, &mean, element_bytes);
    }
}

static void divide_block(const struct pass *pass, const struct block *block, uint32_t count)
{
    struct divisor by = {
        .count = count,
        .reciprocal = UINT64_MAX / count,
        .offset = pass->flip * count,
        .is_signed = eb_type_is_signed(pass->range->job->table->type),
    };
    const uint64_t *sums = block->sums;
    for (uint32_t p = 0; p < block->plan->piece_count; p++) {
        const struct piece *piece = &block->plan->pieces[p];
        uint32_t columns = UINT32_C(1) << piece->size;
        uint8_t *out = block->out + (size_t)piece->column * pass->element_bytes;
        switch (pass->element_bytes) {
        case 1: divide_piece(&by, sums, columns, 1, out); break;
        case 2: divide_piece(&by, sums, columns, 2, out); break;
        case 4: divide_piece(&by, sums, columns, 4, out); break;
        default: divide_piece(&by, sums, columns, 8, out); break;
        }
        sums += columns;
    }
}

static void pool_int_block(const struct pass *pass, const struct bag *bag, const struct plan *plan,
    const struct eb_bag_lines *lines, uint32_t column)
{
    struct block block;
    block.plan = plan;
    block.lines = lines;
    block.out = bag->out + (size_t)column * pass->element_bytes;
    const uint8_t *rows[CHUNK_ROWS];
    struct eb_bag_int_chunk chunk = {.rows = rows, .flip = pass->flip};
    for (uint32_t first = 0; first < bag->count; first += chunk.row_count) {
        uint32_t rows_left = bag->count - first;
        chunk.row_count = rows_left < CHUNK_ROWS ? rows_left : CHUNK_ROWS;
        chunk.weights = bag->weights ? bag->weights + first : NULL;
        find_int_rows(pass, &block, column, bag->rows + first, &chunk);
        fold_chunk(pass, &chunk, first == 0, chunk.row_count == rows_left, &block);
    }
    if (pass->fold == EB_BAG_INT_WIDE) {
        divide_block(pass, &block, bag->count);
    }
}

/* Returns whether the bag `before` pooled the same rows, so that both bags have the same result. */
static bool is_repeated(const struct bag *bag, const struct bag *before)
{
    if (bag->count < COPY_ROWS_MIN || bag->count != before->count ||
        bag->rows[0] != before->rows[0]) {
        return false;
    }
    return memcmp(bag->rows, before->rows, bag->count * sizeof bag->rows[0]) == 0 &&
           (!bag->weights ||
               memcmp(bag->weights, before->weights, bag->count * sizeof bag->weights[0]) == 0);
}

static void repeat_int(const struct pass *pass, const struct bag *bag, const struct bag *before,
    const struct plan *plan, uint32_t column)
{
    size_t offset = (size_t)column * pass->element_bytes;
    memcpy(bag->out + offset, before->out + offset, (size_t)plan->columns * pass->element_bytes);
}

/* Pools a block of bags [bag_first, bag_end). */
static void pool_bags(const struct pass *pass, uint32_t bag_first, uint32_t bag_end,
    const struct plan *plan, uint32_t column)
{
    const struct eb_bag_job *job = pass->range->job;
    struct eb_bag_lines lines = eb_bag_lines_find(job->table, column, column + plan->columns);
    struct bag before = {.count = 0};
    if (bag_first > pass->range->bag_first) {
        before = find_int_bag(job, bag_first - 1);
    }
    for (uint32_t b = bag_first; b < bag_end; b++) {
        struct bag bag = find_int_bag(job, b);
        if (bag.count == 0) {
            eb_bag_copy_columns(job, job->default_row, column, plan->columns, bag.out);
        } else if (is_repeated(&bag, &before)) {
            repeat_int(pass, &bag, &before, plan, column);
        } else {
            pool_int_block(pass, &bag, plan, &lines, column);
        }
        before = bag;
    }
}

/* Pools group by group, block by block. */
static void pool_int_groups(const struct pass *pass)
{
    const struct eb_bag_range *range = pass->range;
    uint32_t first = range->bag_first;
    while (first < range->bag_end) {
        uint32_t end = eb_bag_group_end(range->job, first, range->bag_end);
        uint32_t column = range->element_first;
        while (column < range->element_end) {
            bool is_whole = range->element_end - column >= pass->whole.columns;
            const struct plan *plan = is_whole ? &pass->whole : &pass->rest;
            pool_bags(pass, first, end, plan, column);
            column += plan->columns;
        }
        first = end;
    }
}

static enum eb_bag_int_fold choose_int_fold(const struct eb_bag_job *job)
{
    switch (job->reduction) {
    case EB_REDUCTION_MEAN: return EB_BAG_INT_WIDE;
    case EB_REDUCTION_MAX:
    case EB_REDUCTION_MIN: return EB_BAG_INT_MAX;
    default: return job->weights ? EB_BAG_INT_WEIGHTED : EB_BAG_INT_SUM;
    }
}

/* Returns the bits to flip. Flipping the top bit of an unsigned number gives a signed one that is
 * less by the value of that bit. The minimum is the maximum with all bits flipped. */
static uint64_t choose_flip(const struct eb_bag_job *job)
{
    enum eb_type type = job->table->type;
    uint64_t top = UINT64_C(1) << (8 * eb_type_bytes(type) - 1);
    uint64_t flip = eb_type_is_signed(type) ? 0 : top;
    switch (job->reduction) {
    case EB_REDUCTION_MAX: return flip;
    case EB_REDUCTION_MIN: return flip ^ (top | (top - 1));
    /* Sums of 64 bits need no correction. */
    case EB_REDUCTION_MEAN: return eb_type_bytes(type) < 8 ? flip : 0;
    default: return 0;
    }
}

/* Cuts `columns` into the longest possible pieces. The last piece may overlap the piece before
 * it. */
static struct plan make_plan(const eb_bag_int_fold_fn *folds, uint32_t columns)
{
    struct plan plan = {.columns = columns};
    uint32_t column = 0;
    while (column < columns) {
        uint32_t columns_left = columns - column;
        uint32_t size = 0;
        while (size + 1 < EB_BAG_INT_PIECE_SIZES && folds[size + 1] &&
               UINT32_C(1) << size < columns_left) {
            size++;
        }
        uint32_t length = UINT32_C(1) << size;
        if (length > columns) {
            size--;
            length /= 2;
        } else if (length > columns_left) {
            column = columns - length;
        }
        assert(plan.piece_count < PIECES_MAX);
        plan.pieces[plan.piece_count++] = (struct piece){.column = column, .size = size};
        column += length;
    }
    return plan;
}

static unsigned logarithm(uint32_t power)
{
    return (unsigned)__builtin_ctz(power);
}

void eb_bag_int_pool(const struct eb_bag_range *range, const struct eb_bag_ahead *ahead,
    const struct eb_bag_int_folds *folds)
{
    const struct eb_bag_job *job = range->job;
    uint32_t element_bytes = (uint32_t)eb_type_bytes(job->table->type);
    uint32_t block_columns = EB_BAG_INT_BLOCK_VECTORS * folds->vector_bytes / element_bytes;
    struct pass pass = {
        .range = range,
        .ahead = ahead,
        .fold = choose_int_fold(job),
        .flip = choose_flip(job),
        .element_bytes = element_bytes,
    };
    pass.folds = *folds->pieces[pass.fold][logarithm(element_bytes)];
    pass.sum_bytes = pass.fold == EB_BAG_INT_WIDE ? sizeof(uint64_t) : element_bytes;
    pass.whole = make_plan(pass.folds, block_columns);
    pass.rest = make_plan(pass.folds, (range->element_end - range->element_first) % block_columns);
    pool_int_groups(&pass);
}
