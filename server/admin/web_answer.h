/* What the operators' port answers: paths and what is to be read at each.
 * Thread: any. Memory: an answer's text is its owner's, see eb_web_answer_deinit. */
#pragma once

#include "server/admin/metrics_text.h"
#include "server/stats/stats.h"

enum eb_web_need {
    EB_WEB_NEEDS_NOTHING,
    EB_WEB_NEEDS_LOOPS, /* that they answer: a bare stats */
    EB_WEB_NEEDS_COUNTS /* a whole one */
};

/* X(NAME, "path", what it needs): paths that there are. */
#define EB_WEB_PATH_LIST(X)                                                                        \
    X(PAGE, "/", NOTHING)                                                                          \
    X(HEALTHZ, "/healthz", LOOPS) /* 200 as long as the loops answer */                            \
    X(METRICS, "/metrics", COUNTS)                                                                 \
    X(READYZ, "/readyz", NOTHING) /* 200 when models are served, else 503 and why not */           \
    X(STATUS, "/status.json", COUNTS)                                                              \
    X(VERSION, "/version", NOTHING)

#define X(name, path, need) EB_WEB_##name,
enum eb_web_path { EB_WEB_PATH_LIST(X) EB_WEB_PATH_COUNT };
#undef X

/* Of embagd: plain ASCII without quotes or backslashes. */
struct eb_web_facts {
    const char *version;
    const char *build;
    const char *isa;
    struct eb_metrics_limits limits;
};

struct eb_web_answer {
    unsigned code;    /* of HTTP */
    const char *type; /* Content-Type; NULL: there is no answer, for want of memory */
    char *owned;      /* the text, where it is on the heap; else NULL */
    const char *text;
    size_t size;
};

/* The status page, status_page.html, as the build has embedded it. */
extern const uint8_t eb_status_page[];
extern const size_t eb_status_page_bytes;

/* EB_WEB_PATH_COUNT: there is no such path. */
enum eb_web_path eb_web_path_find(const char *path);
enum eb_web_need eb_web_path_need(enum eb_web_path path);

/* Whether a browser that was led here by a stranger's site could have sent this Host header (NULL:
 * there is none): one with a name that a stranger may own. Such a site, whose name turns into
 * 127.0.0.1 once it is loaded, could read what is meant for who sits at this machine. IP addresses,
 * names without a dot and localhost are nobody else's. */
bool eb_web_answer_suspects_host(const char *host);

/* What is at the path. `stats` is NULL where none is needed, and may be a bare one
 * where that will do. */
struct eb_web_answer eb_web_answer_make(enum eb_web_path path, const struct eb_web_facts *facts,
    enum eb_stats_phase phase, const struct eb_stats *stats);
/* 404 with the list of paths. */
struct eb_web_answer eb_web_answer_no_path(void);
/* The text is a constant. */
struct eb_web_answer eb_web_answer_say(unsigned code, const char *text);
/* Accepts zeroes. */
void eb_web_answer_deinit(struct eb_web_answer *answer);
