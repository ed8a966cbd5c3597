/* The answers of the operators' port: its paths, and the content of each.
 * Thread: any. Memory: an answer's text belongs to its owner, see eb_web_answer_deinit. */
#pragma once

#include "server/admin/metrics_text.h"
#include "server/stats/stats.h"

enum eb_web_need {
    EB_WEB_NEEDS_NOTHING,
    EB_WEB_NEEDS_LOOPS, /* bare stats, which only show that the loops answer */
    EB_WEB_NEEDS_COUNTS /* full stats */
};

/* X(NAME, "path", what it needs): the paths. */
#define EB_WEB_PATH_LIST(X)                                                                        \
    X(PAGE, "/", NOTHING)                                                                          \
    X(HEALTHZ, "/healthz", LOOPS) /* 200 as long as the loops answer */                            \
    X(METRICS, "/metrics", COUNTS)                                                                 \
    X(READYZ, "/readyz", NOTHING) /* 200 when the server is ready, else 503 with the reason */     \
    X(STATUS, "/status.json", COUNTS)                                                              \
    X(VERSION, "/version", NOTHING)

#define X(name, path, need) EB_WEB_##name,
enum eb_web_path { EB_WEB_PATH_LIST(X) EB_WEB_PATH_COUNT };
#undef X

/* Facts of embagd: plain ASCII without quotes or backslashes. */
struct eb_web_facts {
    const char *version;
    const char *build;
    const char *isa;
};

struct eb_web_answer {
    unsigned code;    /* HTTP status code */
    const char *type; /* Content-Type; NULL if out of memory: there is no answer */
    char *owned;      /* the text if it is on the heap, else NULL */
    const char *text;
    size_t size;
};

/* The status page, status_page.html, embedded by the build. */
extern const uint8_t eb_status_page[];
extern const size_t eb_status_page_bytes;

/* Returns the path of a request; EB_WEB_PATH_COUNT if there is no such path. */
enum eb_web_path eb_web_path_find(const char *path);
enum eb_web_need eb_web_path_need(enum eb_web_path path);

/* Returns whether a stranger's web site could have led a browser here with this Host header, which
 * is NULL if there is none. It could if the header holds a name that a stranger may own: the site
 * can make its name resolve to 127.0.0.1 once its page is loaded, and then read what is meant for
 * the user of this machine. IP addresses, names without a dot, localhost and names below localhost
 * do not belong to strangers. */
bool eb_web_answer_suspects_host(const char *host);

/* Returns the answer for a path. `not_ready` is that of the collector. `stats` may be NULL if the
 * path needs none, and bare if the path needs only bare stats. */
struct eb_web_answer eb_web_answer_make(enum eb_web_path path, const struct eb_web_facts *facts,
    enum eb_stats_phase phase, const char *not_ready, const struct eb_stats *stats);
/* Returns 404 with the list of paths. */
struct eb_web_answer eb_web_answer_no_path(void);
/* Returns an answer with a constant text. */
struct eb_web_answer eb_web_answer_say(unsigned code, const char *text);
/* Frees the answer's text. Accepts a zeroed answer. */
void eb_web_answer_deinit(struct eb_web_answer *answer);
