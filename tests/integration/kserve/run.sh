#!/bin/bash
# The Open Inference Protocol with KServe's official client, which is installed below the build
# folder, once, and skipped where no package index answers.
#     tests/integration/kserve/run.sh --embagd PATH --build DIR
# Ends with a line "N passed, N failed"; exit status 0 if none failed.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
wanted=$(<"$here/requirements.txt")

embagd= build=
# shellcheck source=tests/lib/options.sh
source "$here/../../lib/options.sh"
read_options '--embagd PATH --build DIR' "$@"

venv=$build/venv
if [[ ! -f $venv/installed || $(<"$venv/installed") != "$wanted" ]]; then
    rm -rf "$venv"
    mkdir -p "$build"
    if /usr/bin/python3 -m venv "$venv" &&
        timeout 200 "$venv/bin/pip" install -q --no-deps --no-compile \
            -r "$here/requirements.txt"; then
        echo "$wanted" >"$venv/installed"
    fi
fi
if [[ ! -f $venv/installed ]]; then
    echo "kserve: skipped, no package index answers"
    echo "0 passed, 0 failed"
    exit 0
fi
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$here/../../lib
exec "$venv/bin/python" "$here/kserve_test.py" "$embagd"
