#include "server/kernel_choice.h"

#include "kernels/bag_schedule.h"
#include "kernels/bag_tune.h"
#include "kernels/processor.h"
#include "server/base/log.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of the texts that say why an instruction set cannot be chosen, and which ones can. */
#define REASON_BYTES 128
/* Bytes of "128:64:l2 12.8" for each candidate. */
#define FIGURES_BYTES (EB_BAG_TUNE_CANDIDATES_MAX * (EB_BAG_SCHEDULE_TEXT_BYTES + 16))
/* Bytes of "65..128". */
#define ROW_BYTES_BYTES 32
/* Bytes of "65..128 0:16:l1" for each class. */
#define CLASSES_BYTES (EB_BAG_ROW_CLASS_COUNT * (ROW_BYTES_BYTES + EB_BAG_SCHEDULE_TEXT_BYTES))

/* The tables that are measured. The log names the largest. */
struct subject {
    const struct eb_model_version *version;
    const struct eb_named_table *table; /* the largest table; NULL if there is none */
    struct eb_bag_tune_ground ground;
};

/* ---- the instruction set ---- */

static bool is_isa_built(const char *name)
{
    const struct eb_bag_ops *ops;
    for (size_t n = 0; (ops = eb_bag_ops_at(n)); n++) {
        if (strcmp(name, eb_bag_ops_name(ops)) == 0) {
            return true;
        }
    }
    return false;
}

/* Logs which instruction sets can be chosen instead. */
static void log_no_isa(const char *name)
{
    char reason[REASON_BYTES];
    char hint[REASON_BYTES];
    const char *why = is_isa_built(name) ? "this machine cannot run" : "this build does not have";
    snprintf(reason, sizeof reason, "%s %s", why, name);
    int used = snprintf(hint, sizeof hint, "leave isa unset to use the best of");
    const struct eb_bag_ops *ops;
    for (size_t n = 0; (ops = eb_bag_ops_at(n)); n++) {
        if (eb_bag_ops_runs_here(ops)) {
            used += snprintf(hint + used, sizeof hint - (size_t)used, " %s", eb_bag_ops_name(ops));
            assert((size_t)used < sizeof hint);
        }
    }
    eb_log_fail_start("isa", reason, hint);
}

const struct eb_bag_ops *eb_kernel_choice_ops(const char *name)
{
    const struct eb_bag_ops *ops = eb_bag_ops_find(name);
    if (!ops) {
        log_no_isa(name);
    }
    return ops;
}

/* ---- prefetching ---- */

bool eb_kernel_choice_check_prefetch(const char *text, struct eb_failure *failure)
{
    struct eb_bag_schedule schedule;
    if (strcmp(text, EB_KERNEL_CHOICE_AUTO) == 0) {
        return true;
    }
    const char *why = eb_bag_schedule_parse(text, &schedule);
    size_t expected_bytes = strlen("expected ");
    if (why && strncmp(why, "expected ", expected_bytes) == 0) {
        return eb_failure_set(
            failure, "expected " EB_KERNEL_CHOICE_AUTO ", %s", why + expected_bytes);
    }
    return !why || eb_failure_set(failure, "%s", why);
}

/* Returns the bytes of the rows alone: keys and key index lie elsewhere. */
static uint64_t row_bytes_of(const struct eb_table *table)
{
    return table->row_count * table->row_stride_bytes;
}

static void find_largest(const struct eb_snapshot *snapshot, struct subject *out)
{
    *out = (struct subject){0};
    for (size_t i = 0; i < snapshot->count; i++) {
        const struct eb_model_version *version = snapshot->models[i].served;
        for (size_t n = 0; version && n < version->tables.count; n++) {
            const struct eb_named_table *table = &version->tables.tables[n];
            if (table->is_remote) {
                continue;
            }
            eb_bag_tune_add(&out->ground, &table->table);
            if (!out->table || row_bytes_of(&table->table) > row_bytes_of(&out->table->table)) {
                out->version = version;
                out->table = table;
            }
        }
    }
}

