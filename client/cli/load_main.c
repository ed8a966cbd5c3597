#include "client/cli/load_command.h"

#include <stdio.h>

int main(int argument_count, char **arguments)
{
    int status = eb_load_command_main(argument_count, arguments);
    /* A report that did not arrive is a failure, whatever was measured. */
    if (fflush(stdout) != 0 || ferror(stdout) != 0) {
        perror("embag-load: standard output");
        return status != 0 ? status : 1;
    }
    return status;
}
