#!/usr/bin/env bash
# What models cost that change, are many, or are large: one table of figures.
#   tests/bench/models.sh [--build DIR] [--work DIR] [--rounds N] [--seconds S] [--rows N]
#       [FIGURE...]                    --help has the rest
# Figures, all unless given:
#   swap   p99 of a verified open load at half of saturation while a version comes each second
#   many   100 models of 10 tables
#   wide   a model of 1 000 tables
#   large  100 M keyed rows of 16 int8 codes, from npy and packed: 12 GB of files for the time
#   keys   rows looked up by key against rows looked up by number
#   pack   embag pack and embag check
# What memory or disk is too small for is skipped, and the table says so. Where there are three
# cores the load has one of its own. Needs deploy/install-packages.sh --tests and a release build.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=tests/bench/lib.sh
. tests/bench/lib.sh

read_build "$@"
need protoc taskset "$python" "$build"/{embagd,embag,embag-load,embag-bench}

messages=$build/bench/messages
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=tests/lib:tests/bench:$messages
mkdir -p "$messages"
protoc --proto_path=proto --python_out="$messages" embag/v1/embedding_bag.proto \
    embag/v1/model_admin.proto
processor
exec "$python" tests/bench/models_figures.py "$@"
