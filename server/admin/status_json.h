/* The data of the status page: stats as JSON, which scripts may read too. All counts are since
 * the start; readers subtract one reading from the next. Members may be added.
 *
 *   {"phase": "loading" | "serving" | "draining", "taken_unix_ms": N, "started_unix_ms": N,
 *    "requests": [{"service": "embag.v1.EmbeddingBag", "method": "Lookup", "code": "OK",
 *                  "count": N}],             only if not 0; "" and "": unknown method
 *    "refusals": {"queue_full": N, ...},     by the names of EB_REFUSAL_LIST
 *    "counts": {"received_bytes": N, ...},   by the names of EB_COUNTERS_COUNT_LIST
 *    "stages": {"queue": HISTOGRAM, ...},    by the names of EB_STAGE_LIST
 *    "lag": HISTOGRAM,                       of all loops
 *    "loops": [{"connections": N, "receive_bytes": N, "answer_bytes": N}],
 *    "executor": {"threads": N, "idle_threads": N, "tiles": N, "busy_ns": N, "bytes_per_us": N,
 *                 "queued": [{"priority": "interactive" | "batch", "works": N, "bytes": N}]},
 *    "tables": [{"model": TEXT, "table": TEXT, "bags": N, "indices": N, "missing": N,
 *                "hot": [[ID, share of indices], ...]}],                     most first
 *    "models": [{"name": TEXT, "served": ID | null, "fault": TEXT | null,
 *                "versions": [{"number": ID, "state": "loading" | "ready" | "serving" | "retired" |
 *                              "failed", "fault": TEXT | null, "loaded_unix_ms": N (0 if not in
 *                              memory, and all below are 0), "load_ms": N, "tables": N,
 *                              "rows": N, "bytes": N, "pages": {"small": bytes, "huge_2m": bytes,
 *                              "huge_1g": bytes}}]}],                        highest first
 *    "loads": {"done": N, "failed": N, "freed": N, "evicted": N, "kept": N, "kept_bytes": N},
 *    "load": {"done_bytes": N, "total_bytes": N},       of the version being loaded; both 0 if none
 *    "repository": "readable" | "unreadable" | "unwatched",
 *    "route": {"not_ready": TEXT | null, "conflict": true | false,       only on a router
 *              "connected": N,
 *              "replicas_wanted": N, "flips": N, "back_outs": N, "unreached": N,
 *              "models": [{"name": TEXT, "behind": true | false,
 *                          "slots": [{"slot": "served" | "next" | "previous", "version": ID,
 *                                     "complete": true | false, "parts": N, "ready_parts": N,
 *                                     "replicas": [N, ...]}]}],       by part; of more than 64
 *                              parts, number 65 is the fewest of all others
 *              "peers": [{"address": TEXT, "part": N | null, "state": "connected" | "suspect" |
 *                         "ejected" | "lost", "latency_ns": N, "sent": N, "failed": N}]},
 *    "slow": [{"unix_ms": N, "method": TEXT, "model": TEXT, "peer": TEXT, "trace": TEXT,
 *              "span": TEXT, "code": "OK", "indices": N, "value_bytes": N,
 *              "ns": {"queue": N, ..., "send": 0, ...}}]}                    longest first
 *
 * The "total" of a slow request ends when its answer is ready. The "total" of "stages" ends when
 * the answer has been sent. ID is a number of 64 bits as a text. HISTOGRAM is
 * {"sum_ns": N, "ranges": [[END, COUNT], ...]}, with the ranges whose COUNT is not 0. END is the
 * end of a range in ns; it is 0 if the range has no end.
 * Thread: pure. Memory: the caller's. */
#pragma once

#include "server/stats/stats.h"

/* Returns the text, `*size` bytes on the heap, which the caller frees. Returns NULL if out of
 * memory. */
char *eb_status_json_write(const struct eb_stats *stats, size_t *size);
