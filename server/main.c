/* embagd: reads its settings, then is a process until it is told to stop. */
#include "server/admin/log.h"
#include "server/config.h"
#include "server/process.h"

#include <stdlib.h>
#include <unistd.h>

enum exit_status { EXIT_START_FAILED = 1, EXIT_BAD_SETTINGS = 2 };

static int serve(const struct eb_config *config)
{
    eb_log_set_level((enum eb_log_level)config->log_level);
    eb_config_log(config);
    struct eb_process *process = eb_process_open(config);
    if (!process) {
        return EXIT_START_FAILED;
    }
    bool served = eb_process_run(process);
    eb_process_close(process);
    return served ? EXIT_SUCCESS : EXIT_START_FAILED;
}

int main(int argument_count, char **arguments)
{
    struct eb_config config;
    int status = EXIT_SUCCESS;
    eb_log_open();
    switch (eb_config_read(argument_count, arguments, environ, &config)) {
    case EB_CONFIG_RUN: status = serve(&config); break;
    case EB_CONFIG_EXIT: break;
    case EB_CONFIG_FAULT: status = EXIT_BAD_SETTINGS; break;
    }
    eb_config_deinit(&config);
    eb_log_close();
    return status;
}
