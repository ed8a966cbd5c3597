#!/usr/bin/env bash
# Compares embag with other servers: a grpc++ callback server that pools with a plain loop, the same
# server with embag's kernels (and with FBGEMM's, if the build has them), and Redis, from which a
# client fetches rows with MGET and pools them itself.
#   tests/bench/compare.sh [OPTION]... [cpu] [rows] [curves]
#     cpu      one sample of dlrm-v2: server CPU per lookup, bytes per answer, memory
#     rows     1, 10 and 100 rows of one table, against Redis: rows per second of a server's core
#     curves   latency against rate, open loop, for dlrm-v2 and for rows
#   It runs all three unless some are named.
#   --build DIR          release build with -DEMBAG_BENCH_PEERS=ON; default build/release
#   --turns N            runs of each server, in turns; default 3
#   --seconds S          length of each run; default 1.5
#   --step-seconds S     length of each rate of a curve; default 1
#   --scale N            divisor of the rows of dlrm-v2; default 400, which is 250 MiB
#   --rows-scale N       divisor of the 16 M rows of the workload rows; default 32, which is 122 MiB
#   --out DIR            folder for compare.jsonl, compare.md and compare.svg; default
#                        BUILD/bench/compare
# Servers run on one core and the load on another, with 32 requests in flight on one connection
# unless noted otherwise. Takes about 3 minutes. Prints the tables of compare.md.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=tests/bench/lib.sh
source tests/bench/lib.sh

build=build/release
out=
turns=3
seconds=1.5
step_seconds=1
scale=400
rows_scale=32
parts=()
while (($# > 0)); do
    case $1 in
    cpu | rows | curves)
        parts+=("$1")
        shift
        continue
        ;;
    -h | --help)
        show_help
        exit
        ;;
    --build) build=$(value "$@") ;;
    --turns) turns=$(count "$@") ;;
    --seconds) seconds=$(time_span "$@") ;;
    --step-seconds) step_seconds=$(time_span "$@") ;;
    --scale) scale=$(count "$@") ;;
    --rows-scale) rows_scale=$(count "$@") ;;
    --out) out=$(value "$@") ;;
    *) refuse "$1: expected an option, or one of cpu, rows, curves" ;;
    esac
    shift 2
