#include "server/base/directory.h"

#include "server/base/read_watch.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int is_entry_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static int compare_entry_names(const struct dirent **left, const struct dirent **right)
{
    return strcmp((*left)->d_name, (*right)->d_name);
}

bool eb_directory_read(const char *path, struct eb_directory *out, struct eb_failure *failure)
{
    *out = (struct eb_directory){0};
    eb_read_watch_begin(path);
    int count = scandir(path, &out->entries, is_entry_visible, compare_entry_names);
    eb_read_watch_end();
    if (count < 0) {
        int error = errno;
        eb_failure_set(failure,
            "%s: the directory cannot be read (%s); check the path and its permissions", path,
            strerror(error));
        return eb_failure_blame(failure, error);
    }
    out->count = (size_t)count;
    return true;
}

void eb_directory_deinit(struct eb_directory *directory)
{
    for (size_t i = 0; i < directory->count; i++) {
        free(directory->entries[i]);
    }
    free(directory->entries);
    *directory = (struct eb_directory){0};
}

char *eb_directory_join(const char *directory, const char *name, struct eb_failure *failure)
{
    char *path;
    if (asprintf(&path, "%s/%s", directory, name) < 0) {
        eb_failure_set(failure, "%s/%s: out of memory", directory, name);
        return NULL;
    }
    return path;
}

bool eb_directory_test(const char *path, bool *is_directory, struct eb_failure *failure)
{
    struct stat status;
    if (stat(path, &status) == 0) {
        *is_directory = S_ISDIR(status.st_mode);
        return true;
    }
    int error = errno;
    *is_directory = false;
    return error == ENOENT ||
           eb_failure_set(failure, "%s: it cannot be accessed (%s); %s", path, strerror(error),
               error == ELOOP ? "the link leads to itself: correct it or remove it"
                              : "check its permissions, and those of the target if it is a link");
}
