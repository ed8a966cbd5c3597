#!/usr/bin/env bash
# Tests the Helm chart. Lints it, and renders it with its own values and with every option on.
# Validates manifests against the schemas of Kubernetes, and settings against embagd. helm and
# kubeconform are built below the build folder, once, and with EMBAG_LONG=1 also an API server of
# Kubernetes. Tests that need them are skipped without Go or a module proxy.
#     tests/integration/helm/run.sh --embagd PATH --build DIR
# Prints "N passed, N failed" at the end; the exit status is 0 if none failed.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
helm=helm.sh/helm/v3/cmd/helm@v3.16.4
kubeconform=github.com/yannh/kubeconform/cmd/kubeconform@v0.6.7
# An API server of Kubernetes, which is in the first of the modules below, and its store.
apiserver=k8s.io/kubernetes/cmd/kube-apiserver
etcd=go.etcd.io/etcd/server/v3@v3.5.16
# Modules that contain schemas: of Kubernetes' own kinds, the Prometheus operator and cert-manager.
schemas=(k8s.io/kubernetes@v1.31.4 github.com/prometheus-operator/prometheus-operator@v0.77.2
    github.com/cert-manager/cert-manager@v1.16.2)

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

# Builds the API server and its store. A module of its own requires them: Kubernetes' one replaces
# the modules that it shares with others by folders, which go install refuses.
install_server() {
    local kubernetes=${schemas[0]} folder
    folder=$(go env GOMODCACHE)/$kubernetes
    rm -rf "$build/server"
    mkdir "$build/server"
    cd "$build/server"
    {
        printf 'module embag.test/server\n\ngo 1.22.0\n\nrequire (\n%s\n%s\n)\n\nreplace (\n' \
            "${kubernetes/@/ }" "${etcd/@/ }"
        awk -v version="v0.${kubernetes#*@v1.}" '/=> .\/staging/ { print $1, "=>", $1, version }' \
            "$folder/go.mod"
        echo ')'
    } >go.mod
    printf '//go:build tools\n\npackage tools\n\nimport (\n\t_ "%s"\n\t_ "%s"\n)\n' \
        "$apiserver" "${etcd%@*}" >tools.go
    export GOFLAGS="$GOFLAGS -mod=mod"
    timeout 300 go mod tidy && timeout 900 go build -o "$build/bin/" "$apiserver" &&
        timeout 300 go build -o "$build/bin/etcd" "${etcd%@*}"
}

server="$etcd ${schemas[0]}"
if [[ -f $build/installed && ! (-f $build/server-installed &&
    $(<"$build/server-installed") == "$server") ]]; then
    rm -f "$build/server-installed"
    if [[ -z ${EMBAG_LONG:-} ]]; then
        echo "api-server: skipped, building it takes minutes: set EMBAG_LONG=1"
    elif (install_server); then
        echo "$server" >"$build/server-installed"
    elif has_modules; then
        echo "$0: the module proxy answers, but the API server could not be built" >&2
        exit 1
    else
        echo "api-server: skipped, its modules cannot be downloaded"
    fi
fi
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$here/../../lib
status=0
for program in helm_test.py parts_test.py api_test.py; do
    /usr/bin/python3 "$here/$program" "$embagd" "$build" || status=1
done
exit "$status"
