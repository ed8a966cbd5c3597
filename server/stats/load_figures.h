/* The load of a process, as load reports give it: shares of its capacity that were used, and rates
 * of lookups, over the time between two readings of counters that only grow.
 * Threads: eb_loop_load is written by its loop and read by any; all else is the owner's. Memory:
 * none. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

/* The counts of one loop since it began. The loop writes them about once a second, so a reader may
 * see counts that are a second old. */
struct eb_loop_load {
    atomic_uint_fast64_t busy_ns; /* time that the loop was busy */
    atomic_uint_fast64_t lookups; /* lookups that ended, whatever their status */
    atomic_uint_fast64_t errors;  /* those of them that failed */
};

/* A reading of a process's counters. */
struct eb_load_sums {
    uint64_t taken_ns;         /* when it was taken (uv_hrtime) */
    uint64_t cpu_ns;           /* CPU time of all threads */
    uint64_t loop_busy_ns;     /* of all loops together */
    uint64_t executor_busy_ns; /* of all its threads together */
    uint64_t lookups;          /* of all loops */
    uint64_t errors;
};

/* The numbers that shares relate to. */
struct eb_load_capacity {
    uint32_t cpus; /* at least 1, as all of them are */
    uint32_t loops;
    uint32_t threads; /* of the executor */
};

/* Shares are from 0 to 1. */
struct eb_load_figures {
    double cpu;      /* share of the CPU time of all CPUs */
    double loops;    /* share of their time that the loops were busy */
    double executor; /* share of their time that the executor's threads were busy */
    double lookups_per_s;
    double errors_per_s;
};

/* Adds the counts of a loop. */
void eb_load_sums_add(struct eb_load_sums *sums, const struct eb_loop_load *loop);
/* Returns the figures of the time between two readings. `to` must be later than `from`. */
struct eb_load_figures eb_load_figures_between(const struct eb_load_sums *from,
    const struct eb_load_sums *to, const struct eb_load_capacity *capacity);
