#include "server/base/log.h"

#include "server/base/name.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* At most PIPE_BUF, so that lines of several threads do not mix in a pipe. */
#define LINE_BYTES_MAX 4096
/* Kept free for the end of a line: a closing quote, a closing brace and the newline. */
#define END_BYTES_MAX 3
#define UTF8_BYTES_MAX 4 /* of one character */
#define NUMBER_BYTES 24  /* enough for the longest number */
#define FIELD_BYTES 28   /* enough for the longest number and the characters around a key */
#define SECONDS_PER_DAY 86400

static_assert(
    LINE_BYTES_MAX <= PIPE_BUF, "a pipe that polls as writable must have room for a line");

static const char *const level_names[] = {
    [EB_LOG_DEBUG] = "debug",
    [EB_LOG_INFO] = "info",
    [EB_LOG_WARN] = "warn",
    [EB_LOG_ERROR] = "error",
};
#define LEVEL_COUNT (sizeof level_names / sizeof level_names[0])

const char *const eb_log_format_names[] = {"logfmt", "json", NULL};

static atomic_int level_least = EB_LOG_INFO;   /* enum eb_log_level */
static atomic_int line_format = EB_LOG_LOGFMT; /* enum eb_log_format */
static int descriptor = STDERR_FILENO;

/* A line being written. Once something did not fit, nothing more is appended. */
struct line {
    char bytes[LINE_BYTES_MAX];
    size_t used;
    bool full;
    bool is_json;
};

/* Appends all of `text` or nothing. END_BYTES_MAX bytes stay free. */
static void append_log(struct line *line, const char *text, size_t text_bytes)
{
    if (line->full || line->used + text_bytes > sizeof line->bytes - END_BYTES_MAX) {
        line->full = true;
        return;
    }
    memcpy(line->bytes + line->used, text, text_bytes);
    line->used += text_bytes;
}

/* Appends one of the END_BYTES_MAX bytes that append_log keeps free, so that a cut line is closed
 * too. */
static void append_log_end(struct line *line, char byte)
{
    line->bytes[line->used++] = byte;
}

/* Returns whether a viewer might take the character for a line break or for a change of the writing
 * direction: U+2028 to U+202E, U+2066 to U+2069. */
static bool is_layout_mark(const unsigned char *text, size_t length)
{
    if (length != 3 || text[0] != 0xe2) {
        return false;
    }
    unsigned last = (text[1] & 0x3fU) << 6 | (text[2] & 0x3fU);
    return (last >= 0x28 && last <= 0x2e) || (last >= 0x66 && last <= 0x69);
}

/* Returns the length of the character at `text` if it may appear unescaped between quotes. Returns
 * 0 if its first byte must be escaped. */
static size_t plain_length(const unsigned char *text)
{
    size_t length = eb_name_char_bytes(text, strnlen((const char *)text, UTF8_BYTES_MAX));
    bool is_escaped = *text == '"' || *text == '\\' || is_layout_mark(text, length);
    return is_escaped ? 0 : length;
}

static bool needs_quotes(const unsigned char *text)
{
    if (!*text) {
        return true;
    }
    for (size_t length; *text; text += length) {
        length = plain_length(text);
        if (length == 0 || *text == ' ' || *text == '=') {
            return true;
        }
    }
    return false;
}

static void append_log_escaped(struct line *line, unsigned char byte)
{
    char escape[8];
    int length;
    switch (byte) {
    case '\n': length = snprintf(escape, sizeof escape, "\\n"); break;
    case '\r': length = snprintf(escape, sizeof escape, "\\r"); break;
    case '\t': length = snprintf(escape, sizeof escape, "\\t"); break;
    case '"': length = snprintf(escape, sizeof escape, "\\\""); break;
    case '\\': length = snprintf(escape, sizeof escape, "\\\\"); break;
    default: length = snprintf(escape, sizeof escape, "\\x%02x", byte); break;
    }
    append_log(line, escape, (size_t)length);
}

/* Appends a value. A text that does not fit is cut between two characters. */
static void append_log_text(struct line *line, const unsigned char *text)
{
    bool quoted = needs_quotes(text);
    if (quoted) {
        append_log(line, "\"", 1);
    }
    while (*text && !line->full) {
        size_t length = plain_length(text);
        if (length > 0) {
            append_log(line, (const char *)text, length);
            text += length;
        } else {
            append_log_escaped(line, *text++);
        }
    }
    if (quoted) {
        append_log_end(line, '"');
    }
}

