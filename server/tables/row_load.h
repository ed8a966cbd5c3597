/* Loads the rows of planned tables from their files to their destinations in memory, with several
 * threads, and converts them if the model's description or a fused format requires it. Rows are
 * loaded and hashed in chunks, whose size depends neither on the files nor on the threads.
 * Thread: one at a time for each load; joins the threads that it starts. Memory: some MiB of the
 * heap for each thread while rows are converted, and the hashes until they are taken. */
#pragma once

#include "server/tables/planned_table.h"
#include "server/tables/table_storage.h"
#include "server/tables/worker_pool.h"

#include <pthread.h>

/* Bytes of rows in memory that make a chunk, unless one row is larger. This is enough for the
 * overhead not to matter, and little enough that the rows are still in the second-level cache when
 * they are converted and hashed (38 ms for 100 MiB, but 44 ms with chunks of 8 MiB). Also, a paced
 * load pauses every half millisecond with such chunks, instead of using a processor for several
 * milliseconds. */
#define EB_ROW_LOAD_CHUNK_BYTES (UINT64_C(512) << 10)

/* The rows of one table that are loaded, or compared with rows in memory. */
struct eb_row_load {
    const struct eb_table_plan *plan;
    const struct eb_planned_table *table;
    uint8_t *rows;           /* zeroed memory for the rows, table->rows_bytes; NULL to compare */
    const uint8_t *resident; /* rows to compare with; NULL to load */
    uint64_t *chunk_hashes;  /* [chunk count] XXH3-64 of the rows of each chunk as in memory; the
                                caller may take them, and sets the member to NULL then */
    bool has_difference;     /* the rows differ from the resident ones */
    /* Private. */
    uint64_t chunk_first; /* chunks [chunk_first, chunk_end) are loaded; `rows` begins with them */
    uint64_t chunk_end;
    uint64_t task_first;
    uint64_t task_count;
    uint64_t tasks_left;
    pthread_mutex_t mutex;
    atomic_bool is_different;
    struct eb_table_storage_check check; /* check of fused rows and of rows with only codes */
};

/* Returns the number of rows in a full chunk of a table whose rows lie row_stride_bytes bytes
 * apart. */
uint64_t eb_row_load_chunk_rows(uint64_t row_stride_bytes);
/* Returns the number of chunks of the planned table. */
uint64_t eb_row_load_chunk_count(const struct eb_planned_table *table);

/* Prepares to load the rows of a table to `rows` or, if that is NULL, to compare them with
 * `resident`. Returns false with *failure set if out of memory. */
bool eb_row_load_init(struct eb_row_load *load, const struct eb_table_plan *plan,
    const struct eb_planned_table *table, struct eb_failure *failure);
void eb_row_load_deinit(struct eb_row_load *load);
/* Limits the next run to chunks [first, end): their rows are loaded to the beginning of `rows`,
 * which needs to have room only for them. Ranges must follow one another from the table's first
 * chunk on, because checks that concern all rows are made with the last one. */
void eb_row_load_limit(struct eb_row_load *load, uint64_t first, uint64_t end);

/* Reads and converts one chunk of a table as a load would, on the calling thread, and sets *hash to
 * the XXH3-64 of its rows as they would lie in memory. The scales of the table as a whole are not
 * checked. Returns false with *failure set if the chunk cannot be read or converted, or if the
 * meter's progress gives up. */
bool eb_row_load_hash_chunk(const struct eb_table_plan *plan, const struct eb_planned_table *table,
    uint64_t chunk, struct eb_load_meter *meter, uint64_t *hash, struct eb_failure *failure);

/* Loads or compares the rows of all tables. The functions of `ops` convert them; NULL means the
 * fastest on this machine. A comparison ends at a difference, not necessarily the first one.
 * Returns false if a load or comparison fails: *failure names the file and what is wrong with it,
 * or the row that cannot be converted to codes. If there are several errors, it has the one in the
 * first chunk. */
bool eb_row_load_run(struct eb_row_load *loads, size_t count, unsigned thread_count,
    const struct eb_bag_ops *ops, struct eb_load_meter *meter, struct eb_failure *failure);