done
((${#parts[@]} > 0)) || parts=(cpu rows curves)
work=$build/bench/compare
out=${out:-$work}
results=$out/compare.jsonl
need redis-server "$python" "$build"/{embagd,embag,embag-load,embag-peer-grpcpp,embag-peer-redis}
mkdir -p "$work" "$out"
pick_cores

wants() { [[ " ${parts[*]} " == *" $1 "* ]]; }

# The servers' processes and addresses, by name.
declare -A pids addresses
in_flight=32

# make_model WORKLOAD SCALE: makes a model unless it exists. Sets `repository`.
make_model() {
    repository=$work/$1-$2
    [[ -d $repository/$1/1 ]] || {
        note "writing $1 at scale $2"
        "$build/embag" make-model --workload "$1" --scale "$2" "$repository" >/dev/null 2>&1 ||
            fail "this failed: $build/embag make-model --workload $1 --scale $2 $repository"
    }
}

start_embag() {
    start_server "$work/embag.log" "$build/embagd" --model-repository "$repository" \
        --listen 127.0.0.1:0 --http-listen none --loops 1 --threads 1
    pids[embag]=$pid addresses[embag]=$address
}

# start_grpcpp NAME MODE
start_grpcpp() {
    start_server "$work/grpcpp-$2.log" "$build/embag-peer-grpcpp" "$repository/dlrm-v2/1" 0 "$2"
    pids[$1]=$pid addresses[$1]=$address
}

# Starts Redis without persistence, so that it writes no files and does not fork.
start_redis() {
    local port
    port=$("$python" -c 'import socket
with socket.socket() as s:
    s.bind(("127.0.0.1", 0))
    print(s.getsockname()[1])')
    launch "$work/redis.log" redis-server --bind 127.0.0.1 --port "$port" --save '' \
        --appendonly no --daemonize no
    wait_ready "$work/redis.log" 'Ready to accept connections'
    pids[Redis]=$pid addresses[Redis]=127.0.0.1:$port
    note "filling Redis"
    "$build/embag-peer-redis" --server "${addresses[Redis]}" --fill --scale "$rows_scale" \
        2>"$work/fill.log" || fail "filling Redis failed: see $work/fill.log"
}

stop_all() {
    local name
    for name in "${!pids[@]}"; do
        stop_server "${pids[$name]}"
    done
    pids=() addresses=()
}

# try NAME MODE ADDRESS OPTION...: runs a load on a server and writes its figures to
# $work/load.json. Fails if there was no correct answer.
try() {
    local name=$1 mode=$2 address=$3 command
    shift 3
    command=("$build/embag-load" --workload "$workload" --mode "$mode" --json)
    [[ $name != Redis ]] || command=("$build/embag-peer-redis" --scale "$rows_scale")
    taskset -c "$load_cpu" "${command[@]}" --server "$address" "$@" >"$work/load.json" \
        2>"$work/load.log"
}

# ask NAME MODE ADDRESS OPTION...: does the same as try, but ends the script if any request fails.
ask() {
    try "$@" || {
        cat "$work/load.log" "$work/load.json" >&2
        fail "$1 $2 did not answer, or its answers were wrong"
    }
    [[ $(json_value errors "$work/load.json") == 0 ]] ||
        fail "$1 $2 returned errors: see $work/load.json"
}

# record PART NAME MODE KEY VALUE: appends a line to the results.
record() {
    {
        printf '{"part": "%s", "workload": "%s", "server": "%s", "mode": "%s", ' "$1" "$workload" \
            "$2" "$3"
        printf '"%s": %s, "rss_mib": %s, "load": ' "$4" "$5" "$(rss_mib "${pids[$2]}")"
        tr -d '\n' <"$work/load.json"
        echo '}'
    } >>"$results"
}

# verify NAME MODE: checks that the server's answers are correct.
verify() {
    ask "$1" "$2" "${addresses[$1]}" --verify --duration 0.3 --warmup 0
}

# measure NAME MODE OPTION...: records the server's CPU time per answer. There is no warm-up, so all
# requests count.
measure() {
    local name=$1 mode=$2 before after cpu
    shift 2
    before=$(cpu_ns "${pids[$name]}")
    ask "$name" "$mode" "${addresses[$name]}" --in-flight "$in_flight" --duration "$seconds" \
        --warmup 0 "$@"
    after=$(cpu_ns "${pids[$name]}")
    cpu=$(awk -v ns=$((after - before)) -v n="$(json_value answers "$work/load.json")" \
        'BEGIN {printf "%.3f", ns / 1000 / n}')
    record cpu "$name" "$mode" cpu_us "$cpu"
    note "  $name $mode${*:+ }$*: $cpu us"
}

# count_bytes NAME MODE OPTION...: records the bytes from the server per answer, including those of
# the protocol.
count_bytes() {
    local name=$1 mode=$2 relay bytes answers
    shift 2
    start_server "$work/relay.log" "$python" tests/bench/byte_relay.py "${addresses[$name]}"
    relay=$pid
    ask "$name" "$mode" "$address" --in-flight "$in_flight" --duration 0.5 --warmup 0 "$@"
    stop_server "$relay"
    bytes=$(sed -n 's/.*from_server=//p' "$work/relay.log")
    answers=$(json_value answers "$work/load.json")
    record bytes "$name" "$mode" wire_bytes $((bytes / answers))
}

# The servers and modes to compare, as NAME:MODE.
dlrm_curves=(embag:stream embag:unary grpc++:stream grpc++:unary)
dlrm=("${dlrm_curves[@]}" grpc++-kernels:stream grpc++-kernels:unary)
rows=(embag:stream Redis:mget)
rows_bags=(1 10 100)
curve_bags=10
! grep -q '^EMBAG_PEER_FBGEMM:PATH=.' "$build/CMakeCache.txt" ||
    dlrm+=(grpc++-FBGEMM:stream grpc++-FBGEMM:unary)

start_dlrm() {
    local one
    workload=dlrm-v2
    make_model dlrm-v2 "$scale"
    start_embag
    start_grpcpp grpc++ plain
    if wants cpu; then
        start_grpcpp grpc++-kernels kernels
        [[ " ${dlrm[*]} " != *FBGEMM* ]] || start_grpcpp grpc++-FBGEMM fbgemm
    fi
    for one in "${dlrm[@]}"; do
        [[ -z ${pids[${one%:*}]:-} ]] || verify "${one%:*}" "${one#*:}"
    done
}

start_rows() {
    workload=rows
    make_model rows "$rows_scale"
    start_embag
    start_redis
    verify embag stream
    verify Redis mget
}

compare_cpu() {
    local turn one
    for ((turn = 1; turn <= turns; turn++)); do
        note "dlrm-v2, turn $turn of $turns"
        for one in "${dlrm[@]}"; do
            measure "${one%:*}" "${one#*:}"
        done
    done
    note "dlrm-v2, bytes"
    for one in "${dlrm_curves[@]}"; do
        count_bytes "${one%:*}" "${one#*:}"
    done
}

compare_rows() {
    local turn one bags
    for ((turn = 1; turn <= turns; turn++)); do
        note "rows, turn $turn of $turns"
        for bags in "${rows_bags[@]}"; do
            for one in "${rows[@]}"; do
                measure "${one%:*}" "${one#*:}" --samples "$bags"
            done
        done
    done
    note "rows, bytes"
    for bags in "${rows_bags[@]}"; do
        for one in "${rows[@]}"; do
            count_bytes "${one%:*}" "${one#*:}" --samples "$bags"
        done
    done
}

# kept_up: prints true if at least 95 % of the last run's requests were answered during the run, or
# were in flight at its end. Prints false otherwise. At most 5 % count as in flight.
kept_up() {
    "$python" -c '
import json, sys
load = json.load(open(sys.argv[1]))
due = load["requests"]
answered = load["requests_per_s"] * load["seconds"]
on_their_way = min(load["mean_us"] / 1e6 * due / load["seconds"], due / 20)
print("true" if due > 0 and answered + on_their_way >= 0.95 * due else "false")' "$work/load.json"
}

# measure_rate NAME MODE RATE OPTION...: runs an open load, and repeats it if the server did not
# keep up, because something else may have used the core. Sets `kept` to true or false. An
# overloaded server may have no answer in time.
measure_rate() {
    local name=$1 mode=$2 rate=$3 attempt
    shift 3
    for attempt in 1 2; do
        try "$name" "$mode" "${addresses[$name]}" --rate "$rate" --duration "$step_seconds" \
            --warmup 0.3 "$@" || true
        [[ -s $work/load.json ]] || fail "$name could not be measured: see $work/load.log"
        kept=$(kept_up)
        [[ $kept == false ]] || break
    done
    record curve "$name" "$mode" kept_up "$kept"
}

# compare_curves BAGS NAME:MODE...: measures rates that rise beyond the rate of the first server in
# a closed loop. A server that does not keep up with a rate is left out of higher ones.
compare_curves() {
    local bags=$1 top percent rate one kept left=()
    shift
    ask "${1%:*}" "${1#*:}" "${addresses[${1%:*}]}" --in-flight "$in_flight" \
        --duration "$step_seconds" --warmup 0.3 --samples "$bags"
    top=$(json_value requests_per_s "$work/load.json")
    for percent in 5 15 30 45 60 75 90 105 120 150 200; do
        rate=$(awk -v top="$top" -v percent="$percent" 'BEGIN {printf "%.0f", top * percent / 100}')
        note "$workload, $rate requests/s: $*"
        left=()
        for one in "$@"; do
            measure_rate "${one%:*}" "${one#*:}" "$rate" --samples "$bags"
            [[ $kept == false ]] || left+=("$one")
        done
        ((${#left[@]} > 0)) || return 0
        set -- "${left[@]}"
    done
}

: >"$results"
if wants cpu || wants curves; then
    start_dlrm
    ! wants cpu || compare_cpu
    ! wants curves || compare_curves 1 "${dlrm_curves[@]}"
    stop_all
fi
if wants rows || wants curves; then
    start_rows
    ! wants rows || compare_rows
    ! wants curves || compare_curves "$curve_bags" "${rows[@]}"
    stop_all
fi
PYTHONDONTWRITEBYTECODE=1 "$python" tests/bench/compare_report.py "$results" "$out" \
    "$(processor), $(nproc) CPUs, dlrm-v2 at scale $scale, rows at scale $rows_scale," \
    "$turns turns of $seconds s"
