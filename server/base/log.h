/* The log: one structured line for each event on stderr, as logfmt or as a JSON object (RFC 8259).
 * Both formats have the same keys in the same order. Values are quoted and escaped if needed, so
 * that a peer's bytes can neither forge a line nor make it malformed.
 * Thread: any; a line is written by one write(2). Memory: none; a line is cut at 4 KiB. If nobody
 * reads stderr, lines are lost and nothing waits; `event=log_lost` counts them. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum eb_log_level { EB_LOG_DEBUG, EB_LOG_INFO, EB_LOG_WARN, EB_LOG_ERROR };

/* The values of the setting log_format. */
enum eb_log_format { EB_LOG_LOGFMT, EB_LOG_JSON };
extern const char *const eb_log_format_names[]; /* ended by NULL */

/* One key and its value. Made by eb_log_text, eb_log_number, eb_log_count or eb_log_truth. */
struct eb_log_field {
    const char *key;
    const char *text; /* NULL if the value is `number` */
    int64_t number;
    bool is_count; /* whether `number` holds a uint64_t */
    bool is_truth; /* whether `text` is "true" or "false" and becomes a boolean in JSON */
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

static inline struct eb_log_field eb_log_truth(const char *key, bool truth)
{
    return (struct eb_log_field){.key = key, .text = truth ? "true" : "false", .is_truth = true};
}

/* Returns the level of a name ("info" and so on), or -1 if there is no such level. */
int eb_log_level_parse(const char *name);
const char *eb_log_level_name(enum eb_log_level level);
/* If stderr is a terminal, opens it again in non-blocking mode. A terminal that was stopped
 * (Ctrl-S) still polls as writable; in this mode the log drops lines instead of waiting. If opening
 * fails, the log waits for a stopped terminal. Call eb_log_open and eb_log_close once each, while
 * no other thread logs. The log also works without these calls. */
void eb_log_open(void);
void eb_log_close(void);
/* Set the lowest level of the lines that are written from now on, and their format.
 * Initially, the level is INFO and the format logfmt. */
void eb_log_set_level(enum eb_log_level level);
void eb_log_set_format(enum eb_log_format format);

/* Writes `ts=2026-01-31T12:00:00.123Z level=info event=listening loops=2`, or
 * `{"ts":"2026-01-31T12:00:00.123Z","level":"info","event":"listening","loops":2}`. `fields` end
 * with one whose key is NULL; keys are made of letters, digits and underscores. If the line is too
 * long, its last value is cut between two characters, the fields after it are left out, and the
 * quotes and the object are closed. In JSON a byte that is not UTF-8 becomes \ufffd; control
 * characters and marks that break lines or change the writing direction become \u escapes. A line
 * that cannot be written is lost. Keeps errno. Use it through eb_log. */
void eb_log_write(enum eb_log_level level, const char *event, const struct eb_log_field *fields);

/* Writes an INFO line from the handler of a signal that ends the process. Takes no lock, because
 * the interrupted thread may hold it. `fields` as for eb_log_write. */
void eb_log_last(const char *event, const struct eb_log_field *fields);

/* Writes an ERROR line event=start_failed: what failed at start, why, and what to do about it. */
void eb_log_fail_start(const char *what, const char *reason, const char *hint);

/* eb_log(EB_LOG_INFO, "listening", eb_log_text("address", address), eb_log_number("loops", n)); */
#define eb_log(level, event, ...)                                                                  \
    eb_log_write(level, event, (const struct eb_log_field[]){__VA_ARGS__, {0}})