/* Returns the class after those that have the same schedule as `class`. */
static unsigned find_class_end(const struct eb_bag_schedule *of_class, unsigned class)
{
    char text[EB_BAG_SCHEDULE_TEXT_BYTES];
    char other[EB_BAG_SCHEDULE_TEXT_BYTES];
    unsigned end = class + 1;
    eb_bag_schedule_format(&of_class[class], text);
    for (; end < EB_BAG_ROW_CLASS_COUNT; end++) {
        eb_bag_schedule_format(&of_class[end], other);
        if (strcmp(text, other) != 0) {
            break;
        }
    }
    return end;
}

/* Writes the row sizes of classes: "65..128". The last class has no upper end. */
static void format_row_bytes(unsigned class, unsigned class_end, char out[ROW_BYTES_BYTES])
{
    unsigned least = class == 0 ? 1 : ((unsigned)EB_LINE_BYTES << (class - 1)) + 1;
    if (class_end < EB_BAG_ROW_CLASS_COUNT) {
        snprintf(out, ROW_BYTES_BYTES, "%u..%u", least, (unsigned)EB_LINE_BYTES << (class_end - 1));
    } else {
        snprintf(out, ROW_BYTES_BYTES, "%u..", least);
    }
}

/* Writes the schedules of all classes: "1..512 0:12:l1, 513.. 0:8:l1". */
static void format_classes(const struct eb_bag_schedule *of_class, char out[CLASSES_BYTES])
{
    size_t used = 0;
    unsigned end;
    for (unsigned class = 0; class < EB_BAG_ROW_CLASS_COUNT; class = end) {
        char row_bytes[ROW_BYTES_BYTES];
        char schedule[EB_BAG_SCHEDULE_TEXT_BYTES];
        end = find_class_end(of_class, class);
        format_row_bytes(class, end, row_bytes);
        eb_bag_schedule_format(&of_class[class], schedule);
        int length = snprintf(out + used, CLASSES_BYTES - used, "%s%s %s", class > 0 ? ", " : "",
            row_bytes, schedule);
        used += (size_t)length;
        assert(used < CLASSES_BYTES);
    }
}

/* Writes each candidate with its ns per row: "128:64:l2 12.8, off 26.3". */
static void format_figures(const struct eb_bag_tune_class *tuned, char out[FIGURES_BYTES])
{
    size_t used = 0;
    for (unsigned i = 0; i < tuned->figures.candidate_count; i++) {
        char schedule[EB_BAG_SCHEDULE_TEXT_BYTES];
        eb_bag_schedule_format(&tuned->figures.candidates[i], schedule);
        int length = snprintf(out + used, FIGURES_BYTES - used, "%s%s %.1f", i > 0 ? ", " : "",
            schedule, tuned->verdict.least[i]);
        used += (size_t)length;
        if (used >= FIGURES_BYTES) {
            return;
        }
    }
}

/* Logs the settings that are not measured. */
static void log_caches(const struct eb_bag_schedules *schedules)
{
    char nearby[CLASSES_BYTES];
    struct eb_processor processor = eb_processor_read();
    format_classes(schedules->nearby, nearby);
    eb_log(EB_LOG_INFO, "prefetch_caches",
        eb_log_text("processor", eb_processor_family_name(eb_processor_family_of(&processor))),
        eb_log_number("cached_bytes", (int64_t)schedules->cached_bytes),
        eb_log_number("nearby_bytes", (int64_t)schedules->nearby_bytes),
        eb_log_text("nearby", nearby));
}

