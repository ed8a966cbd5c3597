#include "client/cli/load_report_keys.h"

#include <stddef.h>

struct report_key {
    const char *name;
    const char *kind;
    const char *type;
    const char *unit; /* NULL: none */
    const char *description;
};

#define SETTING "setting"
#define FIGURE "figure"
#define SWEEP "sweep"

static const struct report_key report_keys[] = {
    {"server", SETTING, "string", NULL, "address of the server or servers, as given"},
    {"model", SETTING, "string", NULL, "model that the requests name"},
    {"version", SETTING, "integer", NULL, "version that was served at the start of the run"},
    {"workload", SETTING, "string or null", NULL, "workload; null without --workload"},
    {"tables", SETTING, "integer", NULL, "number of tables or features in each request"},
    {"bags", SETTING, "integer", NULL, "number of bags for each table in a request"},
    {"rows_per_request", SETTING, "integer", NULL,
        "number of rows that a request looks up, over all its tables and bags"},
    {"distribution", SETTING, "string", NULL, "distribution of the rows, as --distribution"},
    {"mode", SETTING, "string", NULL,
        "stream: one LookupStream on each connection; unary: one Lookup call for each request"},
    {"arrival", SETTING, "string", NULL,
        "open: requests are due at random times (--rate, --sweep); closed: the next request "
        "is sent when one ends"},
    {"connections", SETTING, "integer", NULL, "number of connections to each server"},
    {"threads", SETTING, "integer", NULL, "number of threads that send and receive"},
    {"in_flight", SETTING, "integer", NULL,
        "closed load: number of requests in flight, on all connections together; open load: limit "
        "on that number"},
    {"duration_s", SETTING, "number", "s", "time to measure; for a sweep, in each step"},
    {"warmup_s", SETTING, "number", "s",
        "time of load before the measurement, which does not count"},
    {"timeout_us", SETTING, "integer", "us", "time after which a request has failed"},
    {"deadline_us", SETTING, "integer", "us",
        "time within which an answer counts towards goodput; 0: every answer counts"},
    {"retries", SETTING, "integer", NULL, "times that a request may be sent again (--retries)"},
    {"hedge", SETTING, "integer", "%",
        "requests per hundred that may be sent to a second server as well, because the first one "
        "is late (--hedge); 0: none"},
    {"seed", SETTING, "integer", NULL, "seed of rows and send times"},
    {"pool", SETTING, "integer", NULL,
        "number of different requests, made before the run and sent in turn"},
    {"verified", SETTING, "boolean", NULL,
        "whether every answer was compared with the published values (--verify)"},
    {"groups", SETTING, "boolean", NULL,
        "whether a request's tables were the features of one FeatureGroup (--groups, --group)"},
    {"unpaced", SETTING, "boolean", NULL,
        "whether every request was sent at once, without pacing (--unpaced)"},
    {"priority", SETTING, "string", NULL, "priority of the requests: interactive or batch"},
    {"rate", FIGURE, "number", "requests/s",
        "rate at which requests were due; absent after a closed load"},
    {"seconds", FIGURE, "number", "s",
        "measured time; less than duration_s if the run was interrupted"},
    {"requests", FIGURE, "integer", NULL,
        "number of requests that were due within the measured time: the sum of answers, errors and "
        "unsent"},
    {"answers", FIGURE, "integer", NULL, "number of requests that were answered"},
    {"requests_per_s", FIGURE, "number", "answers/s", "answers within the measured time"},
    {"goodput_per_s", FIGURE, "number", "answers/s",
        "answers within the measured time that took at most deadline_us and are not wrong"},
    {"errors", FIGURE, "integer", NULL, "number of requests that failed"},
    {"errors_by_code", FIGURE, "object", NULL,
        "number of errors for each status that occurred, such as UNAVAILABLE"},
    {"unsent", FIGURE, "integer", NULL,
        "number of requests that were due and never sent, because in_flight was reached during "
        "their timeout or because they would have been answered too late; they are not errors"},
    {"lost", FIGURE, "integer", NULL,
        "number of requests that were sent and had not ended a second after their timeout; not "
        "among requests, but included in percentiles"},
    {"wrong", FIGURE, "integer", NULL,
        "number of answers, at any time, that differ from the published values; 0 without "
        "--verify"},
    {"interrupted", FIGURE, "boolean", NULL, "whether Ctrl-C ended the run"},
    {"mean_us", FIGURE, "number", "us", "mean latency of answers only"},
    {"p50_us", FIGURE, "number", "us", "median latency of all requests that were due"},
    {"p90_us", FIGURE, "number", "us",
        "90th percentile of the latency of all requests that were due"},
    {"p99_us", FIGURE, "number", "us",
        "99th percentile of the latency of all requests that were due"},
    {"p999_us", FIGURE, "number", "us",
        "99.9th percentile of the latency of all requests that were due"},
    {"max_us", FIGURE, "number", "us", "highest latency of all requests that were due"},
    {"answered_p99_us", FIGURE, "number", "us", "99th percentile of the latency of answers only"},
    {"late_p99_us", FIGURE, "number", "us",
        "99th percentile of the time from when a request was due until it was sent, which is part "
        "of its latency"},
    {"answer_bytes", FIGURE, "number", "bytes", "mean number of bytes of values in an answer"},
    {"queue_us", FIGURE, "number", "us",
        "mean time from a request's arrival until its pooling began, as the server reports it"},
    {"compute_us", FIGURE, "number", "us", "mean time of pooling, as the server reports it"},
    {"servers", FIGURE, "array", NULL,
        "servers that the client knew at the end of the measured time. Each is an object: "
        "address; sent, requests that were sent there, resends and hedges included; share, its "
        "part of all requests that were sent, in per cent; failed, requests that it did not "
        "answer or refused; left_out, times that it got no requests for a while because most of "
        "them failed; connected, whether it was connected at the end"},
    {"resends", FIGURE, "integer", NULL, "times that requests were sent again after a failure"},
    {"hedges", FIGURE, "integer", NULL,
        "times that requests were sent to a second server as well, because the first one was "
        "late"},
    {"hedges_won", FIGURE, "integer", NULL, "hedges that were answered before the first attempt"},
    {"steps", SWEEP, "array", NULL, "figures of each step, in order"},
    {"saturated", SWEEP, "boolean", NULL,
        "whether the server fell behind in the last step: it answered less than 95 % of the "
        "requests due within the measured time"},
    {"kept_up_per_s", SWEEP, "number", "requests/s",
        "highest rate of a step that the server kept up with; 0: none"},
    {"best_per_s", SWEEP, "number", "answers/s", "highest requests_per_s of any step"},
    {"svg", SWEEP, "string or null", NULL, "file with the curve; null: it could not be written"},
};

json_t *eb_load_report_keys_json(void)
{
    json_t *object = json_object();
    for (size_t i = 0; object && i < sizeof report_keys / sizeof report_keys[0]; i++) {
        const struct report_key *key = &report_keys[i];
        json_t *facts = json_pack("{s:s, s:s, s:s?, s:s}", "kind", key->kind, "type", key->type,
            "unit", key->unit, "description", key->description);
        if (json_object_set_new(object, key->name, facts) != 0) {
            json_decref(object);
            object = NULL;
        }
    }
    return object;
}
