#!/usr/bin/env bash
# What the service costs and how calm it is: the figures that embagd is held to, in one table.
#   tests/bench/service.sh [--build DIR] [--rounds N] [--seconds S] [--overload-seconds S]
#       [--scale N] [--rm2-scale N] [FIGURE...]      --help says what they are
# Figures, all unless given:
#   overhead   server CPU per dlrm-v2 lookup above the bare kernels and a raw echo of the same
#              bytes, and above both in one process
#   small      server CPU per lookup of one bag of 20 cached rows
#   batches    requests of 128 samples against the kernels alone, and against these and a bare
#              write; what there can be is told by kernels and echo in one process
#   wide       server CPU per lookup of 26, 200 and 856 features at once, as one group against
#              queries
#   latency    p99 / p50 of an open load at 70 % of saturation
#   overload   goodput, late answers and memory at twice saturation, of clients that withhold what
#              would come late; goodput of clients that do not
#   idle       memory of 10 000 idle connections, and what busy ones notice of them
#   single     one lookup at a time above an echo of the same bytes through libuv
#   disturbed  others' p99 beside a slow reader, cancels and a flood
# The server runs on one core, the load on another; what is compared takes turns. Needs
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
