/* Descriptors 0, 1 and 2 of a program that was started without some of them.
 * Thread: main, first of all. Memory: none. */
#pragma once

#include <stdbool.h>

/* Opens /dev/null as each of the three that is closed. Otherwise the next socket or file that the
 * process opens takes the number: what the program logs would go to that peer or file, and libuv
 * ends the process when it closes such a number. Output is opened for reading only, so that a
 * report that cannot arrive still fails; what is logged is dropped. Returns false if /dev/null
 * cannot be opened (errno). */
bool eb_standard_files_open(void);
