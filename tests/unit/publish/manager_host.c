#include "tests/unit/publish/manager_host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

struct eb_snapshot *manager_host_load(
    struct manager_host *host, const char *directory, struct eb_failure *failure)
{
    struct eb_manager_options options = {
        .directory = directory,
        .tables = {.row_bytes_max = 65536, .name_bytes_max = 255},
        .watch = EB_MANAGER_WATCH_OFF,
        .on_loading = host->on_loading,
        .context = host->context,
    };
    assert_int_equal(uv_loop_init(&host->uv), 0);
    assert_int_equal(eb_manager_create(&host->manager, &options, &host->uv), 0);
    if (!eb_manager_load(host->manager, failure)) {
        manager_host_free(host);
        return NULL;
    }
    return eb_manager_snapshot(host->manager);
}

void manager_host_free(struct manager_host *host)
{
    if (!host->manager) {
        return;
    }
    eb_manager_stop(host->manager);
    assert_int_equal(uv_run(&host->uv, UV_RUN_DEFAULT), 0);
    eb_manager_destroy(host->manager);
    host->manager = NULL;
    assert_int_equal(uv_loop_close(&host->uv), 0);
}
