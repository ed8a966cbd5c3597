#!/usr/bin/env bash
# Compares embag with a grpc++ callback server that pools with a plain loop: the server's CPU time
# per unary call on 26 tables (dlrm-v2, one sample).
#   tests/bench/unary_cpu.sh [--build DIR] [--pairs N] [--requests N] [--scale N]
# Both servers run on one core, and h2load on another with 32 calls in flight. The servers take
# turns: a pair is one run of each server. Prints each pair, the medians and the median ratio. Needs
# deploy/install-packages.sh --all and a release build with -DEMBAG_BENCH_PEERS=ON.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=tests/bench/lib.sh
source tests/bench/lib.sh

build=build/release
pairs=7
requests=100000
scale=200
while (($# > 0)); do
    case $1 in
    -h | --help)
        show_help
        exit
        ;;
    --build) build=$(value "$@") ;;
    --pairs) pairs=$(count "$@") ;;
    --requests) requests=$(count "$@") ;;
    --scale) scale=$(count "$@") ;;
    *) refuse "$1: unknown option" ;;
    esac
    shift 2
done
work=$build/bench
need h2load protoc "$python" "$build"/{embagd,embag,embag-peer-grpcpp}
mkdir -p "$work/messages"
pick_cores

# answered_bytes LOG: prints the bytes of all answers, without headers, from h2load's log.
answered_bytes() { sed -n 's/^traffic: .*(\([0-9]*\)) data$/\1/p' "$1"; }

# measure PID ADDRESS CONNECTIONS STREAMS: prints the server's CPU time per call in microseconds,
# and calls/s.
measure() {
    local before after answered rate log=$work/h2load.log
    before=$(cpu_ticks "$1")
    taskset -c "$load_cpu" h2load -n "$requests" -c "$3" -m "$4" -w 30 -W 30 -d "$work/request" \
        -H 'content-type: application/grpc' -H 'te: trailers' \
        "http://$2/embag.v1.EmbeddingBag/Lookup" >"$log" 2>&1
    after=$(cpu_ticks "$1")
    if ! grep -q "$requests succeeded, 0 failed, 0 errored" "$log"; then
        cat "$log" >&2
        fail "calls to $2 failed"
    fi
    # h2load counts a gRPC error as a success too, but an error has no data.
    answered=$(answered_bytes "$log")
    if ((${answered:-0} < requests * answer_bytes)); then
        cat "$log" >&2
        fail "$2 sent ${answered:-no} bytes of answers, expected $requests times $answer_bytes"
    fi
    rate=$(awk '/^finished in/ {printf "%.0f", $4}' "$log")
    echo "$(cpu_us $((after - before)) "$requests") $rate"
}

# compare CONNECTIONS STREAMS: measures the pairs and prints the medians.
compare() {
    local embag_us embag_rate peer_us peer_rate figures=$work/figures
    echo "$1 connection(s) x $2 calls in flight, $requests calls a run, CPU us per call (calls/s)"
    : >"$figures"
    for ((pair = 1; pair <= pairs; pair++)); do
        read -r embag_us embag_rate < <(measure "$embag_pid" "$embag_address" "$1" "$2")
        read -r peer_us peer_rate < <(measure "$peer_pid" "$peer_address" "$1" "$2")
        [[ -n $embag_us && -n $peer_us ]] || fail "no figures"
        echo "$embag_us $peer_us $embag_rate $peer_rate" >>"$figures"
        echo "  pair $pair: embag $embag_us ($embag_rate)   grpc++ $peer_us ($peer_rate)"
    done
    echo "  median: embag $(awk '{print $1}' "$figures" | median)" \
        "  grpc++ $(awk '{print $2}' "$figures" | median)" \
        "  embag / grpc++ $(awk '{printf "%.3f\n", $1 / $2}' "$figures" | median)"
}

model=$work/models/dlrm-v2/1
[[ -d $model ]] ||
    "$build/embag" make-model --workload dlrm-v2 --scale "$scale" "$work/models" >/dev/null
protoc --proto_path=proto --python_out="$work/messages" embag/v1/embedding_bag.proto
start_server "$work/embagd.log" "$build/embagd" --model-repository "$work/models" \
    --listen 127.0.0.1:0 --http-listen none --loops 1 --threads 1
embag_pid=$pid embag_address=$address
start_server "$work/peer.log" "$build/embag-peer-grpcpp" "$model" 0
peer_pid=$pid peer_address=$address

processor
sizes=$(PYTHONDONTWRITEBYTECODE=1 "$python" tests/bench/sample_request.py "$work/messages" \
    "$model" "$work/request" "$embag_address" "$peer_address")
echo "$sizes"
[[ $sizes =~ answer\ ([1-9][0-9]*)\ bytes ]] || fail "the size of an answer is unknown: $sizes"
answer_bytes=$((BASH_REMATCH[1] + 5)) # with gRPC's prefix
measure "$embag_pid" "$embag_address" 1 32 >/dev/null
measure "$peer_pid" "$peer_address" 1 32 >/dev/null
compare 1 32
compare 4 8
