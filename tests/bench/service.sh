#!/usr/bin/env bash
# Measures the cost and the latencies of the service: the figures that have targets, in one table.
#   tests/bench/service.sh [--build DIR] [--rounds N] [--seconds S] [--overload-seconds S]
#       [--scale N] [--rm2-scale N] [FIGURE...]      --help describes the options
# Figures, by default all:
#   overhead   server CPU per dlrm-v2 lookup, minus the kernels alone and a raw echo of the same
#              bytes, and minus both in one process
#   small      server CPU per lookup of one bag of 20 cached rows
#   batches    requests of 128 samples against the kernels alone, and against the kernels plus a
#              bare write; the limit is that of kernels and echo in one process
#   wide       server CPU per lookup of 26, 200 and 856 features at once, as one group against
#              queries
#   latency    p99 / p50 of an open load at 70 % of saturation
#   overload   goodput, late answers and memory at twice saturation, with clients that do not send
#              requests that would be late; goodput with clients that send all
#   idle       memory of 10 000 idle connections, and their effect on busy ones
#   single     latency of one lookup at a time, minus an echo of the same bytes through libuv
#   disturbed  p99 of others during a slow reader, cancels and a flood
# The server runs on one core and the load on another. Whatever is compared takes turns. Needs
# deploy/install-packages.sh --all and a release build with -DEMBAG_BENCH_PEERS=ON.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=tests/bench/lib.sh
. tests/bench/lib.sh

read_build "$@"
need protoc taskset "$python" \
    "$build"/{embagd,embag,embag-load,embag-bench,embag-echo-server,embag-echo-load}

export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=tests/lib:tests/bench
mkdir -p "$build/bench/messages"
protoc --proto_path=proto --python_out="$build/bench/messages" embag/v1/embedding_bag.proto
processor
exec "$python" tests/bench/service_figures.py "$@"
