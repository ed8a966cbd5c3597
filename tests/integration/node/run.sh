#!/bin/bash
# Runs lookups with @grpc/grpc-js. Packages are installed below the build folder, once.
#     tests/integration/node/run.sh --embagd PATH --build DIR
# Prints "N passed, N failed" at the end. The exit status is 0 if none failed. It is also 0 if the
# packages are not available, and a line says so.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
install_seconds_max=180

embagd= build=
# shellcheck source=tests/lib/options.sh
source "$here/../../lib/options.sh"
read_options '--embagd PATH --build DIR' "$@"

modules=$build/node-modules
mkdir -p "$modules"
if ! cmp -s "$here/package-lock.json" "$modules/installed.json"; then
    cp "$here/package.json" "$here/package-lock.json" "$modules/"
    if ! timeout "$install_seconds_max" npm ci --prefix "$modules" --ignore-scripts --no-audit \
        --no-fund --loglevel=error --fetch-retries=1; then
        echo "grpc-js: skipped, its packages are not available from a registry"
        exit 0
    fi
    cp "$here/package-lock.json" "$modules/installed.json"
fi
NODE_PATH=$(cd "$modules" && pwd)/node_modules exec node "$here/grpc_js_test.js" "$embagd"
