#include "tests/unit/tables/resident_fixture.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <linux/magic.h>

bool eb_resident_fixture_make(char root[EB_RESIDENT_FIXTURE_BYTES])
{
    struct statfs status;
    strcpy(root, "/dev/shm/embag-unit-XXXXXX");
    bool is_made =
        statfs("/dev/shm", &status) == 0 && status.f_type == TMPFS_MAGIC && mkdtemp(root);
    if (!is_made) {
        root[0] = '\0';
    }
    return is_made;
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *place)
{
    (void)status;
    (void)type;
    (void)place;
    return remove(path);
}

void eb_resident_fixture_remove(const char *root)
{
    if (root[0] != '\0') {
        (void)nftw(root, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
    }
}
