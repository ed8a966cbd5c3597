#!/usr/bin/env bash
# Installs the Python package into clean virtual environments below the build folder and tests it:
# with Debian's packages, and with those of constraints.txt if a package index answers.
#     tests/integration/python/run.sh --embagd PATH --embag PATH --build DIR [--quick]
# Each environment's tests print a line "N passed, N failed"; the exit status is 0 if none failed.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../../.." && pwd)
python=/usr/bin/python3
index_seconds_max=180
# shellcheck source=tests/lib/pip.sh
source "$root/tests/lib/pip.sh"

build=
options=("$@")
while (($# > 0)); do
    [[ $1 != --build ]] || build=${2:-}
    shift
done
if [[ -z $build ]]; then
    echo "usage: $0 --embagd PATH --embag PATH --build DIR [--quick]" >&2
    exit 2
fi

# The package uses nothing else of the tree, and building it changes nothing in the checkout.
work=$build/python-package
rm -rf "$work"
mkdir -p "$work/client"
work=$(cd "$work" && pwd)
cp -R "$root/client/python" "$work/client/"
cp -R "$root/proto" "$work/"
package=$work/client/python

# run_tests NAME MORE...: runs the tests in that environment; the sources are not on its path.
run_tests() {
    "$work/$1/bin/python" -B -I "$here/package_tests.py" "${options[@]}" "${@:2}"
}

pip() {
    local environment=$1
    shift
    "$work/$environment/bin/python" -m pip --disable-pip-version-check "$@"
}

status=0

"$python" -m venv --system-site-packages "$work/debian"

# said NAME COMMAND...: runs one test, and shows its output if the test fails.
said() {
    local name=$1
    shift
    if "$@" >"$work/log" 2>&1; then
        printf '%s: ok\n1 passed, 0 failed\n' "$name"
    else
        cat "$work/log"
        printf '%s: failed\n0 passed, 1 failed\n' "$name"
        status=1
    fi
}

install_on_debian() { pip debian install --no-index --no-build-isolation "$package"; }

# If nothing can generate the messages, the installation fails and says what to install.
fails_without_protoc() {
    local output
    if output=$(PATH=$work/debian/bin install_on_debian 2>&1); then
        echo "it was installed without protoc"
        return 1
    fi
    echo "$output"
    [[ $output == *'install protobuf-compiler (Debian) or grpcio-tools (pip)'* &&
        $output != *Traceback* ]]
}

# Modules that were deleted are not installed, and the checkout stays unchanged.
leaves_nothing_behind() {
    mkdir -p "$package/build/lib/embag"
    touch "$package/build/lib/embag/stale.py"
    find "$package" | sort >"$work/before"
    install_on_debian || return 1
    find "$package" | sort | diff "$work/before" - &&
        [[ -z $(find "$work/debian" -path '*/embag/stale.py') ]]
}

"$work/debian/bin/python" -c 'import grpc_tools' 2>"$work/log" ||
    said "without protoc" fails_without_protoc
said "a clean checkout" leaves_nothing_behind
run_tests debian || status=1
echo "debian: tested"

# The constraints also hold in pip's isolated build environments.
export PIP_CONSTRAINT=$here/constraints.txt

# Newer packages and types. If these can be installed, the package itself must install.
"$python" -m venv "$work/index"
if ! install_packages index "$index_seconds_max" "$work/index/bin/pip" --retries 1 --timeout 15 \
    grpcio numpy protobuf ml_dtypes mypy types-protobuf setuptools; then
    exit "$status"
fi
pip index install --quiet "$package[bf16,import]"
run_tests index || status=1
# Without protoc, grpcio-tools generates the messages.
pip index uninstall --quiet --yes embag
PATH=$work/index/bin pip index install --quiet "$package"
run_tests index --only '*Readme*' || status=1
echo "index: tested"
exit "$status"
