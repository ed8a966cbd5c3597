#!/usr/bin/env bash
# Tests the Python package together with PyTorch, TorchRec and TensorFlow.
#     tests/integration/frameworks/run.sh --embagd PATH --embag PATH --build DIR [--long]
#         [--only PATTERN]
# Without --long: PyTorch alone, from Debian's packages. With --long: the environments of
# environments.txt, which take some 8 GB in ~/.cache/embag-tests (or $EMBAG_TEST_CACHE) and are kept
# for the next run. If no package index answers or the disk has too little room, an environment is
# skipped, and a line says why. Each environment's tests print a line "N passed, N failed"; the
# exit status is 0 if none failed.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../../.." && pwd)
cache=${EMBAG_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/embag-tests}
# Bytes that must be free before PyTorch or TensorFlow is installed: the download, its copy in pip's
# cache and the installation.
free_bytes_min=15000000000
install_seconds_max=1200
# shellcheck source=tests/lib/pip.sh
source "$root/tests/lib/pip.sh"

build= long=false options=()
while (($# > 0)); do
    case $1 in
    --long) long=true && shift && continue ;;
    --embagd | --embag | --build | --only) ;;
    *) build= && break ;;
    esac
    [[ $1 != --build ]] || build=${2:-}
    options+=("$1" "${2:-}")
    shift 2 || break
done
if [[ -z $build ]]; then
    echo "usage: $0 --embagd PATH --embag PATH --build DIR [--long] [--only PATTERN]" >&2
    exit 2
fi

# Building the package changes nothing in the checkout, because it is built from a copy.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/client"
cp -R "$root/client/python" "$work/client/"
cp -R "$root/proto" "$work/"
status=0

# test_in VENV FILES...: installs the package there and runs the tests of these files.
test_in() {
    local venv=$1 files
    shift
    "$venv/bin/python" -m pip --disable-pip-version-check install --quiet --force-reinstall \
        --no-index --no-deps --no-build-isolation "$work/client/python" || exit 1
    for files in "$@"; do
        "$venv/bin/python" -B -I "$here/framework_tests.py" "$files" "${options[@]}" || status=1
    done
}

# has_room NAME: succeeds if the disk has room for an environment, and prints why it is skipped
# otherwise.
has_room() {
    local free
    free=$(df --output=avail -B1 "$cache" | tail -n 1)
    ((free < free_bytes_min)) || return 0
    echo "$1: skipped, $cache has $free bytes free, and $free_bytes_min are needed"
    return 1
}

# make_environment NAME PYTHON: creates the environment, unless it exists. Returns 1 if it is
# skipped.
make_environment() {
    local name=$1 venv=$cache/$1 wanted line arguments
    wanted=$(grep "^$name " "$here/environments.txt")
    [[ ! -f $venv/installed || $(<"$venv/installed") != "$wanted" ]] || return 0
    mkdir -p "$cache" || return 1
    has_room "$name" || return 1
    rm -rf "$venv"
    /usr/bin/python3 -m venv "$venv" || exit 1
    while read -r line; do
        read -ra arguments <<<"${line#"$name" }"
        install_packages "$name" "$install_seconds_max" "$venv/bin/pip" "${arguments[@]}" ||
            return 1
    done <<<"$wanted"
    install_packages "$name" "$install_seconds_max" "$venv/bin/pip" setuptools wheel || return 1
    echo "$wanted" >"$venv/installed"
}

if ! $long; then
    /usr/bin/python3 -m venv --system-site-packages "$work/debian"
    test_in "$work/debian" 'test_torch_*.py'
    exit "$status"
fi
! make_environment plain || test_in "$cache/plain" 'test_plain*.py'
! make_environment torch || test_in "$cache/torch" 'test_torch*.py'
! make_environment tensorflow || test_in "$cache/tensorflow" 'test_tensorflow*.py'
exit "$status"
