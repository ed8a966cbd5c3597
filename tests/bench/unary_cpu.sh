#!/usr/bin/env bash
# CPU time of the server per unary call of 26 tables (dlrm-v2, one sample), embag beside a grpc++
# callback server that does the same with a plain loop.
#   tests/bench/unary_cpu.sh [--build DIR] [--pairs N] [--requests N] [--scale N]
# Both servers run on one core, h2load on another with 32 calls in flight. The servers take turns:
# each pair is one run of either. Prints each pair, the medians and their ratio. Needs
# deploy/install-packages.sh --all and a release build with -DEMBAG_BENCH_PEERS=ON.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

build=build/release
pairs=7
requests=100000
scale=200
while (($# > 0)); do
    case $1 in
    --build) build=${2:?} ;;
    --pairs) pairs=${2:?} ;;
    --requests) requests=${2:?} ;;
    --scale) scale=${2:?} ;;
    *)
        echo "usage: unary_cpu.sh [--build DIR] [--pairs N] [--requests N] [--scale N]" >&2
        exit 2
        ;;
    esac
    shift 2
done
python=/usr/bin/python3
work=$build/bench
servers=()
trap 'for pid in "${servers[@]}"; do kill "$pid" 2>/dev/null || true; done; wait' EXIT

fail() {
    printf 'unary_cpu.sh: %s\n' "$*" >&2
    exit 1
}

# What is missing must show before a model of some 500 MB is written.
for tool in h2load protoc "$python" "$build"/{embagd,embag,embag-peer-grpcpp}; do
    command -v "$tool" >/dev/null || fail "$tool is missing; this installs and builds all it needs:
  deploy/install-packages.sh --all
  cmake --fresh --preset release -DEMBAG_BENCH_PEERS=ON && cmake --build build/release"
done

mkdir -p "$work/messages"

# The CPUs this process may use, the first two of them for servers and load.
read -r -a cpus < <("$python" -c 'import os; print(*sorted(os.sched_getaffinity(0)))')
server_cpu=${cpus[0]}
load_cpu=${cpus[1]:-$server_cpu}
[[ $server_cpu != "$load_cpu" ]] || echo "one core only: servers and load share it"

# start_server LOG COMMAND...: leaves its pid in `pid` and its address in `address`.
start_server() {
    local log=$1
    shift
    : >"$log"
    taskset -c "$server_cpu" "$@" >/dev/null 2>>"$log" &
    pid=$!
    servers+=("$pid")
    for ((tenths = 0; tenths < 600; tenths++)); do
        if grep -q 'event=ready' "$log"; then
            address=$(sed -n '/event=listening/s/.*\(127\.0\.0\.1:[0-9]*\).*/\1/p' "$log")
            return 0
        fi
        [[ -d /proc/$pid ]] || break
        sleep 0.1
    done
    cat "$log" >&2
    fail "$1 did not start"
}

# Clock ticks of CPU that a process has used, its ended threads included.
cpu_ticks() { sed 's/.*) //' "/proc/$1/stat" | awk '{print $12 + $13}'; }

# Bytes of all answers that h2load has logged, without headers.
answered_bytes() { sed -n 's/^traffic: .*(\([0-9]*\)) data$/\1/p' "$1"; }

# measure PID ADDRESS CONNECTIONS STREAMS: CPU microseconds of the server per call, and calls/s.
measure() {
    local before after answered log=$work/h2load.log
    before=$(cpu_ticks "$1")
    taskset -c "$load_cpu" h2load -n "$requests" -c "$3" -m "$4" -w 30 -W 30 -d "$work/request" \
        -H 'content-type: application/grpc' -H 'te: trailers' \
        "http://$2/embag.v1.EmbeddingBag/Lookup" >"$log" 2>&1
    after=$(cpu_ticks "$1")
    if ! grep -q "$requests succeeded, 0 failed, 0 errored" "$log"; then
        cat "$log" >&2
        fail "calls to $2 failed"
    fi
    # To h2load a gRPC error has succeeded as well, but it carries no data.
    answered=$(answered_bytes "$log")
    if ((${answered:-0} < requests * answer_bytes)); then
        cat "$log" >&2
        fail "$2 sent ${answered:-no} bytes of answers, not $requests times $answer_bytes"
    fi
    awk -v ticks="$((after - before))" -v hz="$(getconf CLK_TCK)" -v n="$requests" '
        /^finished in/ {rate = $4} END {printf "%.2f %.0f\n", ticks / hz / n * 1e6, rate}' "$log"
}

median() { sort -g | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }

# compare CONNECTIONS STREAMS: pairs in turn, then the medians.
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
    --listen 127.0.0.1:0 --loops 1 --threads 1
embag_pid=$pid embag_address=$address
start_server "$work/peer.log" "$build/embag-peer-grpcpp" "$model" 0
peer_pid=$pid peer_address=$address

grep -m1 'model name' /proc/cpuinfo | sed 's/.*: //' || true
sizes=$(PYTHONDONTWRITEBYTECODE=1 "$python" tests/bench/sample_request.py "$work/messages" \
    "$model" "$work/request" "$embag_address" "$peer_address")
echo "$sizes"
[[ $sizes =~ answer\ ([1-9][0-9]*)\ bytes ]] || fail "the size of an answer is not known: $sizes"
answer_bytes=$((BASH_REMATCH[1] + 5)) # with gRPC's prefix
measure "$embag_pid" "$embag_address" 1 32 >/dev/null
measure "$peer_pid" "$peer_address" 1 32 >/dev/null
compare 1 32
compare 4 8
