#include "client/cli/load_command.h"
#include "server/base/standard_files.h"

#include <stdio.h>
#include <string.h>

static int dispatch_load(int argument_count, char **arguments)
{
    static char name[] = "embag-load";
    if (argument_count > 1 && strcmp(arguments[1], "--version") == 0) {
        puts("embag-load " EMBAG_VERSION);
        return 0;
    }
    /* getopt_long begins its messages with what stands here: else all of a path. */
    arguments[0] = name;
    return eb_load_command_main(argument_count, arguments);
}

int main(int argument_count, char **arguments)
{
    if (!eb_standard_files_open()) {
        perror("embag-load: /dev/null");
        return 1;
    }
    int status = dispatch_load(argument_count, arguments);
    /* A report that did not arrive is a failure, whatever was measured. */
    if (fflush(stdout) != 0 || ferror(stdout) != 0) {
        perror("embag-load: standard output");
        return status != 0 ? status : 1;
    }
    return status;
}
