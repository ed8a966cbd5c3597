#!/usr/bin/env bash
# Installs the Debian packages that embag is built and tested with, those that are missing only.
#   deploy/install-packages.sh            to build the server, the client library and the tool
#   deploy/install-packages.sh --tests    also for tests/run.sh
#   deploy/install-packages.sh --all      also for tests/run.sh --all
# SKIP_PACKAGES=1 skips it, where they came another way.
set -euo pipefail

packages=(
    gcc libc6-dev cmake ninja-build pkg-config protobuf-c-compiler
    libprotobuf-c-dev libnghttp2-dev libuv1-dev libjansson-dev libcyaml-dev libyaml-dev
    libjemalloc-dev libnuma-dev
)
tests=(
    libcmocka-dev clang-format protobuf-compiler
    python3 python3-grpcio python3-protobuf python3-numpy
)
all=(
    clang libclang-rt-14-dev g++ libgrpc++-dev libprotobuf-dev protobuf-compiler-grpc nghttp2-client
)

case ${1:-} in
'') ;;
--tests) packages+=("${tests[@]}") ;;
--all)
    packages+=("${tests[@]}" "${all[@]}")
    # Node.js may have come from its makers, whose package excludes Debian's npm.
    command -v node >/dev/null || packages+=(nodejs)
    command -v npm >/dev/null || packages+=(npm)
    ;;
*)
    echo "usage: deploy/install-packages.sh [--tests | --all]" >&2
    exit 2
    ;;
esac

[[ ${SKIP_PACKAGES:-} != 1 ]] || exit 0

# Other systems may have these two programs as packages, or none of the packages under these names.
is_debian() {
    (. /etc/os-release && [[ " $ID ${ID_LIKE:-} " == *" debian "* ]]) 2>/dev/null &&
        command -v apt-get >/dev/null && command -v dpkg-query >/dev/null
}

if ! is_debian; then
    echo "This is not Debian. Install what these packages of Debian 12 hold," \
        "then set SKIP_PACKAGES=1:" "${packages[@]}" >&2
    exit 1
fi

missing=()
for package in "${packages[@]}"; do
    status=$(dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null || true)
    [[ $status == *installed* && $status != *not-installed* ]] || missing+=("$package")
done
((${#missing[@]} > 0)) || exit 0

as_root=()
if ((EUID != 0)); then
    if ! command -v sudo >/dev/null; then
        echo "Packages are missing, and this is neither root nor is sudo there. As root:" >&2
        echo "  apt-get update && apt-get install --no-install-recommends ${missing[*]}" >&2
        exit 1
    fi
    as_root=(sudo)
fi

echo "Installing ${missing[*]}"
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y
    -o DPkg::Lock::Timeout=120 -o Acquire::Retries=3)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
install() { "${apt[@]}" update && "${apt[@]}" install --no-install-recommends "${missing[@]}"; }
if ! install >"$log" 2>&1 </dev/null; then
    cat "$log" >&2
    echo "apt-get could not install ${missing[*]}" >&2
    exit 1
fi
