#!/usr/bin/env bash
# Measures models that change, are many, or are large, and prints one table of figures.
#   tests/bench/models.sh [--build DIR] [--work DIR] [--rounds N] [--seconds S] [--rows N]
#       [FIGURE...]                    --help lists all options
# Figures, by default all:
#   swap   p99 of a verified open load at half of saturation while a new version arrives each second
#   many   100 models of 10 tables
#   wide   a model of 1 000 tables
#   large  100 M keyed rows of 16 int8 codes, from npy and packed: needs 12 GB for temporary files
#   keys   rows looked up by key against rows looked up by number
#   pack   embag pack and embag check
# Figures that need more memory or disk than there is are skipped, and the table says so. If there
# are at least three cores, the load has one of its own. Needs deploy/install-packages.sh --tests
# and a release build.
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
