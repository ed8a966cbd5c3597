#include "server/admin/status_json.h"

#include "server/admin/json_text.h"

static void write_histogram(
    struct eb_json_text *text, const char *key, const struct eb_histogram *histogram)
{
    eb_json_text_begin(text, key, '{');
    eb_json_text_count(text, "sum_ns", histogram->sum_ns);
    eb_json_text_begin(text, "ranges", '[');
    for (unsigned i = 0; i < EB_HISTOGRAM_RANGES; i++) {
        if (histogram->counts[i] > 0) {
            uint64_t end_ns = eb_histogram_end_ns(i);
            eb_json_text_begin(text, NULL, '[');
            eb_json_text_count(text, NULL, end_ns == UINT64_MAX ? 0 : end_ns);
            eb_json_text_count(text, NULL, histogram->counts[i]);
            eb_json_text_end(text, ']');
        }
    }
    eb_json_text_end(text, ']');
    eb_json_text_end(text, '}');
}

static void write_method(
    struct eb_json_text *text, const struct eb_stats_method *method, const uint64_t *counts)
{
    for (int status = 0; status < EB_COUNTERS_STATUSES; status++) {
        if (counts[status] > 0) {
            eb_json_text_begin(text, NULL, '{');
            eb_json_text_string(text, "service", method->service);
            eb_json_text_string(text, "method", method->method);
            eb_json_text_string(text, "code", eb_status_name(status));
            eb_json_text_count(text, "count", counts[status]);
            eb_json_text_end(text, '}');
        }
    }
}

static void write_requests(struct eb_json_text *text, const struct eb_stats *stats)
{
    eb_json_text_begin(text, "requests", '[');
    for (size_t i = 0; i < stats->method_count; i++) {
        write_method(text, &stats->methods[i], stats->total.requests[i]);
    }
    eb_json_text_end(text, ']');
}

static void write_counters(struct eb_json_text *text, const struct eb_counters *counters)
{
    eb_json_text_begin(text, "refusals", '{');
    for (int i = 0; i < EB_REFUSAL_COUNT; i++) {
        eb_json_text_count(text, eb_refusal_name((enum eb_refusal)i), counters->refusals[i]);
    }
    eb_json_text_end(text, '}');
    eb_json_text_begin(text, "counts", '{');
#define X(member, name, help) eb_json_text_count(text, name, counters->member);
    EB_COUNTERS_COUNT_LIST(X)
#undef X
    eb_json_text_end(text, '}');
    eb_json_text_begin(text, "stages", '{');
    for (int i = 0; i < EB_STAGE_COUNT; i++) {
        write_histogram(text, eb_stage_name((enum eb_stage)i), &counters->stages[i]);
    }
    eb_json_text_end(text, '}');
    write_histogram(text, "lag", &counters->lag);
}

static void write_loops(struct eb_json_text *text, const struct eb_stats *stats)
{
    eb_json_text_begin(text, "loops", '[');
    for (size_t i = 0; i < stats->loop_count; i++) {
        const struct eb_stats_loop *loop = &stats->loops[i];
        eb_json_text_begin(text, NULL, '{');
        eb_json_text_count(text, "connections", loop->connections);
        eb_json_text_count(text, "receive_bytes", loop->receive_bytes);
        eb_json_text_count(text, "answer_bytes", loop->answer_bytes);
        eb_json_text_end(text, '}');
    }
    eb_json_text_end(text, ']');
}

static void write_executor(struct eb_json_text *text, const struct eb_executor_stats *executor)
{
    eb_json_text_begin(text, "executor", '{');
    eb_json_text_count(text, "threads", executor->threads);
    eb_json_text_count(text, "idle_threads", executor->idle_threads);
    eb_json_text_count(text, "tiles", executor->tiles);
    eb_json_text_count(text, "busy_ns", executor->busy_ns);
    eb_json_text_count(text, "bytes_per_us", executor->bytes_per_us);
    eb_json_text_begin(text, "queued", '[');
    for (int i = 0; i < EB_WORK_PRIORITIES; i++) {
        eb_json_text_begin(text, NULL, '{');
        eb_json_text_string(text, "priority", eb_work_priority_name((enum eb_work_priority)i));
        eb_json_text_count(text, "works", executor->queued_works[i]);
        eb_json_text_count(text, "bytes", executor->queued_bytes[i]);
        eb_json_text_end(text, '}');
    }
    eb_json_text_end(text, ']');
    eb_json_text_end(text, '}');
}

static void write_table(struct eb_json_text *text, const struct eb_stats_table *table)
{
    eb_json_text_begin(text, NULL, '{');
    eb_json_text_string(text, "model", table->model);
    eb_json_text_string(text, "table", table->table);
    eb_json_text_count(text, "bags", table->bags);
    eb_json_text_count(text, "indices", table->indices);
    eb_json_text_count(text, "missing", table->missing);
    eb_json_text_begin(text, "hot", '[');
    for (size_t i = 0; i < table->hot_count; i++) {
        eb_json_text_begin(text, NULL, '[');
        eb_json_text_id(text, NULL, table->hot[i].id);
        eb_json_text_share(text, NULL, table->hot[i].share);
        eb_json_text_end(text, ']');
    }
    eb_json_text_end(text, ']');
    eb_json_text_end(text, '}');
}

