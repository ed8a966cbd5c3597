#include "server/publish/model_log.h"

#include "server/base/log.h"

#include <stdatomic.h>
#include <string.h>

static atomic_flag is_numa_refusal_logged = ATOMIC_FLAG_INIT;

/* Longest remaining time that is logged. A load that would need more has come to a halt. */
#define LEFT_S_MAX 1e9

/* ---- loads ---- */

void eb_model_log_progress(
    const char *path, uint64_t done_bytes, uint64_t total_bytes, double bytes_per_s)
{
    uint64_t left_bytes = total_bytes > done_bytes ? total_bytes - done_bytes : 0;
    double percent = total_bytes > 0 ? 100 * (double)done_bytes / (double)total_bytes : 0;
    double left_s = (double)left_bytes / bytes_per_s;
    eb_log(EB_LOG_INFO, "loading", eb_log_text("path", path),
        eb_log_count("done_bytes", done_bytes), eb_log_count("total_bytes", total_bytes),
        eb_log_count("percent", (uint64_t)percent),
        eb_log_count("mb_per_s", (uint64_t)(bytes_per_s / 1e6)),
        left_s < LEFT_S_MAX ? eb_log_count("left_s", (uint64_t)left_s)
                            : eb_log_text("left_s", "unknown"));
}

void eb_model_log_stalled(const char *path, uint64_t seconds)
{
    eb_log(EB_LOG_WARN, "load_stalled", eb_log_text("path", path), eb_log_count("seconds", seconds),
        eb_log_text("remedy", "check whether the disk responds"));
}

static void log_tables(const struct eb_model_version *version)
{
    for (size_t i = 0; i < version->tables.count; i++) {
        const struct eb_named_table *table = &version->tables.tables[i];
        if (table->is_remote) {
            continue;
        }
        bool is_small = table->resident_bytes < EB_PAGE_2M_BYTES;
        eb_log(is_small ? EB_LOG_DEBUG : EB_LOG_INFO, "table_loaded",
            eb_log_text("model", version->model), eb_log_count("version", version->version),
            eb_log_text("table", table->name),
            eb_log_count("resident_bytes", table->resident_bytes),
            eb_log_count("bytes_2m", table->pages.bytes_2m),
            eb_log_count("bytes_1g", table->pages.bytes_1g));
    }
}

/* Returns how many of the bytes are in pages that are at least as large as `wanted`. */
static uint64_t fitting_bytes(const struct eb_page_count *pages, enum eb_page_size wanted)
{
    return pages->bytes_1g + (wanted == EB_PAGE_1G ? 0 : pages->bytes_2m);
}

static void log_missing_pages(const struct eb_model_version *version, enum eb_page_size wanted)
{
    const struct eb_table_set *tables = &version->tables;
    uint64_t fitting = fitting_bytes(&tables->pages, wanted);
    char hint[EB_PAGE_HINT_BYTES];
    if (wanted == EB_PAGE_SMALL || fitting == tables->pages.bytes) {
        return;
    }
    eb_page_size_hint(wanted, tables->bytes, "", hint);
    eb_log(EB_LOG_WARN, "huge_pages_missing", eb_log_text("model", version->model),
        eb_log_count("version", version->version),
        eb_log_text("huge_pages", eb_page_size_names[wanted]),
        eb_log_count("bytes", tables->pages.bytes), eb_log_count("bytes_in_such_pages", fitting),
        eb_log_text("remedy", hint));
}

/* Logs, once in the life of the process, that pages cannot be placed on nodes: every later load
 * would meet the same refusal. */
static void log_numa_refused(enum eb_numa policy, int error)
{
    if (error == 0 || atomic_flag_test_and_set(&is_numa_refusal_logged)) {
        return;
    }
    eb_log(EB_LOG_WARN, "numa_refused", eb_log_text("numa", eb_numa_names[policy]),
        eb_log_text("reason", strerror(-error)),
        eb_log_text("remedy",
            "let the process call mbind: give its container CAP_SYS_NICE or a seccomp profile that "
            "permits mbind (the chart's numa.seccompProfile), or run one server on each node with "
            "numa off; until then the kernel chooses the nodes of tables"));
}

