#include "tests/bench/bench_options.h"

#include "tests/bench/bench_rows.h"
#include "tests/bench/bench_workers.h"
#include "tests/bench/fbgemm_peer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "Usage: embag-bench [OPTION]...\n"
    "Measures the kernels alone, which look up bags of rows, without a network. If built with\n"
    "FBGEMM, the two take turns on the same tables and indices in the same process.\n"
    "Flags marked with * take a list such as 32,64; every combination is measured.\n"
    "\n"
    "  --row-type TYPE *          f32 f64 f16 bf16 i8 u8 ... u64 int8 int4 int2 f8_e4m3 f8_e5m2\n"
    "  --dim N *                  elements in a row (default 128)\n"
    "  --rows N                   rows in the table (default 4000000)\n"
    "  --table-bytes N            instead of --rows: size of the table, such as 2g (GiB)\n"
    "  --bags N *                 bags in a call (default 64)\n"
    "  --indices-per-bag N *      indices in a bag (default 20)\n"
    "  --distribution D *         uniform, zipf:A or meta2021\n"
    "  --state STATE *            steady: other rows each time; hot: one batch again and again;\n"
    "                             flushed: other rows each time, which are in no cache\n"
    "  --threads N *              threads (default 1)\n"
    "  --workload NAME            instead of dim, rows, bags and indices per bag: the tables of\n"
    "                             dlrm-v2, rm1, rm2, rm3, tbe or rows, all looked up in one call\n"
    "  --samples N                bags for each of the workload's tables (default 1)\n"
    "  --scale N                  divide the workload's rows by N (default 1)\n"
    "  --reduction R              sum mean weighted_mean sqrtn max min none\n"
    "  --weighted                 with a weight for each index\n"
    "  --keyed                    also look up by key: what that adds to the check, how much of\n"
    "                             the rate is left, and how long building the index took\n"
    "  --output-type TYPE         f32, f16 or bf16 (default: the table's type)\n"
    "  --pages P                  2m, 1g or 4k (default 2m)\n"
    "  --peer-pages P             pages of the peer's tables (default: as --pages)\n"
    "  --scales-apart             scale and bias of codes in a separate array, not in each row\n"
    "  --isa NAME                 ref, avx2, avx512vl, avx512, neon (default: the\n"
    "                             fastest)\n"
    "  --prefetch SCHEDULE        auto (measured on the tables, as the server does), default,\n"
    "                             off, or FAR:NEAR:l1|l2, such as 128:64:l2 or 64w:4:l1\n"
    "  --ahead                    the next call is known while one is computed\n"
    "  --seed N                   seed of the indices (default 1)\n"
    "  --repeats N                pairs of turns (default 15); medians are shown\n"
    "  --serve REQUEST:ANSWER:N   do not measure, but listen on loopback: for every REQUEST bytes\n"
    "                             received, compute a call and send ANSWER bytes, which end with\n"
    "                             its results. N answers are kept in memory. Takes one case and\n"
    "                             one thread, and serves one connection after another until "
    "killed\n"
    "  --reading-us N             approximate time between two readings of the clock\n"
    "  --no-peer, --no-roofline   leave these out\n"
    "  --json                     print one JSON object per line instead of a table\n";

/* The values of flags on the command line, as text. */
struct texts {
    const char *row_type, *dim, *bags, *indices_per_bag, *distribution, *state, *threads;
    const char *rows, *table_bytes, *workload, *samples, *scale;
    const char *reduction, *output_type, *pages, *peer_pages, *isa, *prefetch;
    const char *seed, *repeats, *reading_us, *serve;
    bool scales_apart, weighted, keyed, ahead, json, no_peer, no_roofline;
};

#define TEXT(name, field)                                                                          \
    {                                                                                              \
        name, EB_FLAG_TEXT, offsetof(struct texts, field), 0, 0, NULL                              \
    }
#define SWITCH(name, field)                                                                        \
    {                                                                                              \
        name, EB_FLAG_SWITCH, offsetof(struct texts, field), 0, 0, NULL                            \
    }

static const struct eb_flag flags[] = {
    TEXT("row-type", row_type),
    TEXT("dim", dim),
    TEXT("bags", bags),
    TEXT("indices-per-bag", indices_per_bag),
    TEXT("distribution", distribution),
    TEXT("state", state),
    TEXT("threads", threads),
    TEXT("rows", rows),
    TEXT("table-bytes", table_bytes),
    TEXT("workload", workload),
    TEXT("samples", samples),
    TEXT("scale", scale),
    TEXT("reduction", reduction),
    TEXT("output-type", output_type),
    TEXT("pages", pages),
    TEXT("peer-pages", peer_pages),
    TEXT("isa", isa),
    TEXT("prefetch", prefetch),
    TEXT("seed", seed),
    TEXT("repeats", repeats),
    TEXT("reading-us", reading_us),
    TEXT("serve", serve),
    SWITCH("scales-apart", scales_apart),
    SWITCH("weighted", weighted),
    SWITCH("keyed", keyed),
    SWITCH("ahead", ahead),
    SWITCH("json", json),
    SWITCH("no-peer", no_peer),
    SWITCH("no-roofline", no_roofline),
};

