/* Describes in one line what is wrong with a file, with a setting or with the start of the server:
 * what, where and what to do.
 * Thread: pure. Memory: none. */
#pragma once

#include <stdbool.h>

#define EB_FAILURE_BYTES 512

/* NUL-terminated UTF-8 without control characters. */
struct eb_failure {
    char text[EB_FAILURE_BYTES];
    bool is_transient; /* whether the next attempt may succeed, because the file's content is not
                          the cause */
};

/* Sets the text as printf would. Control characters and bytes that are not UTF-8, which file names
 * may hold, become \xNN. If the text is too long, its middle is left out, because it starts with
 * the path and ends with the problem. Always returns false, so that a failed check can return
 * it. */
__attribute__((format(printf, 2, 3))) bool eb_failure_set(
    struct eb_failure *failure, const char *format, ...);
/* Sets is_transient according to `error`, a value of errno. These errors may pass: too little
 * memory, too many open files, a disk that does not answer or is not mounted, permissions, and a
 * file that is being replaced (ESTALE). Always returns false. */
bool eb_failure_blame(struct eb_failure *failure, int error);
/* Makes paths below `directory` in an error text relative to it, and the directory itself ".", so
 * that texts for callers do not reveal where the server keeps its files. Handles paths whose middle
 * was left out as well. */
void eb_failure_make_relative(char *text, const char *directory);
/* Puts "PATH: " in front of the text. Always returns false. */
bool eb_failure_locate(struct eb_failure *failure, const char *path);
