/* The log: one structured line (logfmt) per event on stderr, values quoted and escaped where
 * needed, so that no peer's bytes can forge a line.
 * Thread: any; a line is written by one write(2). Memory: none; a line is cut at 4 KiB. Where
 * nobody reads stderr lines are lost rather than waited for; `event=log_lost` counts them. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum eb_log_level { EB_LOG_DEBUG, EB_LOG_INFO, EB_LOG_WARN, EB_LOG_ERROR };

/* One key=value. Made by eb_log_text, eb_log_number, eb_log_count. */
struct eb_log_field {
    const char *key;
    const char *text; /* NULL: the number counts */
    int64_t number;
    bool is_count; /* the number is of 64 bits without a sign */
};

static inline struct eb_log_field eb_log_text(const char *key, const char *text)
{
    return (struct eb_log_field){.key = key, .text = text ? text : ""};
}

static inline struct eb_log_field eb_log_number(const char *key, int64_t number)
{
    return (struct eb_log_field){.key = key, .number = number};
}

static inline struct eb_log_field eb_log_count(const char *key, uint64_t count)
{
    return (struct eb_log_field){.key = key, .number = (int64_t)count, .is_count = true};
}

/* "info" and so on to level; -1: no such level. */
int eb_log_level_parse(const char *name);
const char *eb_log_level_name(enum eb_log_level level);
/* Where stderr is a terminal, which may stand still (Ctrl-S) although it polls as writable: opens
 * it anew, so that a line is lost rather than waited for. Where it cannot be opened it is waited
 * for. Both once, where no other thread logs; without them the log is written all the same. */
void eb_log_open(void);
void eb_log_close(void);
/* Set once at start, before other threads log. */
void eb_log_set_level(enum eb_log_level level);

/* Writes `ts=2026-01-31T12:00:00.123Z level=info event=listening loops=2`. `fields` end at the one
 * whose key is NULL. A line that cannot be written is lost; errno is kept. Use through eb_log. */
void eb_log_write(enum eb_log_level level, const char *event, const struct eb_log_field *fields);

/* An INFO for a signal's handler that ends the process: waits for no lock that the thread which it
 * interrupts may have. `fields` as of eb_log_write. */
void eb_log_last(const char *event, const struct eb_log_field *fields);

/* An ERROR event=start_failed: what of the start failed, why, and what to do about it. */
void eb_log_fail_start(const char *what, const char *reason, const char *hint);

/* eb_log(EB_LOG_INFO, "listening", eb_log_text("address", address), eb_log_number("loops", n)); */
#define eb_log(level, event, ...)                                                                  \
    eb_log_write(level, event, (const struct eb_log_field[]){__VA_ARGS__, {0}})