static void write_tables(struct eb_json_text *text, const struct eb_stats *stats)
{
    eb_json_text_begin(text, "tables", '[');
    for (size_t i = 0; i < stats->table_count; i++) {
        write_table(text, &stats->tables[i]);
    }
    eb_json_text_end(text, ']');
}

/* Returns the slot that routers have the version in, or NULL if none claims it. */
static const char *find_claim(const struct eb_stats_version *version)
{
    const char *claimed = version->is_claimed ? "next" : NULL;
    return version->is_served_by_router ? "served" : claimed;
}

static void write_model_version(struct eb_json_text *text, const struct eb_stats_version *version)
{
    eb_json_text_begin(text, NULL, '{');
    eb_json_text_unsigned_id(text, "number", version->number);
    eb_json_text_string(text, "state", eb_version_state_name(version->state));
    eb_json_text_string(text, "claim", find_claim(version));
    eb_json_text_string(text, "fault", version->failure);
    eb_json_text_count(text, "loaded_unix_ms", version->loaded_unix_ms);
    eb_json_text_count(text, "load_ms", version->load_ms);
    eb_json_text_count(text, "tables", version->tables);
    eb_json_text_count(text, "rows", version->rows);
    eb_json_text_count(text, "bytes", version->bytes);
    eb_json_text_begin(text, "pages", '{');
    eb_json_text_count(text, "small", version->pages.small);
    eb_json_text_count(text, "huge_2m", version->pages.huge_2m);
    eb_json_text_count(text, "huge_1g", version->pages.huge_1g);
    eb_json_text_end(text, '}');
    eb_json_text_end(text, '}');
}

static void write_model(struct eb_json_text *text, const struct eb_stats_model *model)
{
    eb_json_text_begin(text, NULL, '{');
    eb_json_text_string(text, "name", model->name);
    if (model->served > 0) {
        eb_json_text_unsigned_id(text, "served", model->served);
    } else {
        eb_json_text_string(text, "served", NULL);
    }
    eb_json_text_string(text, "fault", model->failure);
    eb_json_text_begin(text, "claims", '{');
    eb_json_text_count(text, "served", model->claims.served);
    eb_json_text_count(text, "next", model->claims.next);
    eb_json_text_end(text, '}');
    eb_json_text_begin(text, "versions", '[');
    for (size_t i = 0; i < model->version_count; i++) {
        write_model_version(text, &model->versions[i]);
    }
    eb_json_text_end(text, ']');
    eb_json_text_end(text, '}');
}

static void write_models(struct eb_json_text *text, const struct eb_stats *stats)
{
    eb_json_text_begin(text, "models", '[');
    for (size_t i = 0; i < stats->model_count; i++) {
        write_model(text, &stats->models[i]);
    }
    eb_json_text_end(text, ']');
    eb_json_text_begin(text, "loads", '{');
    eb_json_text_count(text, "done", stats->loads.done);
    eb_json_text_count(text, "failed", stats->loads.failed);
    eb_json_text_count(text, "freed", stats->loads.freed);
    eb_json_text_count(text, "evicted", stats->loads.evicted);
    eb_json_text_count(text, "kept", stats->loads.kept);
    eb_json_text_count(text, "kept_bytes", stats->loads.kept_bytes);
    eb_json_text_end(text, '}');
}

static const char *find_repository_state(const struct eb_process_facts *facts)
{
    if (!facts->is_repository_watched) {
        return "unwatched";
    }
    return facts->is_repository_unreadable ? "unreadable" : "readable";
}

static void write_facts(struct eb_json_text *text, const struct eb_process_facts *facts)
{
    eb_json_text_begin(text, "load", '{');
    eb_json_text_count(text, "done_bytes", facts->load_done_bytes);
    eb_json_text_count(text, "total_bytes", facts->load_total_bytes);
    eb_json_text_end(text, '}');
    eb_json_text_string(text, "repository", find_repository_state(facts));
}

/* ---- a router ---- */

static void write_slot(
    struct eb_json_text *text, enum eb_route_slot_name name, const struct eb_route_slot *slot)
{
    eb_json_text_begin(text, NULL, '{');
    eb_json_text_string(text, "slot", eb_route_slot_name(name));
    eb_json_text_unsigned_id(text, "version", slot->version);
    eb_json_text_flag(text, "complete", slot->is_complete);
    eb_json_text_count(text, "parts", slot->parts);
    eb_json_text_count(text, "ready_parts", slot->ready_parts);
    eb_json_text_begin(text, "replicas", '[');
    for (uint32_t row = 0; row < eb_route_stats_row_count(slot->parts); row++) {
        eb_json_text_count(text, NULL, slot->replicas[row]);
    }
    eb_json_text_end(text, ']');
    eb_json_text_end(text, '}');
}

