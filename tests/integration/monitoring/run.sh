#!/bin/bash
# Tests the monitoring with Debian's Prometheus: promtool reads the metrics and tests the rules. A
# real Prometheus scrapes a server under load and evaluates the queries of dashboard and rules.
#     tests/integration/monitoring/run.sh --build DIR
# Prints "N passed, N failed" at the end; the exit status is 0 if none failed.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=
# shellcheck source=tests/lib/options.sh
source "$here/../../lib/options.sh"
read_options '--build DIR' "$@"
exec env PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$here/../../lib" \
    /usr/bin/python3 "$here/monitoring_test.py" "$build"