static void log_memory(
    const struct eb_table_memory_options *options, const struct eb_model_version *version)
{
    const struct eb_table_set *tables = &version->tables;
    if (tables->pages_error < 0) {
        eb_log(EB_LOG_WARN, "huge_pages_unknown", eb_log_text("model", version->model),
            eb_log_count("version", version->version),
            eb_log_text("reason", strerror(-tables->pages_error)),
            eb_log_text("remedy", "make /proc/self/smaps readable"));
    } else {
        log_missing_pages(version, options->pages);
    }
    log_numa_refused(options->numa, tables->memory.numa_error);
}

static void log_note(const struct eb_model_version *version, const struct eb_load_note *note,
    enum eb_log_level level, const char *event, const char *hint)
{
    if (note->count > 0) {
        eb_log(level, event, eb_log_text("model", version->model),
            eb_log_count("version", version->version), eb_log_count("count", note->count),
            eb_log_text("first", note->named.text), eb_log_text("remedy", hint));
    }
}

/* Logs the items of the version's directory that did not become tables, one line for each kind. */
static void log_notes(const struct eb_model_version *version)
{
    const struct eb_load_notes *notes = &version->tables.notes;
    log_note(version, &notes->tensors, EB_LOG_INFO, "tensors_passed_over",
        "none if nobody looks them up; only or exclude in model.yaml silences this message, and an "
        "entry of tables that names one makes it an error");
    log_note(version, &notes->files, EB_LOG_INFO, "files_passed_over",
        "none if the version's tables are complete without them; otherwise convert them");
    log_note(version, &notes->fields, EB_LOG_INFO, "fields_passed_over",
        "none if the values are complete without these fields; a scale or zero point in one of "
        "them is not applied");
    log_note(version, &notes->stale, EB_LOG_WARN, "manifest_stale",
        "write the manifest after the files; until then the digests of these files do not "
        "count, and copies of the version do not share its tables without reading them");
    log_note(version, &notes->patterns, EB_LOG_WARN, "patterns_unmatched",
        "correct only and exclude in model.yaml: these patterns match no table of the version");
}

void eb_model_log_loaded(const struct eb_table_memory_options *options,
    const struct eb_model_version *version, uint64_t elapsed_ms)
{
    const struct eb_table_set *tables = &version->tables;
    eb_log(EB_LOG_INFO, "model_loaded", eb_log_text("model", version->model),
        eb_log_count("version", version->version), eb_log_count("tables", tables->count),
        eb_log_count("bytes", tables->bytes),
        eb_log_count("shared_bytes", tables->memory.shared_bytes),
        eb_log_count("adopted_bytes", tables->adopted_bytes),
        eb_log_count("resident_bytes", tables->pages.bytes),
        eb_log_count("bytes_2m", tables->pages.bytes_2m),
        eb_log_count("bytes_1g", tables->pages.bytes_1g),
        eb_log_number("numa_nodes", eb_numa_policy_node_count()),
        eb_log_count("elapsed_ms", elapsed_ms));
    log_notes(version);
    log_tables(version);
    log_memory(options, version);
}

void eb_model_log_joined(const struct eb_model_version *version)
{
    const struct eb_table_set *tables = &version->tables;
    eb_log(EB_LOG_INFO, "huge_pages_joined", eb_log_text("model", version->model),
        eb_log_count("version", version->version), eb_log_count("bytes", tables->pages.bytes),
        eb_log_count("bytes_2m", atomic_load(&tables->bytes_2m)),
        eb_log_count("bytes_2m_before", tables->pages.bytes_2m));
}

void eb_model_log_unserved(const struct eb_registry *registry)
{
    for (size_t i = 0; i < registry->count; i++) {
        const struct eb_registry_model *model = &registry->models[i];
        struct eb_failure failure;
        if (!model->served) {
            eb_registry_explain(registry, model, &failure);
            eb_log(EB_LOG_ERROR, "model_unserved", eb_log_text("model", model->name),
                eb_log_text("reason", failure.text),
                eb_log_text("remedy",
                    "correct what the reason names, or remove the model's directory; the server "
                    "serves the model as soon as one of its versions loads"));
        }
    }
}

