#include "client/cli/split_metrics.h"

#include "client/cli/http_get.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Time for a server to send its metrics; it takes some milliseconds. */
#define METRICS_TIMEOUT_MS 10000
#define READ_BYTES_FIRST 65536
/* A larger count is malformed. Rows at 10^9 each second reach it after 30 years. */
#define COUNT_MAX 1e18
#define NAME_BYTES (EB_PARTS_NAME_BYTES_MAX + 1)
#define ROWS_METRIC "embag_table_rows_touched_total"
#define BAGS_METRIC "embag_table_bags_total"

/* ---- one line ---- */

/* One sample of a table's counter. */
struct table_sample {
    bool is_bags; /* of bags, rather than of rows */
    char model[NAME_BYTES];
    char table[NAME_BYTES];
    double count;
};

static const char *skip_blanks(const char *at)
{
    return at + strspn(at, " \t");
}

/* Returns `at` after `text`, or NULL if it does not begin with it. */
static const char *skip_text(const char *at, const char *text)
{
    size_t bytes = strlen(text);
    return strncmp(at, text, bytes) == 0 ? at + bytes : NULL;
}

/* Reads a label's value, "TEXT", with its escapes. If `out` is not NULL, copies it there; it has
 * NAME_BYTES bytes. Returns where the value ends, or NULL if it is malformed or too long. */
static const char *read_label_value(const char *at, char *out)
{
    size_t used = 0;
    if (*at++ != '"') {
        return NULL;
    }
    for (; *at != '"'; at++) {
        char letter = *at;
        if (letter == '\\') {
            at++;
            letter = *at == 'n' ? '\n' : *at;
        }
        if (*at == '\0' || (out && used + 1 == NAME_BYTES)) {
            return NULL;
        }
        if (out) {
            out[used++] = letter;
        }
    }
    if (out) {
        out[used] = '\0';
    }
    return at + 1;
}

/* Reads one label, NAME="VALUE", and keeps that of the model and of the table. Returns where it
 * ends, or NULL if it is malformed. */
static const char *read_label(const char *at, struct table_sample *sample)
{
    size_t name_bytes = strcspn(at, "=,} \t");
    char *out = NULL;
    if (name_bytes == strlen("model") && skip_text(at, "model")) {
        out = sample->model;
    } else if (name_bytes == strlen("table") && skip_text(at, "table")) {
        out = sample->table;
    }
    at = skip_blanks(at + name_bytes);
    return name_bytes > 0 && *at == '=' ? read_label_value(skip_blanks(at + 1), out) : NULL;
}

/* Reads the labels of a sample from after their opening brace on. Returns where they end, or NULL
 * if they are malformed. */
static const char *read_labels(const char *at, struct table_sample *sample)
{
    at = skip_blanks(at);
    while (at && *at != '}') {
        at = read_label(at, sample);
        at = at ? skip_blanks(at) : NULL;
        if (at && *at == ',') {
            at = skip_blanks(at + 1);
        } else if (at && *at != '}') {
            at = NULL;
        }
    }
    return at ? at + 1 : NULL;
}

/* Returns where the labels of a sample of the two counters begin, and sets sample->is_bags. Returns
 * NULL if the line is not such a sample. */
static const char *find_labels(const char *line, struct table_sample *sample)
{
    const char *bags = skip_text(line, BAGS_METRIC);
    const char *at = bags ? bags : skip_text(line, ROWS_METRIC);
    sample->is_bags = bags;
    at = at ? skip_blanks(at) : NULL;
    return at && *at == '{' ? at + 1 : NULL;
}

/* Reads the labels and the count of a sample. A time may follow. Returns false if it is
 * malformed. */
static bool read_sample(const char *labels, struct table_sample *sample)
{
    char *end;
    sample->model[0] = '\0';
    sample->table[0] = '\0';
    const char *at = read_labels(labels, sample);
    if (!at) {
        return false;
    }
    sample->count = strtod(at, &end);
    return end != at && (*end == '\0' || *end == ' ' || *end == '\t' || *end == '\r') &&
           sample->count >= 0 && sample->count <= COUNT_MAX;
}

/* ---- all lines ---- */

/* The state of reading, with a summary of the lines so far. */
struct metrics_reading {
    struct eb_split_plan *plan;
    const char *model;
    struct eb_failure *failure;
    size_t line;
    bool is_any;                  /* whether there was a sample of any model */
    char other_model[NAME_BYTES]; /* a model that is not `model`; empty: none */
    bool has_model;               /* whether there was a sample of the model */
    char other_table[NAME_BYTES]; /* a table with lookups that the plan does not have */
    double count;                 /* sum over the plan's tables */
};

static void take_sample(struct metrics_reading *reading, const struct table_sample *sample)
{
    reading->is_any = true;
    if (strcmp(sample->model, reading->model) != 0) {
        if (reading->other_model[0] == '\0') {
            memcpy(reading->other_model, sample->model, sizeof sample->model);
        }
        return;
    }
    reading->has_model = true;
    struct eb_split_table *table = eb_split_plan_find(reading->plan, sample->table);
    if (!table) {
        if (sample->count > 0) {
            memcpy(reading->other_table, sample->table, sizeof sample->table);
        }
        return;
    }
    table->is_counted = true;
    *(sample->is_bags ? &table->bags : &table->rows_touched) += sample->count;
    reading->count += sample->count;
}