/* Appends an escape for the character at `text`, or for its first byte if it is not UTF-8. Returns
 * how many bytes of the text the escape replaces. */
static size_t append_json_escaped(struct line *line, const unsigned char *text)
{
    static const char shorts[] = "\"\"\\\\\nn\rr\tt"; /* pairs: character, letter of its escape */
    char escape[8];
    size_t bytes = 1;
    unsigned code = text[0];
    for (const char *pair = shorts; *pair; pair += 2) {
        if ((unsigned char)*pair == code) {
            append_log(line, (const char[]){'\\', pair[1]}, 2);
            return bytes;
        }
    }
    if (code == 0xc2 && (text[1] & 0xe0) == 0x80) { /* U+0080 to U+009F, control characters */
        code = text[1];
        bytes = 2;
    } else if (is_layout_mark(text, strnlen((const char *)text, 3))) {
        code = 0x2000u | (text[1] & 0x3fu) << 6 | (text[2] & 0x3fu);
        bytes = 3;
    } else if (code >= 0x80) {
        code = 0xfffd;
    }
    append_log(line, escape, (size_t)snprintf(escape, sizeof escape, "\\u%04x", code));
    return bytes;
}

/* Appends a JSON string. A text that does not fit is cut between two characters. */
static void append_json_text(struct line *line, const unsigned char *text)
{
    append_log(line, "\"", 1);
    while (*text && !line->full) {
        size_t length = plain_length(text);
        if (length > 0) {
            append_log(line, (const char *)text, length);
            text += length;
        } else {
            text += append_json_escaped(line, text);
        }
    }
    append_log_end(line, '"');
}

static void append_log_number(struct line *line, const struct eb_log_field *field)
{
    char number[NUMBER_BYTES];
    int bytes =
        snprintf(number, sizeof number, field->is_count ? "%" PRIu64 : "%" PRId64, field->number);
    append_log(line, number, (size_t)bytes);
}

static void append_logfmt_field(
    struct line *line, const struct eb_log_field *field, size_t key_bytes)
{
    append_log(line, " ", 1);
    append_log(line, field->key, key_bytes);
    append_log(line, "=", 1);
    if (field->text) {
        append_log_text(line, (const unsigned char *)field->text);
    } else {
        append_log_number(line, field);
    }
}

static void append_json_field(struct line *line, const struct eb_log_field *field, size_t key_bytes)
{
    append_log(line, ",\"", 2);
    append_log(line, field->key, key_bytes);
    append_log(line, "\":", 2);
    if (field->is_truth) {
        append_log(line, field->text, strlen(field->text));
    } else if (field->text) {
        append_json_text(line, (const unsigned char *)field->text);
    } else {
        append_log_number(line, field);
    }
}

static void append_field(struct line *line, const struct eb_log_field *field)
{
    size_t key_bytes = strlen(field->key);
    /* Append a key only if a whole number or the beginning of a text fits too. */
    if (line->full || line->used + key_bytes + FIELD_BYTES > sizeof line->bytes - END_BYTES_MAX) {
        line->full = true;
    } else if (line->is_json) {
        append_json_field(line, field, key_bytes);
    } else {
        append_logfmt_field(line, field, key_bytes);
    }
}

struct date {
    int year;
    int month; /* 1 to 12 */
    int day;   /* 1 to 31 */
};

/* Returns the date of a day; day 0 is 1970-01-01. Replaces gmtime_r, which takes a lock that a
 * signal handler must not wait for. */
static struct date find_date(int day)
{
    /* Years begin in March here, so that a leap day is the last day of its year. There are 719468
     * days from the first day of the year 0 to 1970, and 146097 days in 400 years. */
    int age = (day + 719468) / 146097;
    int age_day = (day + 719468) % 146097;
    int age_year = (age_day - age_day / 1460 + age_day / 36524 - age_day / 146096) / 365;
    int year_day = age_day - (365 * age_year + age_year / 4 - age_year / 100);
    int month = (5 * year_day + 2) / 153;
    return (struct date){
        .year = 400 * age + age_year + (month >= 10),
        .month = month < 10 ? month + 3 : month - 9,
        .day = year_day - (153 * month + 2) / 5 + 1,
    };
}