void eb_model_log_differs(
    const char *model, uint64_t version, const char *table, const char *file, const char *source)
{
    eb_log(EB_LOG_WARN, "resident_differs", eb_log_text("model", model),
        eb_log_count("version", version), eb_log_text("table", table), eb_log_text("file", file),
        eb_log_text("source", source),
        eb_log_text("reason",
            "the table was adopted from the resident file, but the version's files "
            "have other rows or keys, with the same sizes and times or digests"),
        eb_log_text("remedy",
            "the version is loaded again from its files; never write to the files of a version: "
            "write them elsewhere and rename the directory into place under a new number"));
}

void eb_model_log_uncompared(const char *model, uint64_t version, const char *why)
{
    eb_log(EB_LOG_INFO, "resident_uncompared", eb_log_text("model", model),
        eb_log_count("version", version), eb_log_text("reason", why),
        eb_log_text("remedy",
            "none if the repository cannot be reached for now; otherwise check the version's "
            "files; its tables are served as they were adopted"));
}

/* ---- events of the registry ---- */

void eb_model_log_failed(void *context, const char *model, uint64_t version, const char *why)
{
    (void)context;
    eb_log(EB_LOG_ERROR, "model_failed", eb_log_text("model", model),
        eb_log_count("version", version), eb_log_text("reason", why));
}

void eb_model_log_served(void *context, const char *model, uint64_t version, uint64_t before)
{
    (void)context;
    eb_log(EB_LOG_INFO, "model_serving", eb_log_text("model", model),
        eb_log_count("version", version), eb_log_count("before", before));
}

void eb_model_log_missing(void *context, const char *model, uint64_t version, const char *label)
{
    (void)context;
    eb_log(EB_LOG_WARN, "model_version_missing", eb_log_text("model", model),
        eb_log_count("version", version),
        eb_log_text("named_by", label ? "versions.labels" : "versions.serve"),
        eb_log_text("label", label),
        eb_log_text("remedy",
            "rename its directory into place, or name another version in "
            "model.yaml; until then served and labelled versions stay as they are"));
}

void eb_model_log_changed(void *context, const char *model, uint64_t version)
{
    (void)context;
    eb_log(EB_LOG_WARN, "version_changed", eb_log_text("model", model),
        eb_log_count("version", version),
        eb_log_text("remedy",
            "the loaded version stays as it is; publish a changed version under a new number"));
}

void eb_model_log_described(void *context, const char *model, uint64_t version)
{
    (void)context;
    eb_log(EB_LOG_WARN, "model_described_anew", eb_log_text("model", model),
        eb_log_count("version", version),
        eb_log_text("reason", "model.yaml has changed tables, features or groups; the change "
                              "applies to versions that are loaded from now on"),
        eb_log_text("remedy", "publish the version under a new number: cp -al 7 .8; mv .8 8"));
}

void eb_model_log_evicted(void *context, const char *model, uint64_t version, const char *setting)
{
    (void)context;
    eb_log(EB_LOG_WARN, "version_evicted", eb_log_text("model", model),
        eb_log_count("version", version), eb_log_text("setting", setting),
        eb_log_text("reason",
            "more versions or bytes are kept for versions.keep_s than the setting allows"),
        eb_log_text("remedy", "lower versions.keep_s in model.yaml, publish less often, or raise "
                              "the setting; callers that pinned the version get NOT_FOUND"));
}

void eb_model_log_postponed(void *context, const char *model, uint64_t version, uint64_t wait_ms)
{
    (void)context;
    eb_log(EB_LOG_INFO, "load_postponed", eb_log_text("model", model),
        eb_log_count("version", version), eb_log_count("wait_ms", wait_ms),
        eb_log_text("reason", "load_jitter_s spreads the loads of servers that share a disk"));
}

void eb_model_log_suspected(void *context, const char *model, uint64_t version, unsigned deaths)
{
    (void)context;
    eb_log(EB_LOG_WARN, "load_killed", eb_log_text("model", model),
        eb_log_count("version", version), eb_log_count("deaths", deaths),
        eb_log_text("reason",
            "a server died while it loaded this version, and no load has succeeded since"),
        eb_log_text("remedy",
            "check whether memory was short (the kernel's log), and the version's files; the "
            "server serves another version of the model if there is one"));
}