static const struct eb_command command = {
    "embag-bench", {usage}, flags, sizeof flags / sizeof flags[0]};

static bool refuse_flag(const char *flag, const char *text, const char *why)
{
    fprintf(stderr, "embag-bench: --%s %s: %s\n", flag, text, why);
    return false;
}

/* Names of a flag's values, by number; unused numbers are NULL. */
struct names {
    const char *const *texts;
    unsigned count;
};

static const char *const storage_names[] = {
#define X(name, number, size, text) [number] = text,
    EB_TYPE_LIST(X) EB_STORAGE_FP8_LIST(X) EB_STORAGE_CODE_LIST(X)
#undef X
};
static const char *const type_names[] = {
#define X(name, number, size, text) [number] = text,
    EB_TYPE_LIST(X)
#undef X
};
static const char *const reduction_names[] = {[EB_REDUCTION_SUM] = "sum",
    [EB_REDUCTION_MEAN] = "mean",
    [EB_REDUCTION_WEIGHTED_MEAN] = "weighted_mean",
    [EB_REDUCTION_SQRTN] = "sqrtn",
    [EB_REDUCTION_MAX] = "max",
    [EB_REDUCTION_MIN] = "min",
    [EB_REDUCTION_NONE] = "none"};
static const char *const state_names[] = {
    [EB_BENCH_HOT] = "hot", [EB_BENCH_STEADY] = "steady", [EB_BENCH_FLUSHED] = "flushed"};
static const char *const page_names[] = {
    [EB_PAGE_2M] = "2m", [EB_PAGE_1G] = "1g", [EB_PAGE_SMALL] = "4k"};

#define NAMES(array)                                                                               \
    {                                                                                              \
        array, sizeof array / sizeof array[0]                                                      \
    }

static const struct names storages = NAMES(storage_names);
static const struct names types = NAMES(type_names);
static const struct names reductions = NAMES(reduction_names);
static const struct names states = NAMES(state_names);
static const struct names pages = NAMES(page_names);

const char *eb_bench_options_state_name(enum eb_bench_state state)
{
    return state_names[state];
}

const char *eb_bench_options_page_name(enum eb_page_size size)
{
    return page_names[size];
}

struct eb_bench_table_spec eb_bench_options_table(
    const struct eb_bench_options *options, enum eb_storage storage, uint32_t dim)
{
    return (struct eb_bench_table_spec){
        .storage = storage,
        .dim = dim,
        .has_scales_apart = options->has_scales_apart,
        .pages = options->pages,
        .has_peer = eb_fbgemm_is_built() && !options->has_no_peer,
        .peer_pages = options->peer_pages,
    };
}

/* Reads one element of a list: `bytes` bytes at `text`. */
static bool read_name(const struct names *names, const char *text, size_t bytes, uint64_t *out)
{
    for (unsigned i = 0; i < names->count; i++) {
        if (names->texts[i] && strlen(names->texts[i]) == bytes &&
            strncmp(names->texts[i], text, bytes) == 0) {
            *out = i;
            return true;
        }
    }
    return false;
}

struct range {
    uint64_t min;
    uint64_t max;
};

static bool read_number(const struct range *range, const char *text, size_t bytes, uint64_t *out)
{
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    unsigned shift = 0;
    if (end < text + bytes) {
        shift = *end == 'k' ? 10 : *end == 'm' ? 20 : *end == 'g' ? 30 : 0;
        end += shift > 0;
    }
    *out = value << shift;
    return text[0] >= '0' && text[0] <= '9' && end == text + bytes && errno == 0 &&
           *out >> shift == value && *out >= range->min && *out <= range->max;
}

/* A flag whose value is a list of names or numbers. A single value is a list of one. */
struct listing {
    const char *flag;
    const char *text; /* NULL: not given, *out is not changed */
    const struct names *names;
    struct range range;
    struct eb_bench_list *out;
    unsigned count_max;
};

static bool read_list(const struct listing *listing)
{
    const char *at = listing->text;
    if (!at) {
        return true;
    }
    listing->out->count = 0;
    for (;;) {
        size_t bytes = strcspn(at, ",");
        uint64_t *value = &listing->out->values[listing->out->count];
        if (listing->out->count == listing->count_max) {
            return refuse_flag(listing->flag, listing->text, "too many values");
        }
        if (listing->names ? !read_name(listing->names, at, bytes, value)
                           : !read_number(&listing->range, at, bytes, value)) {
            return refuse_flag(listing->flag, listing->text, "invalid value: see --help");
        }
        listing->out->count++;
        if (at[bytes] == '\0') {
            return true;
        }
        at += bytes + 1;
    }
}

