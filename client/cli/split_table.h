/* Writes the packed files of one table of a version in parts: one file for each part if its rows
 * are divided, or else a single file. The rows are those that a server would have in memory, bit by
 * bit.
 * Thread: one at a time; it starts the threads that read and convert rows, and joins them. Memory:
 * some 100 MiB, and for each file its head and 1 MiB, on the heap. */
#pragma once

#include "client/cli/progress_bar.h"
#include "server/formats/parts_manifest.h"
#include "server/tables/planned_table.h"

struct eb_split_job {
    const struct eb_table_plan *plan;
    const struct eb_planned_table *table; /* one of the plan's */
    enum eb_placement placement;
    uint32_t part; /* of WHOLE */
    uint32_t parts;
    uint64_t salt;
    const char *directory;       /* of the version; it has the folders of all parts */
    unsigned thread_count;       /* 0 means one */
    struct eb_progress_bar *bar; /* advances by the bytes of the rows */
};

/* Returns the number of files: job->parts if the rows are divided, else 1. */
uint32_t eb_split_job_files(const struct eb_split_job *job);
/* Writes the files and sets digests[eb_split_job_files]. Returns false with *failure set, including
 * the path, if that fails; files that are complete stay. */
bool eb_split_table(const struct eb_split_job *job, uint64_t *digests, struct eb_failure *failure);
