#!/usr/bin/env bash
# Installs the Debian packages that embag needs to be built and tested, if they are missing.
#   deploy/install-packages.sh            to build the server, the client library and the tool
#   deploy/install-packages.sh --tests    also for tests/run.sh
#   deploy/install-packages.sh --release  also for deploy/release.sh
#   deploy/install-packages.sh --all      also for tests/run.sh --all
# SKIP_PACKAGES=1 skips this, if you have installed them in another way.
set -euo pipefail

packages=(
    gcc libc6-dev cmake ninja-build pkg-config protobuf-c-compiler
    libprotobuf-c-dev libnghttp2-dev libssl-dev libuv1-dev libjansson-dev libcyaml-dev libyaml-dev
    libjemalloc-dev libmicrohttpd-dev libnuma-dev libsystemd-dev libxxhash-dev zlib1g-dev help2man
)
tests=(
    libcmocka-dev clang-format protobuf-compiler
    curl openssl python3 python3-grpcio python3-h2 python3-protobuf python3-numpy
    python3-yaml qemu-user
)
# The tests need these two arm64 packages. They are unpacked into a directory of their own, so that
# arm64 does not become an architecture of this machine. tests/variants/arm64.cmake uses it.
arm64=()
arm64_tests=(libcmocka0 libcmocka-dev)
arm64_root=/usr/local/aarch64-linux-gnu
release=(
    dpkg-dev file git protobuf-compiler
    podman runc netavark golang-github-containers-common iptables
    python3 python3-pip python3-setuptools python3-wheel
)
all=(
    clang libclang-rt-14-dev g++ libgrpc++-dev libprotobuf-dev protobuf-compiler-grpc nghttp2-client
    libhiredis-dev redis-server libb64-0d prometheus chromium
    openjdk-17-jdk-headless maven
    iproute2 nftables dnsmasq-base nginx-light
    python3-venv podman-compose python3-torch python3-tqdm python3-xxhash
    mmdebstrap lintian gcc-aarch64-linux-gnu libc6-dev-arm64-cross
)

case ${1:-} in
'') ;;
--tests)
    packages+=("${tests[@]}")
    ;;
--release)
    packages+=("${release[@]}")
    ;;
--all)
    packages+=("${tests[@]}" "${release[@]}" "${all[@]}")
    arm64+=("${arm64_tests[@]}")
    # Node.js may come from its vendor, whose package conflicts with Debian's npm.
    command -v node >/dev/null || packages+=(nodejs)
    command -v npm >/dev/null || packages+=(npm)
    ;;
*)
    echo "usage: deploy/install-packages.sh [--tests | --release | --all]" >&2
    exit 2
    ;;
esac

[[ ${SKIP_PACKAGES:-} != 1 ]] || exit 0

# Other systems may have apt-get and dpkg-query, but not the packages above under these names.
is_debian() {
    (. /etc/os-release && [[ " $ID ${ID_LIKE:-} " == *" debian "* ]]) 2>/dev/null &&
        command -v apt-get >/dev/null && command -v dpkg-query >/dev/null
}

if ! is_debian; then
    echo "This is not Debian. Install the equivalents of these Debian 12 packages," \
        "then set SKIP_PACKAGES=1:" "${packages[@]}" "${arm64[@]/%/:arm64}" >&2
    exit 1
fi

missing=()
for package in "${packages[@]}"; do
    status=$(dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null || true)
    [[ $status == *installed* && $status != *not-installed* ]] || missing+=("$package")
done
missing_arm64=()
for package in "${arm64[@]}"; do
    [[ -d $arm64_root/usr/share/doc/$package ]] || missing_arm64+=("$package")
done
((${#missing[@]} + ${#missing_arm64[@]} > 0)) || exit 0

as_root=()
if ((EUID != 0)); then
    if ! command -v sudo >/dev/null; then
        echo "Packages are missing, you are not root, and there is no sudo. Run as root:" >&2
        echo "  ${BASH_SOURCE[0]} $*" >&2
        exit 1
    fi
    as_root=(sudo)
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
apt_options=(-q -y -o DPkg::Lock::Timeout=120 -o Acquire::Retries=3)

install() {
    local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get "${apt_options[@]}")
    "${apt[@]}" update && "${apt[@]}" install --no-install-recommends "${missing[@]}"
}

# Downloads from the same archives as this machine's own packages, but with separate package lists.
unpack_arm64() {
    local apt=(
        apt-get "${apt_options[@]}" -o APT::Architecture=arm64 -o APT::Architectures=arm64
        -o Dir::State="$scratch" -o Dir::State::status="$scratch/status" -o Dir::Cache="$scratch"
        -o APT::Sandbox::User=root -o Acquire::Languages=none
    )
    mkdir -p "$scratch/lists/partial" "$scratch/archives/partial"
    touch "$scratch/status"
    "${apt[@]}" update && (cd "$scratch" && "${apt[@]}" download "${missing_arm64[@]}") || return
    "${as_root[@]}" mkdir -p "$arm64_root" || return
    for package in "$scratch"/*.deb; do
        "${as_root[@]}" dpkg -x "$package" "$arm64_root" || return
    done
}

# attempt WHAT COMMAND...: prints the output of the command only if it fails.
attempt() {
    local what=$1
    shift
    echo "Installing $what"
    if ! "$@" >"$scratch/log" 2>&1 </dev/null; then
        cat "$scratch/log" >&2
        echo "apt-get could not install $what" >&2
        return 1
    fi
}

((${#missing[@]} == 0)) || attempt "${missing[*]}" install
# Only the arm64 tests need these packages.
((${#missing_arm64[@]} == 0)) || attempt "${missing_arm64[*]/%/:arm64}" unpack_arm64 || true