static void append_time(struct line *line)
{
    struct timespec now;
    char text[96];
    clock_gettime(CLOCK_REALTIME, &now); /* Cannot fail: this clock always exists. */
    struct date date = find_date((int)(now.tv_sec / SECONDS_PER_DAY));
    int second = (int)(now.tv_sec % SECONDS_PER_DAY);
    bool is_json = line->is_json;
    int length = snprintf(text, sizeof text, "%s%04d-%02d-%02dT%02d:%02d:%02d.%03dZ%s",
        is_json ? "{\"ts\":\"" : "ts=", date.year, date.month, date.day, second / 3600,
        second / 60 % 60, second % 60, (int)(now.tv_nsec / 1000000), is_json ? "\"" : "");
    append_log(line, text, (size_t)length);
}

/* Writes all bytes. Returns false if stderr has no room for some of them. Ignores other errors. */
static bool write_all(const char *bytes, size_t count)
{
    while (count > 0) {
        ssize_t written = write(descriptor, bytes, count);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written <= 0) {
            return written < 0 && errno != EAGAIN;
        }
        bytes += written;
        count -= (size_t)written;
    }
    return true;
}

/* Returns whether a line can be written without waiting. A pipe that polls as writable has room for
 * a whole line. */
static bool is_writable(void)
{
    struct pollfd out = {.fd = descriptor, .events = POLLOUT};
    return poll(&out, 1, 0) != 0;
}

static void compose(struct line *line, enum eb_log_level level, const char *event,
    const struct eb_log_field *fields)
{
    line->used = 0;
    line->full = false;
    line->is_json = atomic_load_explicit(&line_format, memory_order_relaxed) == EB_LOG_JSON;
    append_time(line);
    const struct eb_log_field head[] = {
        eb_log_text("level", level_names[level]), eb_log_text("event", event)};
    append_field(line, &head[0]);
    append_field(line, &head[1]);
    for (; fields->key; fields++) {
        append_field(line, fields);
    }
    if (line->is_json) {
        append_log_end(line, '}');
    }
    append_log_end(line, '\n');
}

static bool write_lost(unsigned count)
{
    struct line line;
    compose(&line, EB_LOG_WARN, "log_lost",
        (const struct eb_log_field[]){eb_log_number("lines", count), {0}});
    return write_all(line.bytes, line.used);
}

/* Writes a line, or drops it if stderr has no room: a log that nobody reads must not make the
 * process wait. If writing fails, the process continues. The number of dropped lines is logged
 * before the next line that can be written. */
static void write_log_line(const struct line *line)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static unsigned lost_count;
    pthread_mutex_lock(&lock);
    if (lost_count > 0 && is_writable() && write_lost(lost_count)) {
        lost_count = 0;
    }
    if (!is_writable() || !write_all(line->bytes, line->used)) {
        lost_count++;
    }
    pthread_mutex_unlock(&lock);
}

int eb_log_level_parse(const char *name)
{
    for (size_t i = 0; i < LEVEL_COUNT; i++) {
        if (strcmp(name, level_names[i]) == 0) {
            return (int)i;
        }
    }
    return -1;
}

const char *eb_log_level_name(enum eb_log_level level)
{
    return level_names[level];
}

void eb_log_open(void)
{
    if (isatty(STDERR_FILENO)) {
        int own = open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        descriptor = own >= 0 ? own : STDERR_FILENO;
    }
}

void eb_log_close(void)
{
    if (descriptor != STDERR_FILENO) {
        (void)close(descriptor);
        descriptor = STDERR_FILENO;
    }
}

void eb_log_set_level(enum eb_log_level level)
{
    atomic_store_explicit(&level_least, level, memory_order_relaxed);
}

void eb_log_set_format(enum eb_log_format format)
{
    atomic_store_explicit(&line_format, format, memory_order_relaxed);
}

static bool is_below_level(enum eb_log_level level)
{
    return (int)level < atomic_load_explicit(&level_least, memory_order_relaxed);
}

void eb_log_write(enum eb_log_level level, const char *event, const struct eb_log_field *fields)
{
    if (is_below_level(level)) {
        return;
    }
    int errno_before = errno;
    struct line line;
    compose(&line, level, event, fields);
    write_log_line(&line);
    errno = errno_before;
}

void eb_log_last(const char *event, const struct eb_log_field *fields)
{
    struct line line;
    if (is_below_level(EB_LOG_INFO)) {
        return;
    }
    compose(&line, EB_LOG_INFO, event, fields);
    if (is_writable()) {
        (void)write_all(line.bytes, line.used);
    }
}

void eb_log_fail_start(const char *what, const char *reason, const char *hint)
{
    eb_log(EB_LOG_ERROR, "start_failed", eb_log_text("what", what), eb_log_text("reason", reason),
        eb_log_text("remedy", hint));
}
