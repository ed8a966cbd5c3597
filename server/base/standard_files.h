/* Makes sure that descriptors 0, 1 and 2 are open, even if the program was started without them.
 * Thread: main, before anything else. Memory: none. */
#pragma once

#include <stdbool.h>

/* Opens /dev/null in place of each of the three that is closed. Otherwise the next socket or file
 * that the process opens would get that number. Log lines would go to that peer or file, and libuv
 * aborts the process when it closes one of these numbers. Standard output is opened for reading
 * only, so that writing a report still fails; log lines are dropped. Returns false if /dev/null
 * cannot be opened (errno). */
bool eb_standard_files_open(void);
