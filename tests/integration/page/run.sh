#!/bin/bash
# The status page in a headless Chromium: of servers of the tests' making, and of embagd under load.
#     tests/integration/page/run.sh --build DIR [TEST...]
# DIR holds the programs; pictures of the page stay in DIR/page, to be looked at.
# Ends with a line "N passed, N failed"; exit status 0 if none failed.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if [[ ${1:-} != --build || -z ${2:-} ]]; then
    echo "usage: $0 --build DIR [TEST...]" >&2
    exit 2
fi
build=$2
shift 2
if ! command -v chromium >/dev/null; then
    echo "$0: there is no chromium: deploy/install-packages.sh --all installs it" >&2
    exit 1
fi
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$here/../../lib
exec /usr/bin/python3 "$here/page_test.py" --embagd "$build/embagd" --embag "$build/embag" \
    --embag-load "$build/embag-load" --pictures "$build/page" "$@"
