#!/usr/bin/env bash
# Compares embag with servers that are quickly written in Python (python_peer.py): server CPU per
# unary lookup of one sample of dlrm-v2, and memory.
#   tests/bench/python_peers.sh [--build DIR] [--turns N] [--seconds S] [--scale N] [--onnx PYTHON]
# Servers run on one core and embag-load on another, with 32 calls in flight. The servers take
# turns, and figures are medians. --onnx is the path of a Python that has onnx, onnxruntime and
# grpcio; without it the ONNX server is left out.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=tests/bench/lib.sh
source tests/bench/lib.sh

build=build/release
turns=3
seconds=2
scale=400
onnx=
while (($# > 0)); do
    case $1 in
    -h | --help)
        show_help
        exit
        ;;
    --build) build=$(value "$@") ;;
    --turns) turns=$(count "$@") ;;
    --seconds) seconds=$(time_span "$@") ;;
    --scale) scale=$(count "$@") ;;
    --onnx) onnx=$(value "$@") ;;
    *) refuse "$1: unknown option" ;;
    esac
    shift 2
done
need protoc "$python" "$build"/{embagd,embag,embag-load}
work=$build/bench/python-peers
repository=$work/dlrm-v2-$scale
mkdir -p "$work/messages"
protoc --proto_path=proto --python_out="$work/messages" embag/v1/embedding_bag.proto
[[ -d $repository/dlrm-v2/1 ]] ||
    "$build/embag" make-model --workload dlrm-v2 --scale "$scale" "$repository" >/dev/null
pick_cores
processor

declare -A pids addresses
names=(embag numpy)

# start NAME COMMAND...: starts a server.
start() {
    local name=$1
    shift
    start_server "$work/$name.log" "$@"
    pids[$name]=$pid addresses[$name]=$address
}

# measure NAME: prints the server's CPU time per lookup in microseconds, and lookups per second.
measure() {
    local before after load=$work/load.json
    before=$(cpu_ns "${pids[$1]}")
    taskset -c "$load_cpu" "$build/embag-load" --workload dlrm-v2 --mode unary --json \
        --server "${addresses[$1]}" --in-flight 32 --duration "$seconds" --warmup 0 >"$load" ||
        fail "$1 did not answer"
    after=$(cpu_ns "${pids[$1]}")
    awk -v ns=$((after - before)) -v n="$(json_value answers "$load")" -v s="$seconds" \
        'BEGIN {printf "%.1f %.0f\n", ns / 1000 / n, n / s}'
}

export PYTHONPATH=$work/messages
start embag "$build/embagd" --model-repository "$repository" --listen 127.0.0.1:0 --loops 1 \
    --threads 1
start numpy "$python" tests/bench/python_peer.py "$repository/dlrm-v2/1" numpy
if [[ -n $onnx ]]; then
    start onnx "$onnx" tests/bench/python_peer.py "$repository/dlrm-v2/1" onnx
    names+=(onnx)
fi
for name in "${names[@]}"; do
    "$build/embag-load" --workload dlrm-v2 --mode unary --server "${addresses[$name]}" --verify \
        --in-flight 4 --duration 0.3 --warmup 0 >"$work/verify.log" 2>&1 ||
        fail "$name gave wrong answers: see $work/verify.log"
    : >"$work/$name.figures"
done
for ((turn = 0; turn < turns; turn++)); do
    for name in "${names[@]}"; do
        measure "$name" >>"$work/$name.figures"
    done
done
for name in "${names[@]}"; do
    echo "$name: $(awk '{print $1}' "$work/$name.figures" | median) us of CPU per lookup," \
        "$(awk '{print $2}' "$work/$name.figures" | median) lookups/s," \
        "$(rss_mib "${pids[$name]}") MiB"
done
