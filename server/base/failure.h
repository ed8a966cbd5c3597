/* What is wrong with a file, a setting or a start, in one line: what, where and what to do.
 * Thread: pure. Memory: none. */
#pragma once

#include <stdbool.h>

#define EB_FAILURE_BYTES 512

/* NUL-terminated UTF-8 without control characters. */
struct eb_failure {
    char text[EB_FAILURE_BYTES];
    bool is_transient; /* not of what is in the file: it may be gone when tried again */
};

/* Sets the text as printf would; control characters and bytes that are not UTF-8, which names of
 * files may hold, become \xNN. Of what does not fit the middle is left out: paths stand in front,
 * and what is wrong behind them. Always false, so that a check that fails can return it. */
__attribute__((format(printf, 2, 3))) bool eb_failure_set(
    struct eb_failure *failure, const char *format, ...);
/* Says in addition which of the system's errors (errno) it comes of: a lack of memory or of open
 * files, a disk that did not answer or is not mounted, permissions and a file that is being
 * replaced (ESTALE) may pass. Always false. */
bool eb_failure_blame(struct eb_failure *failure, int error);
/* Makes paths below `directory` in an error text relative to it, and the directory itself ".", so
 * that texts for callers do not reveal where the server keeps its files. Handles paths whose middle
 * was left out as well. */
void eb_failure_make_relative(char *text, const char *directory);
/* Puts "PATH: " in front of the text. Always false. */
bool eb_failure_locate(struct eb_failure *failure, const char *path);