static void write_route_model(struct eb_json_text *text, const struct eb_route_model *model)
{
    eb_json_text_begin(text, NULL, '{');
    eb_json_text_string(text, "name", model->name);
    eb_json_text_flag(text, "behind", model->is_behind);
    eb_json_text_begin(text, "slots", '[');
    for (int i = 0; i < EB_ROUTE_SLOTS; i++) {
        if (model->slots[i].version != 0) {
            write_slot(text, (enum eb_route_slot_name)i, &model->slots[i]);
        }
    }
    eb_json_text_end(text, ']');
    eb_json_text_end(text, '}');
}

static const char *name_peer_state(const struct eb_leg_peer *peer)
{
    if (!peer->is_connected) {
        return "lost";
    }
    const char *good = peer->is_ejected ? "ejected" : "connected";
    return peer->is_suspect ? "suspect" : good;
}

static void write_peer(
    struct eb_json_text *text, const struct eb_route_facts *facts, const struct eb_leg_peer *peer)
{
    uint32_t part = eb_route_facts_part(facts, peer->instance);
    eb_json_text_begin(text, NULL, '{');
    eb_json_text_string(text, "address", peer->address);
    if (part != EB_ROUTE_NO_PART) {
        eb_json_text_count(text, "part", part);
    } else {
        eb_json_text_string(text, "part", NULL);
    }
    eb_json_text_string(text, "state", name_peer_state(peer));
    eb_json_text_count(text, "latency_ns", peer->latency_ns);
    eb_json_text_count(text, "sent", peer->sent);
    eb_json_text_count(text, "failed", peer->failed);
    eb_json_text_end(text, '}');
}

static void write_router(struct eb_json_text *text, const struct eb_stats *stats)
{
    const struct eb_route_facts *facts = stats->route_facts;
    const struct eb_route_counts *counts = stats->route;
    if (!facts) {
        return;
    }
    eb_json_text_begin(text, "route", '{');
    eb_json_text_string(text, "not_ready", facts->not_ready);
    eb_json_text_flag(text, "conflict", facts->has_conflict);
    eb_json_text_count(text, "connected", facts->connected);
    eb_json_text_count(text, "replicas_wanted", facts->replicas);
    eb_json_text_count(text, "flips", facts->flips);
    eb_json_text_count(text, "back_outs", facts->back_outs);
    eb_json_text_count(text, "unreached", counts ? counts->totals.unreached : 0);
    eb_json_text_begin(text, "models", '[');
    for (size_t i = 0; i < facts->model_count; i++) {
        write_route_model(text, &facts->models[i]);
    }
    eb_json_text_end(text, ']');
    eb_json_text_begin(text, "peers", '[');
    for (size_t i = 0; counts && i < counts->peer_count; i++) {
        write_peer(text, facts, &counts->peers[i]);
    }
    eb_json_text_end(text, ']');
    eb_json_text_end(text, '}');
}

static void write_slow(struct eb_json_text *text, const struct eb_stats_slow *slow)
{
    eb_json_text_begin(text, NULL, '{');
    eb_json_text_count(text, "unix_ms", slow->unix_ms);
    eb_json_text_string(text, "method", slow->method);
    eb_json_text_string(text, "model", slow->model);
    eb_json_text_string(text, "peer", slow->peer);
    eb_json_text_string(text, "trace", slow->trace);
    eb_json_text_string(text, "span", slow->span);
    eb_json_text_string(text, "code", eb_status_name((int)slow->status));
    eb_json_text_count(text, "indices", slow->indices);
    eb_json_text_count(text, "value_bytes", slow->value_bytes);
    eb_json_text_begin(text, "ns", '{');
    for (int i = 0; i < EB_STAGE_COUNT; i++) {
        eb_json_text_count(text, eb_stage_name((enum eb_stage)i), slow->ns[i]);
    }
    eb_json_text_end(text, '}');
    eb_json_text_end(text, '}');
}

static void write_slow_requests(struct eb_json_text *text, const struct eb_stats *stats)
{
    eb_json_text_begin(text, "slow", '[');
    for (size_t i = 0; i < stats->slow_count; i++) {
        write_slow(text, &stats->slow[i]);
    }
    eb_json_text_end(text, ']');
}

char *eb_status_json_write(const struct eb_stats *stats, size_t *size)
{
    struct eb_json_text text = {0};
    eb_json_text_begin(&text, NULL, '{');
    eb_json_text_string(&text, "phase", eb_stats_phase_name(stats->phase));
    eb_json_text_count(&text, "taken_unix_ms", stats->taken_unix_ms);
    eb_json_text_count(&text, "started_unix_ms", stats->started_unix_ms);
    write_requests(&text, stats);
    write_counters(&text, &stats->total);
    write_loops(&text, stats);
    write_executor(&text, &stats->executor);
    write_tables(&text, stats);
    write_models(&text, stats);
    write_facts(&text, &stats->facts);
    write_router(&text, stats);
    write_slow_requests(&text, stats);
    eb_json_text_end(&text, '}');
    return eb_json_text_take(&text, size);
}
