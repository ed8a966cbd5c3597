#include "server/base/standard_files.h"

#include <assert.h>
#include <fcntl.h>
#include <unistd.h>

bool eb_standard_files_open(void)
{
    static const int modes[] = {
        [STDIN_FILENO] = O_RDONLY, [STDOUT_FILENO] = O_RDONLY, [STDERR_FILENO] = O_WRONLY};
    for (int number = STDIN_FILENO; number <= STDERR_FILENO; number++) {
        if (fcntl(number, F_GETFD) >= 0) {
            continue;
        }
        int opened = open("/dev/null", modes[number]);
        if (opened < 0) {
            return false;
        }
        assert(opened == number); /* the lowest free number, because all below it are open */
    }
    return true;
}
