/* The stats of a process at one time. /metrics, the status page and /status.json are written from
 * them. The collector (stats_collector.h) makes them.
 * Threads: the owner's. Memory: on the heap, with all texts and lists; one owner. */
#pragma once

#include "server/base/counters.h"
#include "server/models/snapshot.h"
#include "server/stats/route_stats.h"
#include "server/work/executor.h"

struct eb_table_sums;

#define EB_STATS_HOT_ROWS 16      /* of each table */
#define EB_STATS_SLOW_REQUESTS 32 /* of all loops */
#define EB_STATS_TEXT_BYTES 128   /* of a slow request's texts, which are cut to fit */

/* X(NAME, "name"): the phases of a process. */
#define EB_STATS_PHASE_LIST(X)                                                                     \
    X(LOADING, "loading") /* there are no models yet */                                            \
    X(SERVING, "serving")                                                                          \
    X(DRAINING, "draining") /* nothing new is accepted */

#define X(name, text) EB_STATS_##name,
enum eb_stats_phase { EB_STATS_PHASE_LIST(X) };
#undef X

struct eb_stats_method {
    const char *service; /* "embag.v1.EmbeddingBag"; "" for unknown methods */
    const char *method;
};

struct eb_stats_loop {
    uint64_t connections;   /* open connections */
    uint64_t handshakes;    /* connections that wait for a step of their TLS handshake */
    uint64_t receive_bytes; /* bytes taken from its receive pool */
    uint64_t answer_bytes;
    struct eb_histogram lag;
};

/* The lookups in a table since the start, in all its versions. */
struct eb_stats_table {
    char *model;
    char *table;
    uint64_t bags;
    uint64_t indices;
    uint64_t missing; /* indices that named no row */
    /* The rows or keys that were looked up most in recent times, estimated from a sample; most
     * first. */
    size_t hot_count;
    struct eb_stats_hot_row {
        int64_t id;
        double share; /* approximate share of the recent indices that named a row */
    } hot[EB_STATS_HOT_ROWS];
};

/* Bytes of rows, keys and their indexes, by page size, not rounded up to whole pages. */
struct eb_stats_page_bytes {
    uint64_t small;
    uint64_t huge_2m;
    uint64_t huge_1g;
};

struct eb_stats_version {
    uint64_t number;
    enum eb_version_state state;
    bool is_claimed;          /* a router claims it */
    bool is_served_by_router; /* a router that claims it answers requests with it */
    uint64_t loaded_unix_ms;  /* 0 if not in memory; then all numbers below are also 0 */
    uint64_t load_ms;
    uint64_t tables;
    uint64_t rows;
    uint64_t bytes; /* in whole pages */
    struct eb_stats_page_bytes pages;
    struct eb_stats_page_bytes tmpfs_pages;     /* part of `pages`: resident files in a tmpfs */
    struct eb_stats_page_bytes hugetlbfs_pages; /* part of `pages`: the same in a hugetlbfs */
    char *failure;                              /* reason why it does not load; NULL if it loads */
};

struct eb_stats_model {
    char *name;
    uint64_t served;               /* 0 if no version is */
    struct eb_claim_counts claims; /* for all its versions, also for those that are not here */
    char *failure;                 /* what is wrong with its directory; NULL if nothing is */
    size_t version_count;
    struct eb_stats_version *versions; /* highest first */
};

#define EB_STATS_RESIDENT_OUTCOMES 6

/* The directory of resident tables, as it was at the last scan or publish. */
struct eb_resident_facts {
    bool is_used; /* false: there is no such directory, and the other members are not set */
    bool is_owner;
    bool is_complete;         /* everything that is served is recorded with all of its tables */
    uint64_t mapped_bytes;    /* of files that this process has mapped */
    uint64_t unused_bytes;    /* of other files */
    uint64_t uncharged_bytes; /* mapped, but not charged to a control group of this process */
    uint64_t free_bytes;      /* that the file system can still take */
    uint64_t tables[EB_STATS_RESIDENT_OUTCOMES]; /* since the start, by eb_resident_outcome */
};

/* X(setting): limits that the values of other metrics approach. */
#define EB_METRICS_LIMIT_LIST(X)                                                                   \
    X(queue_bytes_max)                                                                             \
    X(receive_memory_bytes)                                                                        \
    X(answer_memory_bytes)                                                                         \
    X(connections_max)

struct eb_metrics_limits {
#define X(member) uint64_t member;
    EB_METRICS_LIMIT_LIST(X)
#undef X
};

