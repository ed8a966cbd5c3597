/* embagd: reads its settings, then runs the server until it is told to stop. */
#include "kernels/bag_parallel.h"
#include "server/base/log.h"
#include "server/base/standard_files.h"
#include "server/config.h"
#include "server/process.h"
#include "server/publish/load_marker.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum exit_status { EXIT_START_FAILED = 1, EXIT_BAD_SETTINGS = 2 };

/* Ends the process at once. No lookup has been answered yet, and of all that the process writes
 * only the markers of loads matter, which are removed. If a load waits for its disk, the process
 * cannot end in another way. */
static void end_early(int number)
{
    const struct eb_log_field fields[] = {
        eb_log_text("signal", number == SIGTERM ? "SIGTERM" : "SIGINT"),
        eb_log_text("reason", "the server had not begun to serve"), {0}};
    eb_load_markers_signal();
    eb_log_last("stopped", fields);
    _exit(EXIT_SUCCESS);
}

/* Handles the signals until eb_process_run does. Without a handler, the first process of a
 * container would not receive them at all. */
static void await_early_end(void)
{
    struct sigaction action = {.sa_handler = end_early};
    sigaddset(&action.sa_mask, SIGTERM);
    sigaddset(&action.sa_mask, SIGINT);
    (void)sigaction(SIGTERM, &action, NULL); /* Neither call can fail. */
    (void)sigaction(SIGINT, &action, NULL);
}

static int serve(const struct eb_config *config)
{
    eb_log_set_level(config->log_level);
    eb_config_log(config);
    await_early_end();
    struct eb_process *process = eb_process_open(config);
    if (!process) {
        return EXIT_START_FAILED;
    }
    int status = eb_process_run(process) ? EXIT_SUCCESS : EXIT_START_FAILED;
    if (!eb_process_close(process)) {
        /* exit() would destroy data that the remaining threads use. No output is lost. */
        _exit(status);
    }
    return status;
}

int main(int argument_count, char **arguments)
{
    struct eb_config config;
    int status = EXIT_SUCCESS;
    eb_log_set_format(eb_config_find_log_format(argument_count, arguments, environ));
    if (!eb_standard_files_open()) {
        eb_log_fail_start("/dev/null", strerror(errno),
            "give the process a /dev/null, or descriptors 0, 1 and 2");
        return EXIT_START_FAILED;
    }
    eb_log_open();
    if (!eb_bag_parallel_unbind()) {
        eb_log(EB_LOG_WARN, "threads_bound", eb_log_text("reason", strerror(errno)),
            eb_log_text("effect", "loops and loads run on one CPU"),
            eb_log_text("remedy", "start without OMP_PROC_BIND, OMP_PLACES and GOMP_CPU_AFFINITY"));
    }
    switch (eb_config_read(argument_count, arguments, environ, &config)) {
    case EB_CONFIG_RUN: status = serve(&config); break;
    case EB_CONFIG_EXIT: break;
    case EB_CONFIG_ERROR: status = EXIT_BAD_SETTINGS; break;
    }
    eb_config_deinit(&config);
    eb_log_close();
    return status;
}
