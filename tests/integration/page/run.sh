#!/bin/bash
# Tests the status page in a headless Chromium, with made-up servers, and with embagd under load.
#     tests/integration/page/run.sh --build DIR [TEST...]
# DIR holds the programs; screenshots of the page remain in DIR/page for inspection.
# Prints "N passed, N failed" at the end; the exit status is 0 if none failed.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if [[ ${1:-} != --build || -z ${2:-} ]]; then
    echo "usage: $0 --build DIR [TEST...]" >&2
    exit 2
fi
build=$2
shift 2
if ! command -v chromium >/dev/null; then
    echo "$0: chromium is not installed: deploy/install-packages.sh --all installs it" >&2
    exit 1
fi
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$here/../../lib
exec /usr/bin/python3 "$here/page_test.py" --embagd "$build/embagd" --embag "$build/embag" \
    --embag-load "$build/embag-load" --pictures "$build/page" "$@"