static bool take_line(struct metrics_reading *reading, const char *line)
{
    struct table_sample sample;
    reading->line++;
    const char *labels = find_labels(line, &sample);
    if (!labels) {
        return true;
    }
    if (!read_sample(labels, &sample)) {
        return eb_failure_set(reading->failure,
            "line %zu: invalid sample: expected %s{model=\"MODEL\",table=\"TABLE\"} COUNT",
            reading->line, sample.is_bags ? BAGS_METRIC : ROWS_METRIC);
    }
    take_sample(reading, &sample);
    return true;
}

/* Refuses metrics that say nothing about the plan's tables. */
static bool check_counts(const struct metrics_reading *reading)
{
    struct eb_failure *failure = reading->failure;
    if (!reading->is_any) {
        return eb_failure_set(failure,
            "there is no " ROWS_METRIC " in it; expected what /metrics of an embag server prints");
    }
    if (!reading->has_model) {
        return eb_failure_set(failure,
            "it has counts of model '%.64s', but none of '%.64s'; expected the metrics of a server "
            "that serves '%.64s'",
            reading->other_model, reading->model, reading->model);
    }
    if (reading->count > 0) {
        return true;
    }
    if (reading->other_table[0] != '\0') {
        return eb_failure_set(failure,
            "of model '%.64s' it counts lookups of table '%.64s', but none of a table of the "
            "version",
            reading->model, reading->other_table);
    }
    return eb_failure_set(failure,
        "nothing has been looked up in model '%.64s' yet; expected the metrics of a server that "
        "has served it for a while",
        reading->model);
}

bool eb_split_metrics_parse(struct eb_split_plan *plan, char *text, size_t bytes, const char *model,
    struct eb_failure *failure)
{
    struct metrics_reading reading = {.plan = plan, .model = model, .failure = failure};
    if (strlen(text) != bytes) {
        return eb_failure_set(failure, "it is not a text: it has a byte of 0");
    }
    for (char *line; (line = strsep(&text, "\n"));) {
        if (!take_line(&reading, line)) {
            return false;
        }
    }
    return check_counts(&reading);
}

/* ---- sources ---- */

/* Reads a stream to its end. Returns the text, NUL-terminated, or NULL with *failure set. */
static char *read_stream(FILE *file, size_t *bytes, struct eb_failure *failure)
{
    char *text = NULL;
    size_t room = 0;
    *bytes = 0;
    do {
        room = room > 0 ? 2 * room : READ_BYTES_FIRST;
        char *more = realloc(text, room + 1);
        if (!more) {
            free(text);
            eb_failure_set(failure, "out of memory");
            return NULL;
        }
        text = more;
        *bytes += fread(text + *bytes, 1, room - *bytes, file);
    } while (*bytes == room && *bytes <= EB_SPLIT_METRICS_BYTES_MAX);
    text[*bytes] = '\0';
    if (ferror(file)) {
        eb_failure_set(failure, "it cannot be read");
    } else if (*bytes > EB_SPLIT_METRICS_BYTES_MAX) {
        eb_failure_set(failure, "it has more than %d bytes", EB_SPLIT_METRICS_BYTES_MAX);
    } else {
        return text;
    }
    free(text);
    return NULL;
}

static char *read_source(const char *source, size_t *bytes, struct eb_failure *failure)
{
    static const struct eb_http_get_limits limits = {
        .bytes_max = EB_SPLIT_METRICS_BYTES_MAX, .timeout_ms = METRICS_TIMEOUT_MS};
    if (strncmp(source, EB_HTTP_GET_PREFIX, strlen(EB_HTTP_GET_PREFIX)) == 0) {
        return eb_http_get(source, &limits, bytes, failure);
    }
    if (strstr(source, "://")) {
        eb_failure_set(failure,
            "expected an " EB_HTTP_GET_PREFIX " URL, a file or -; for other URLs, use curl and -");
        return NULL;
    }
    if (strcmp(source, "-") == 0) {
        return read_stream(stdin, bytes, failure);
    }
    FILE *file = fopen(source, "re");
    if (!file) {
        eb_failure_set(failure, "it cannot be opened (%s)", strerror(errno));
        return NULL;
    }
    char *text = read_stream(file, bytes, failure);
    (void)fclose(file);
    return text;
}

bool eb_split_metrics_read(
    struct eb_split_plan *plan, const char *source, const char *model, struct eb_failure *failure)
{
    size_t bytes;
    if (!eb_split_plan_index(plan, failure)) {
        return false;
    }
    char *text = read_source(source, &bytes, failure);
    bool is_good = text && eb_split_metrics_parse(plan, text, bytes, model, failure);
    free(text);
    return is_good || eb_failure_locate(failure, source);
}
