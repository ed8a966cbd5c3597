#include "server/service_manager.h"

#include "server/models/snapshot.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-daemon.h>
#include <time.h>
#include <unistd.h>

#define DATA_NAME "embag-data"
#define ADMIN_NAME "embag-admin"
#define STATUS_BYTES 512 /* a longer status is cut; it is one line of `systemctl status` */
/* Longest time between two progress reports of a start. The longest pauses are those in which the
 * index of a large keyed table is built, or the pages of tables are counted. */
#define PROGRESS_US UINT64_C(300000000)
/* Time that the shutdown takes in addition to the drain. */
#define END_MS 15000
#define GIB 1073741824.0

/* ---- sockets ---- */

static void close_all(int count)
{
    for (int i = 0; i < count; i++) {
        close(SD_LISTEN_FDS_START + i);
    }
}

static bool name_sockets(int count, char *const *names,
    struct eb_passed_socket out[EB_PASSED_SOCKETS_MAX], struct eb_failure *failure)
{
    if (count > EB_PASSED_SOCKETS_MAX) {
        return eb_failure_set(
            failure, "%d sockets were passed; expected at most %d", count, EB_PASSED_SOCKETS_MAX);
    }
    for (int i = 0; i < count; i++) {
        bool is_admin = strcmp(names[i], ADMIN_NAME) == 0;
        if (!is_admin && strcmp(names[i], DATA_NAME) != 0) {
            return eb_failure_set(
                failure, "a socket with the unknown name \"%.64s\" was passed", names[i]);
        }
        out[i] = (struct eb_passed_socket){SD_LISTEN_FDS_START + i, is_admin};
    }
    return true;
}

bool eb_service_manager_take_sockets(
    struct eb_passed_socket out[EB_PASSED_SOCKETS_MAX], size_t *count, struct eb_failure *failure)
{
    char **names = NULL;
    int unset_environment = 1;
    int passed = sd_listen_fds_with_names(unset_environment, &names);
    *count = 0;
    if (passed < 0) {
        return eb_failure_set(failure, "LISTEN_FDS: %s", strerror(-passed));
    }
    bool is_good = name_sockets(passed, names, out, failure);
    if (is_good) {
        *count = (size_t)passed;
    } else {
        close_all(passed);
    }
    for (char **name = names; name && *name; name++) {
        free(*name);
    }
    free(names);
    return is_good;
}

/* ---- reports ---- */

/* Makes a status safe to send. A control character in a name from the disk could end its line and
 * begin another one. Half a character at the end would make the whole status invalid UTF-8. */
static void mend_status(char status[STATUS_BYTES])
{
    size_t length = strlen(status);
    for (size_t i = 0; i < length; i++) {
        if ((unsigned char)status[i] < ' ') {
            status[i] = '?';
        }
    }
    if (length == STATUS_BYTES - 1) {
        while (((unsigned char)status[length - 1] & 0xc0) == 0x80) {
            length--;
        }
        length -= (unsigned char)status[length - 1] >= 0xc0;
    }
    status[length] = '\0';
}

void eb_service_manager_loading(const char *path, uint64_t done_bytes, uint64_t total_bytes)
{
    char status[STATUS_BYTES];
    snprintf(status, sizeof status, "Loading %.1f of %.1f GiB: %s", (double)done_bytes / GIB,
        (double)total_bytes / GIB, path);
    mend_status(status);
    (void)sd_notifyf(0, "EXTEND_TIMEOUT_USEC=%" PRIu64 "\nSTATUS=%s", PROGRESS_US, status);
}

void eb_service_manager_serving(const struct eb_snapshot *snapshot)
{
    char status[STATUS_BYTES];
    size_t used = 0;
    size_t served_count = 0;
    for (size_t i = 0; i < snapshot->count; i++) {
        served_count += snapshot->models[i].served ? 1 : 0;
    }
    used += (size_t)snprintf(
        status, sizeof status, "Serving %zu of %zu models", served_count, snapshot->count);
    const char *between = ": ";
    for (size_t i = 0; i < snapshot->count && used < sizeof status; i++) {
        const struct eb_snapshot_model *model = &snapshot->models[i];
        if (model->served) {
            used += (size_t)snprintf(status + used, sizeof status - used, "%s%s %" PRIu64, between,
                model->name, model->served->version);
            between = ", ";
        }
    }
    mend_status(status);
    (void)sd_notifyf(0, "STATUS=%s", status);
}

void eb_service_manager_ready(void)
{
    (void)sd_notify(0, "READY=1");
}

void eb_service_manager_reloading(void)
{
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    (void)sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64,
        (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000);
}

void eb_service_manager_stopping(uint64_t timeout_ms)
{
    (void)sd_notifyf(0, "STOPPING=1\nSTATUS=Draining\nEXTEND_TIMEOUT_USEC=%" PRIu64,
        (timeout_ms + END_MS) * 1000);
}

uint64_t eb_service_manager_silence_ms(void)
{
    uint64_t silence_us = 0;
    return sd_watchdog_enabled(0, &silence_us) > 0 ? silence_us / 1000 : 0;
}

void eb_service_manager_alive(void)
{
    (void)sd_notify(0, "WATCHDOG=1");
}
