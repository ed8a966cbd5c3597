#!/bin/bash
# What is monitored, with Debian's Prometheus: promtool reads the metrics and tests the rules, and a
# real Prometheus scrapes a server under load and answers what the dashboard and the rules ask.
#     tests/integration/monitoring/run.sh --build DIR
# Ends with a line "N passed, N failed"; exit status 0 if none failed.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=
# shellcheck source=tests/lib/options.sh
source "$here/../../lib/options.sh"
read_options '--build DIR' "$@"
exec env PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$here/../../lib" \
    /usr/bin/python3 "$here/monitoring_test.py" "$build"