/* X(NAME, "name"): the phases of a start that take long. */
#define EB_STATS_START_LIST(X)                                                                     \
    X(SCAN, "scan")   /* the repository is scanned */                                              \
    X(ADOPT, "adopt") /* resident files of at least one version are checked and mapped */          \
    X(LOAD, "load")   /* the rest of the time in which versions are loaded */                      \
    X(TUNE, "tune")   /* measurements choose how far ahead rows are prefetched */

#define X(name, text) EB_STATS_START_##name,
enum eb_stats_start { EB_STATS_START_LIST(X) EB_STATS_STARTS };
#undef X

/* Facts that main reported last. */
struct eb_process_facts {
    bool is_started;                    /* the process has been ready */
    uint64_t start_ns[EB_STATS_STARTS]; /* how long each phase of its start took */
    int64_t certificate_expiry_unix_s;  /* 0 if there is no certificate */
    uint64_t reloads_done;              /* of settings, certificates and the auth_file */
    uint64_t reloads_failed;
    uint64_t settings_pending; /* settings that will change at the next start */
    struct eb_metrics_limits limits;
    bool is_repository_watched; /* it is scanned from time to time, or was until it could be read */
    bool is_repository_unreadable;
    uint64_t load_done_bytes; /* of all versions that are being loaded; both are 0 if none is */
    uint64_t load_total_bytes;
    uint64_t load_cached_bytes; /* of table files, since the start: copied from the page cache */
    uint64_t load_direct_bytes; /* of table files, since the start: read with O_DIRECT */
    uint64_t load_plain_bytes;  /* of table files, since the start: read as usual */
    uint64_t load_threads;      /* threads that load tables now, for all versions together */
    uint64_t loads_stalled;
    struct eb_resident_facts resident;
};

/* One of the slowest lookups of the last minutes. */
struct eb_stats_slow {
    uint64_t unix_ms;            /* when it was over */
    uint64_t ns[EB_STAGE_COUNT]; /* SEND is 0, because the answer had not been sent */
    uint64_t indices;
    uint64_t value_bytes;
    enum eb_status status;
    char method[EB_STATS_TEXT_BYTES];
    char model[EB_STATS_TEXT_BYTES];
    char peer[EB_STATS_TEXT_BYTES];
    char trace[64]; /* trace id of its traceparent; "" if it had no traceparent */
    char span[32];  /* the caller's span, from its traceparent; "" if there was none */
};

struct eb_stats {
    enum eb_stats_phase phase;
    uint64_t taken_unix_ms;
    uint64_t started_unix_ms;
    size_t method_count; /* in the order of eb_method_entry's index */
    struct eb_stats_method methods[EB_COUNTERS_METHODS_MAX];
    struct eb_counters total; /* of all loops */
    size_t loop_count;
    struct eb_stats_loop *loops;
    struct eb_executor_stats executor;
    size_t table_count;
    struct eb_stats_table *tables; /* sorted by model and table */
    size_t model_count;
    struct eb_stats_model *models; /* sorted by name */
    struct eb_snapshot_loads loads;
    struct eb_process_facts facts;
    struct eb_route_counts *route;      /* of all loops; NULL if this is no router */
    struct eb_route_facts *route_facts; /* a hold; NULL if this is no router, or not yet known */
    size_t slow_count;
    struct eb_stats_slow slow[EB_STATS_SLOW_REQUESTS]; /* longest first */
};

/* The counts of one loop: gathered on its thread, added on another. */
struct eb_loop_stats {
    struct eb_counters counters;
    uint64_t connections; /* as in eb_stats_loop */
    uint64_t handshakes;
    uint64_t receive_bytes;
    uint64_t answer_bytes;
    size_t slow_count;
    struct eb_stats_slow slow[EB_STATS_SLOW_REQUESTS]; /* in no order */
    struct eb_table_sums *tables; /* freed by free(); NULL if there was no memory for it */
    bool is_router;
    struct eb_route_counts *route; /* of a router: the same */
};

/* Returns empty stats with room for `loop_count` loops; NULL if out of memory. */
struct eb_stats *eb_stats_make(size_t loop_count);
/* Adds a loop and what it has counted, except its tables, since the tables of all loops are merged
 * in one pass (table_sums.h). */
void eb_stats_add(struct eb_stats *stats, const struct eb_loop_stats *loop);
/* Adds slow requests to the stats, which keep only the slowest, longest first. */
void eb_stats_add_slow(struct eb_stats *stats, const struct eb_stats_slow *slow, size_t count);
/* Frees the stats. Accepts NULL. */
void eb_stats_free(struct eb_stats *stats);

/* Returns "loading", "serving" or "draining". */
const char *eb_stats_phase_name(enum eb_stats_phase phase);
