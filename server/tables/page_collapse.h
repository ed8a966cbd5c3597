/* Joins small pages of tables in memory into pages of 2 MiB, a part of them at a time. When memory
 * is first written, the kernel may have no huge pages for it; later it may have some. Lookups go on
 * meanwhile: one that reads the page that is being made waits for it, usually less than a
 * millisecond. One pass over all tables may take many rounds.
 * Thread: one at a time in the process; the tables may be read on any. Memory: none. */
#pragma once

#include "server/tables/table_set.h"

/* Pages of 2 MiB that a round tries to make: 8 GiB. */
#define EB_PAGE_COLLAPSE_ROUND_PAGES 4096u

/* A round over the tables of several sets. */
struct eb_page_round {
    uint64_t pass;       /* number of the pass to which the round belongs; at least 1 */
    unsigned pages_left; /* pages that may still be tried; 0 ends the round */
    /* Called after each page that was tried; may sleep. Returns false to end the round. */
    bool (*go_on)(void *context);
    void *context;
    bool has_joined; /* set if a page is huge now; it may have been before */
};

/* Returns whether the set's tables should be in pages of 2 MiB or more, but some are not. */
bool eb_page_collapse_is_due(const struct eb_table_set *set);
/* Tries to join the pages of the set's tables that the pass has not tried yet. Ends the round if
 * the system has no more pages of 2 MiB. Does nothing if the round has ended. If the round has
 * pages left after it has run with all sets, the pass is over, and the next one may begin. */
void eb_page_collapse_run(struct eb_page_round *round, const struct eb_table_set *set);
/* Counts the set's pages again. */
void eb_page_collapse_recount(struct eb_table_set *set, const struct eb_page_report *report);
