#!/usr/bin/env bash
# The Helm chart: linted, rendered with its own values and with every option on, the manifests held
# against the schemas of Kubernetes, the settings against embagd. helm and kubeconform are built
# below the build folder, once, and skipped where there is no Go or no module proxy answers.
#     tests/integration/helm/run.sh --embagd PATH --build DIR
# Ends with a line "N passed, N failed"; exit status 0 if none failed.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
helm=helm.sh/helm/v3/cmd/helm@v3.16.4
kubeconform=github.com/yannh/kubeconform/cmd/kubeconform@v0.6.7
# Modules for the schemas that they hold: of Kubernetes' own kinds, and of Prometheus' operator.
schemas=(k8s.io/kubernetes@v1.31.4 github.com/prometheus-operator/prometheus-operator@v0.77.2)

embagd= build=
# shellcheck source=tests/lib/options.sh
source "$here/../../lib/options.sh"
read_options '--embagd PATH --build DIR' "$@"
embagd=$(realpath "$embagd")

mkdir -p "$build/bin"
build=$(realpath "$build")
export GOBIN=$build/bin GOFLAGS=-buildvcs=false PATH=$PATH:/usr/local/go/bin

# That fetches the Go which a module asks for.
has_go() { command -v go >/dev/null && [[ -n $(go env GOTOOLCHAIN) ]]; }

# Whether a module proxy answers, not a cache.
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
            echo "$0: the module proxy answers, and helm and kubeconform cannot be built" >&2
            exit 1
        fi
    fi
fi
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$here/../../lib
exec /usr/bin/python3 "$here/helm_test.py" "$embagd" "$build"
