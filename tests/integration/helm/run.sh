#!/usr/bin/env bash
# Tests the Helm chart. Lints it, and renders it with its own values and with every option on.
# Validates manifests against the schemas of Kubernetes, and settings against embagd. helm and
# kubeconform are built below the build folder, once. Tests that need them are skipped without Go or
# a module proxy.
#     tests/integration/helm/run.sh --embagd PATH --build DIR
# Prints "N passed, N failed" at the end; the exit status is 0 if none failed.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
helm=helm.sh/helm/v3/cmd/helm@v3.16.4
kubeconform=github.com/yannh/kubeconform/cmd/kubeconform@v0.6.7
# Modules that contain schemas: of Kubernetes' own kinds, and of the Prometheus operator.
schemas=(k8s.io/kubernetes@v1.31.4 github.com/prometheus-operator/prometheus-operator@v0.77.2)

embagd= build=
# shellcheck source=tests/lib/options.sh
source "$here/../../lib/options.sh"
read_options '--embagd PATH --build DIR' "$@"
embagd=$(realpath "$embagd")

mkdir -p "$build/bin"
build=$(realpath "$build")
export GOBIN=$build/bin GOFLAGS=-buildvcs=false PATH=$PATH:/usr/local/go/bin

# Returns whether Go is installed and can fetch the version that a module requires.
has_go() { command -v go >/dev/null && [[ -n $(go env GOTOOLCHAIN) ]]; }

# Returns whether a module proxy answers, bypassing the cache.
has_modules() {
    local cache status=0
    cache=$(mktemp -d)
    GOMODCACHE=$cache timeout 60 go list -m "${helm/\/cmd\/helm/}" || status=$?
    rm -rf "$cache"
    return "$status"
}

install_tools() {
    cd "$build"
    timeout 900 go install "$helm" && timeout 300 go install "$kubeconform" &&
        timeout 300 go mod download -json "${schemas[@]}" >modules.json
}

if [[ ! -f $build/installed || $(<"$build/installed") != "$helm $kubeconform ${schemas[*]}" ]]; then
    rm -f "$build/installed"
    if has_go; then
        if (install_tools); then
            echo "$helm $kubeconform ${schemas[*]}" >"$build/installed"
        elif has_modules; then
            echo "$0: the module proxy answers, but helm and kubeconform could not be built" >&2
            exit 1
        fi
    fi
fi
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$here/../../lib
exec /usr/bin/python3 "$here/helm_test.py" "$embagd" "$build"
