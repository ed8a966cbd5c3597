#include "server/admin/web_answer.h"

#include "server/admin/status_json.h"
#include "server/stats/process_usage.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PLAIN "text/plain; charset=utf-8"
#define JSON "application/json"

static const struct {
    const char *path;
    enum eb_web_need need;
} paths[] = {
#define X(name, path, need) {path, EB_WEB_NEEDS_##need},
    EB_WEB_PATH_LIST(X)
#undef X
};

enum eb_web_path eb_web_path_find(const char *path)
{
    int found = 0;
    while (found < EB_WEB_PATH_COUNT && strcmp(paths[found].path, path) != 0) {
        found++;
    }
    return (enum eb_web_path)found;
}

enum eb_web_need eb_web_path_need(enum eb_web_path path)
{
    return paths[path].need;
}

/* ---- checking the host ---- */

/* Returns the length of the host in "HOST" or "HOST:PORT". HOST must not be in brackets. */
static size_t host_bytes_of(const char *host)
{
    size_t bytes = strcspn(host, ":");
    return bytes > 0 && host[bytes - 1] == '.' ? bytes - 1 : bytes; /* "localhost." */
}

static bool is_local_name(const char *host, size_t bytes)
{
    static const char local[] = ".localhost";
    size_t local_bytes = sizeof local - 1;
    return !memchr(host, '.', bytes) ||
           (bytes > local_bytes &&
               strncasecmp(host + bytes - local_bytes, local, local_bytes) == 0);
}

bool eb_web_answer_suspects_host(const char *host)
{
    if (!host || host[0] == '[') {
        return false;
    }
    size_t bytes = host_bytes_of(host);
    /* The last label of a name is never a number, but that of an address is. */
    bool is_address = strspn(host, "0123456789.") >= bytes;
    return !is_address && !is_local_name(host, bytes);
}

/* ---- the paths' answers ---- */

struct eb_web_answer eb_web_answer_say(unsigned code, const char *text)
{
    return (struct eb_web_answer){.code = code, .type = PLAIN, .text = text, .size = strlen(text)};
}

/* Makes an answer with `text`, which it takes. `text` is NULL if there was no memory for it. */
static struct eb_web_answer give(const char *type, char *text, size_t size)
{
    return (struct eb_web_answer){
        .code = 200, .type = text ? type : NULL, .owned = text, .text = text, .size = size};
}

struct eb_web_answer eb_web_answer_no_path(void)
{
    return eb_web_answer_say(404, "not found; the paths of this port are:\n"
#define X(name, path, need) path "\n"
        EB_WEB_PATH_LIST(X)
#undef X
    );
}

/* Says why the server is not ready. */
static struct eb_web_answer refuse_ready(const char *not_ready)
{
    char *text = NULL;
    int size = asprintf(&text, "%s\n", not_ready);
    struct eb_web_answer answer =
        size < 0 ? (struct eb_web_answer){0} : give(PLAIN, text, (size_t)size);
    answer.code = 503;
    return answer;
}

static struct eb_web_answer say_ready(enum eb_stats_phase phase, const char *not_ready)
{
    if (phase == EB_STATS_DRAINING) {
        return eb_web_answer_say(503, "draining\n");
    }
    if (not_ready) {
        return refuse_ready(not_ready);
    }
    return phase == EB_STATS_LOADING ? eb_web_answer_say(503, "loading\n")
                                     : eb_web_answer_say(200, "ready\n");
}

static struct eb_web_answer write_version(const struct eb_web_facts *facts)
{
    char *text = NULL;
    int size = asprintf(&text, "{\"version\": \"%s\", \"build\": \"%s\", \"isa\": \"%s\"}\n",
        facts->version, facts->build, facts->isa);
    return size < 0 ? (struct eb_web_answer){0} : give(JSON, text, (size_t)size);
}

static struct eb_web_answer write_metrics(
    const struct eb_web_facts *facts, const struct eb_stats *stats)
{
    struct eb_process_usage usage;
    size_t size = 0;
    eb_process_usage_read(&usage);
    struct eb_metrics_source source = {
        .stats = stats, .usage = &usage, .version = facts->version, .isa = facts->isa};
    char *text = eb_metrics_text_write(&source, &size);
    return give(EB_METRICS_TEXT_TYPE, text, size);
}

static struct eb_web_answer write_status(const struct eb_stats *stats)
{
    size_t size = 0;
    char *text = eb_status_json_write(stats, &size);
    return give(JSON, text, size);
}

struct eb_web_answer eb_web_answer_make(enum eb_web_path path, const struct eb_web_facts *facts,
    enum eb_stats_phase phase, const char *not_ready, const struct eb_stats *stats)
{
    assert(stats || eb_web_path_need(path) == EB_WEB_NEEDS_NOTHING);
    switch (path) {
    case EB_WEB_PAGE:
        return (struct eb_web_answer){.code = 200,
            .type = "text/html; charset=utf-8",
            .text = (const char *)eb_status_page,
            .size = eb_status_page_bytes};
    case EB_WEB_HEALTHZ: return eb_web_answer_say(200, "ok\n");
    case EB_WEB_METRICS: return write_metrics(facts, stats);
    case EB_WEB_READYZ: return say_ready(phase, not_ready);
    case EB_WEB_STATUS: return write_status(stats);
    case EB_WEB_VERSION: return write_version(facts);
    case EB_WEB_PATH_COUNT: break;
    }
    return eb_web_answer_no_path();
}

void eb_web_answer_deinit(struct eb_web_answer *answer)
{
    free(answer->owned);
    *answer = (struct eb_web_answer){0};
}