static bool read_lists(const struct texts *texts, struct eb_bench_options *out)
{
    struct range small = {1, EB_BENCH_DIM_MAX};
    struct range counts = {1, EB_BAG_BAGS_MAX};
    struct range threads = {1, EB_BENCH_THREADS_MAX};
    unsigned most = EB_BENCH_LIST_MAX;
    const struct listing listings[] = {
        {"row-type", texts->row_type, &storages, {0}, &out->storages, most},
        {"dim", texts->dim, NULL, small, &out->dims, most},
        {"bags", texts->bags, NULL, counts, &out->bags, most},
        {"indices-per-bag", texts->indices_per_bag, NULL, counts, &out->indices_per_bag, most},
        {"state", texts->state, &states, {0}, &out->states, most},
        {"threads", texts->threads, NULL, threads, &out->thread_counts, most},
    };
    for (size_t i = 0; i < sizeof listings / sizeof listings[0]; i++) {
        if (!read_list(&listings[i])) {
            return false;
        }
    }
    return true;
}

/* Reads a flag with one value. *out is `initial` if the flag is not given. */
static bool read_single(struct listing listing, uint64_t initial, uint64_t *out)
{
    struct eb_bench_list list = {.values = {initial}};
    listing.out = &list;
    listing.count_max = 1;
    bool good = read_list(&listing);
    *out = list.values[0];
    return good;
}

static bool check_states(const struct eb_bench_list *states_wanted)
{
    for (unsigned i = 0; i < states_wanted->count; i++) {
        if (states_wanted->values[i] == EB_BENCH_FLUSHED && !eb_bench_rows_can_flush()) {
            return refuse_flag("state", "flushed", "programs cannot flush caches on this machine");
        }
    }
    return true;
}

static bool read_numbers(const struct texts *texts, struct eb_bench_options *out)
{
    struct range any = {0, UINT64_MAX};
    struct range rows = {1, EB_BENCH_ROWS_MAX};
    struct range pairs = {1, 10000};
    struct range times = {1, 1000000};
    const struct {
        struct listing listing;
        uint64_t initial;
        uint64_t *out;
    } numbers[] = {
        {{"rows", texts->rows, NULL, rows, NULL, 1}, 0, &out->rows},
        {{"table-bytes", texts->table_bytes, NULL, {1, UINT64_C(1) << 50}, NULL, 1}, 0,
            &out->table_bytes},
        {{"samples", texts->samples, NULL, {1, EB_BAG_BAGS_MAX}, NULL, 1}, 1, &out->samples},
        {{"scale", texts->scale, NULL, rows, NULL, 1}, 1, &out->scale},
        {{"seed", texts->seed, NULL, any, NULL, 1}, 1, &out->seed},
        {{"repeats", texts->repeats, NULL, pairs, NULL, 1}, 15, &out->pairs},
        {{"reading-us", texts->reading_us, NULL, times, NULL, 1}, 0, &out->reading_us},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (!read_single(numbers[i].listing, numbers[i].initial, numbers[i].out)) {
            return false;
        }
    }
    if (out->rows > 0 && out->table_bytes > 0) {
        return refuse_flag("table-bytes", texts->table_bytes, "cannot be used with --rows");
    }
    return true;
}

static bool read_choices(const struct texts *texts, struct eb_bench_options *out)
{
    uint64_t reduction = 0;
    uint64_t type = 0;
    uint64_t own = 0;
    uint64_t peer = 0;
    bool good =
        read_single((struct listing){"reduction", texts->reduction, &reductions, {0}, 0, 1},
            EB_REDUCTION_SUM, &reduction) &&
        read_single((struct listing){"output-type", texts->output_type, &types, {0}, 0, 1},
            EB_TYPE_UNSPECIFIED, &type) &&
        read_single((struct listing){"pages", texts->pages, &pages, {0}, 0, 1}, EB_PAGE_2M, &own) &&
        read_single(
            (struct listing){"peer-pages", texts->peer_pages, &pages, {0}, 0, 1}, own, &peer);
    out->reduction = (enum eb_reduction)reduction;
    out->output_type = (enum eb_type)type;
    out->pages = (enum eb_page_size)own;
    out->peer_pages = (enum eb_page_size)peer;
    return good;
}

