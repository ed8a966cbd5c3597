#!/bin/bash
# Tests the Open Inference Protocol with KServe's official client, which is installed below the
# build folder, once. Skipped if no package index answers, or if the index has no such package for
# this machine; a line says why.
#     tests/integration/kserve/run.sh --embagd PATH --build DIR
# Prints "N passed, N failed" at the end; the exit status is 0 if none failed.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
wanted=$(<"$here/requirements.txt")

embagd= build=
# shellcheck source=tests/lib/options.sh
source "$here/../../lib/options.sh"
# shellcheck source=tests/lib/pip.sh
source "$here/../../lib/pip.sh"
read_options '--embagd PATH --build DIR' "$@"

venv=$build/venv
if [[ ! -f $venv/installed || $(<"$venv/installed") != "$wanted" ]]; then
    rm -rf "$venv"
    mkdir -p "$build"
    /usr/bin/python3 -m venv "$venv"
    if ! install_packages kserve 200 "$venv/bin/pip" --no-deps --no-compile \
        -r "$here/requirements.txt"; then
        echo "0 passed, 0 failed"
        exit 0
    fi
    echo "$wanted" >"$venv/installed"
fi
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$here/../../lib
exec "$venv/bin/python" "$here/kserve_test.py" "$embagd"