/* Logs a line for each run of classes with one schedule, and the reason why it was not measured. */
static void log_unmeasured(const struct eb_bag_schedules *schedules, const char *reason)
{
    unsigned end;
    for (unsigned class = 0; class < EB_BAG_ROW_CLASS_COUNT; class = end) {
        char row_bytes[ROW_BYTES_BYTES];
        char schedule[EB_BAG_SCHEDULE_TEXT_BYTES];
        end = find_class_end(schedules->of_class, class);
        format_row_bytes(class, end, row_bytes);
        eb_bag_schedule_format(&schedules->of_class[class], schedule);
        eb_log(EB_LOG_INFO, "prefetch", eb_log_text("row_bytes", row_bytes),
            eb_log_text("schedule", schedule), eb_log_text("measured", "no"),
            eb_log_text("reason", reason));
    }
}

/* Logs the choice for a class, and how sure it is: in how many rounds the fastest candidate was
 * clearly faster than the default. */
static void log_class(
    unsigned class, const struct eb_bag_schedule *schedule, const struct eb_bag_tune_class *tuned)
{
    const struct eb_bag_tune_verdict *verdict = &tuned->verdict;
    char row_bytes[ROW_BYTES_BYTES];
    char texts[3][EB_BAG_SCHEDULE_TEXT_BYTES];
    char led[32];
    char ns_per_row[32];
    char all[FIGURES_BYTES];
    format_row_bytes(class, class + 1, row_bytes);
    eb_bag_schedule_format(schedule, texts[0]);
    if (!tuned->is_measured) {
        eb_log(EB_LOG_INFO, "prefetch", eb_log_text("row_bytes", row_bytes),
            eb_log_text("schedule", texts[0]), eb_log_text("measured", "no"),
            eb_log_text("reason", "fewer than 3 rounds could be measured in time"));
        return;
    }
    eb_bag_schedule_format(&tuned->figures.candidates[0], texts[1]);
    eb_bag_schedule_format(&tuned->figures.candidates[verdict->fastest], texts[2]);
    snprintf(led, sizeof led, "%u of %u", verdict->led_count, tuned->figures.round_count);
    snprintf(ns_per_row, sizeof ns_per_row, "%.1f", verdict->least[verdict->chosen]);
    format_figures(tuned, all);
    eb_log(EB_LOG_INFO, "prefetch", eb_log_text("row_bytes", row_bytes),
        eb_log_text("schedule", texts[0]), eb_log_text("measured", "yes"),
        eb_log_text("ns_per_row", ns_per_row), eb_log_text("default", texts[1]),
        eb_log_text("fastest", texts[2]), eb_log_text("led_in_rounds", led),
        eb_log_number("gain_percent", (int64_t)(verdict->gain * 100)),
        eb_log_text("candidates", all));
}

static void log_measured(const struct subject *subject, const struct eb_bag_schedules *schedules,
    const struct eb_bag_tune_report *report)
{
    eb_log(EB_LOG_INFO, "prefetch_measured", eb_log_text("model", subject->version->model),
        eb_log_count("version", subject->version->version),
        eb_log_text("table", subject->table->name),
        eb_log_number("bytes", (int64_t)row_bytes_of(&subject->table->table)),
        eb_log_number("tables", report->piece_count),
        eb_log_number("elapsed_ms", (int64_t)(report->elapsed_ns / 1000000)));
    for (unsigned class = 0; class < EB_BAG_ROW_CLASS_COUNT; class ++) {
        log_class(class, &schedules->of_class[class], &report->of_class[class]);
    }
}

/* Returns whether anything was measured. */
static bool measure_schedules(
    const struct subject *subject, const struct eb_bag_ops *ops, struct eb_bag_schedules *out)
{
    struct eb_bag_tune_report report;
    struct eb_bag_tune_task task = {
        .ops = ops,
        .ground = &subject->ground,
        .scratch = malloc(sizeof *task.scratch),
    };
    if (!task.scratch) {
        log_unmeasured(out, "out of memory");
        return false;
    }
    eb_bag_tune(&task, out, &report);
    free(task.scratch);
    if (report.piece_count == 0) {
        log_unmeasured(out, "the instruction set does not prefetch rows");
    } else {
        log_measured(subject, out, &report);
    }
    return report.piece_count > 0;
}