static bool read_distributions(const char *text, struct eb_bench_options *out)
{
    const char *at = text;
    out->distribution_count = 0;
    for (;;) {
        char one[EB_SAMPLER_TEXT_BYTES] = "";
        size_t bytes = strcspn(at, ",");
        if (bytes >= sizeof one || out->distribution_count == EB_BENCH_LIST_MAX) {
            return refuse_flag("distribution", text, "too long");
        }
        memcpy(one, at, bytes);
        if (!eb_sampler_parse(one, &out->distributions[out->distribution_count])) {
            return refuse_flag("distribution", text, "expected uniform, zipf:A or meta2021");
        }
        out->distribution_count++;
        if (at[bytes] == '\0') {
            return true;
        }
        at += bytes + 1;
    }
}

/* Reads the prefetch schedule, "auto" by default. */
static bool read_prefetch(const char *text, struct eb_bench_options *out)
{
    out->is_prefetch_measured = !text || strcmp(text, "auto") == 0;
    out->is_prefetch_set = !out->is_prefetch_measured && strcmp(text, "default") != 0;
    if (!out->is_prefetch_set) {
        return true;
    }
    const char *why = eb_bag_schedule_parse(text, &out->schedule);
    return !why || refuse_flag("prefetch", text, why);
}

static bool has_one_case(const struct eb_bench_options *options)
{
    return options->storages.count == 1 && options->dims.count == 1 && options->bags.count == 1 &&
           options->indices_per_bag.count == 1 && options->states.count == 1 &&
           options->thread_counts.count == 1 && options->distribution_count == 1;
}

/* Reads --serve. The lists must have been read before. */
static bool read_serving(const char *text, struct eb_bench_options *out)
{
    struct range sizes = {1, EB_BENCH_ECHO_SIZE_MAX};
    uint64_t *const values[] = {
        &out->served.request_bytes, &out->served.answer_bytes, &out->served.answer_count};
    size_t last = sizeof values / sizeof values[0] - 1;
    const char *at = text;
    for (size_t i = 0; text && i <= last; i++) {
        size_t bytes = strcspn(at, ":");
        if (!read_number(&sizes, at, bytes, values[i]) || (at[bytes] == ':') != (i < last)) {
            return refuse_flag("serve", text, "expected REQUEST_BYTES:ANSWER_BYTES:ANSWERS");
        }
        at += bytes + 1;
    }
    bool is_plain = has_one_case(out) && out->thread_counts.values[0] == 1 &&
                    out->states.values[0] != EB_BENCH_FLUSHED && !out->is_keyed && !out->is_ahead;
    return !text || is_plain ||
           refuse_flag("serve", text,
               "needs one case, one thread, --state hot or steady, no --keyed and no --ahead");
}

static bool read_others(const struct texts *texts, struct eb_bench_options *out)
{
    out->ops = eb_bag_ops_find(texts->isa);
    if (!out->ops) {
        return refuse_flag("isa", texts->isa, "it was not built, or this machine cannot run it");
    }
    if (texts->workload) {
        out->workload = eb_workload_find(texts->workload);
        if (!out->workload) {
            return refuse_flag("workload", texts->workload, "no such workload: see --help");
        }
        if (texts->dim || texts->rows || texts->table_bytes || texts->bags ||
            texts->indices_per_bag) {
            return refuse_flag("workload", texts->workload,
                "defines dim, rows, bags and indices per bag: use --samples and --scale instead");
        }
        if (texts->keyed) {
            return refuse_flag("workload", texts->workload, "cannot be used with --keyed");
        }
    }
    out->has_scales_apart = texts->scales_apart;
    out->is_weighted = texts->weighted;
    out->is_keyed = texts->keyed;
    out->is_ahead = texts->ahead;
    out->is_json = texts->json;
    out->has_no_peer = texts->no_peer;
    out->has_no_roofline = texts->no_roofline;
    return read_prefetch(texts->prefetch, out) &&
           read_distributions(texts->distribution ? texts->distribution : "uniform", out) &&
           read_serving(texts->serve, out);
}

enum eb_arguments_outcome eb_bench_options_read(
    struct eb_bench_options *out, int argument_count, char **arguments)
{
    struct texts texts = {0};
    enum eb_arguments_outcome outcome =
        eb_arguments_read(&command, argument_count, arguments, &texts);
    if (outcome != EB_ARGUMENTS_READ) {
        return outcome;
    }
    *out = (struct eb_bench_options){
        .storages = {{EB_STORAGE_F32}, 1},
        .dims = {{128}, 1},
        .bags = {{64}, 1},
        .indices_per_bag = {{20}, 1},
        .states = {{EB_BENCH_STEADY}, 1},
        .thread_counts = {{1}, 1},
    };
    return read_lists(&texts, out) && check_states(&out->states) && read_numbers(&texts, out) &&
                   read_choices(&texts, out) && read_others(&texts, out)
               ? EB_ARGUMENTS_READ
               : EB_ARGUMENTS_WRONG;
}