/* Measures if the tables are large enough. If not, logs the reason and returns false. */
static bool measure_largest(
    const struct eb_bag_ops *ops, const struct eb_snapshot *snapshot, struct eb_bag_schedules *out)
{
    struct subject subject;
    char reason[64];
    find_largest(snapshot, &subject);
    if (eb_bag_tune_pieces_needed(&subject.ground) > 0) {
        return measure_schedules(&subject, ops, out);
    }
    snprintf(reason, sizeof reason, "the %d largest tables have less than %" PRIu64 " bytes",
        EB_BAG_TUNE_PIECES_MAX, eb_bag_tune_bytes_min());
    log_unmeasured(out, reason);
    return false;
}

bool eb_kernel_choice_schedules(const char *prefetch, const struct eb_bag_ops *ops,
    const struct eb_snapshot *snapshot, struct eb_bag_schedules *out)
{
    eb_bag_tune_find_defaults(out);
    if (!prefetch || strcmp(prefetch, EB_KERNEL_CHOICE_AUTO) == 0) {
        bool is_measured = measure_largest(ops, snapshot, out);
        log_caches(out);
        return is_measured;
    }
    struct eb_bag_schedule schedule;
    const char *why = eb_bag_schedule_parse(prefetch, &schedule);
    assert(!why);
    (void)why;
    eb_bag_schedule_spread(&schedule, out);
    log_unmeasured(out, "set by the setting prefetch");
    return false;
}

/* ---- what an earlier start has measured ---- */

/* Writes the first line: what the schedules were measured on. */
static int write_machine(const struct eb_bag_ops *ops, char out[EB_KERNEL_CHOICE_TEXT_BYTES])
{
    struct eb_processor processor = eb_processor_read();
    return snprintf(out, EB_KERNEL_CHOICE_TEXT_BYTES, "embag prefetch 1 %u %u %u %s\n",
        processor.vendor, processor.cpuid_family, processor.cpuid_model, eb_bag_ops_name(ops));
}

size_t eb_kernel_choice_write(const struct eb_bag_ops *ops,
    const struct eb_bag_schedules *schedules, char out[EB_KERNEL_CHOICE_TEXT_BYTES])
{
    size_t used = (size_t)write_machine(ops, out);
    for (unsigned class = 0; class < EB_BAG_ROW_CLASS_COUNT; class ++) {
        char schedule[EB_BAG_SCHEDULE_TEXT_BYTES];
        eb_bag_schedule_format(&schedules->of_class[class], schedule);
        used += (size_t)snprintf(out + used, EB_KERNEL_CHOICE_TEXT_BYTES - used, "%s\n", schedule);
        assert(used < EB_KERNEL_CHOICE_TEXT_BYTES);
    }
    return used;
}

bool eb_kernel_choice_read(
    const struct eb_bag_ops *ops, const char *text, struct eb_bag_schedules *out)
{
    char machine[EB_KERNEL_CHOICE_TEXT_BYTES];
    size_t length = (size_t)write_machine(ops, machine);
    eb_bag_tune_find_defaults(out);
    if (strncmp(text, machine, length) != 0) {
        return false;
    }
    text += length;
    for (unsigned class = 0; class < EB_BAG_ROW_CLASS_COUNT; class ++) {
        char schedule[EB_BAG_SCHEDULE_TEXT_BYTES];
        size_t bytes = strcspn(text, "\n");
        if (text[bytes] != '\n' || bytes >= sizeof schedule) {
            return false;
        }
        memcpy(schedule, text, bytes);
        schedule[bytes] = '\0';
        if (eb_bag_schedule_parse(schedule, &out->of_class[class])) {
            return false;
        }
        text += bytes + 1;
    }
    log_unmeasured(out, "measured by an earlier start");
    log_caches(out);
    return true;
}
