#!/bin/bash
# Debian packages: built by cpack, checked by lintian, and installed in a system with its own
# systemd. There the service starts, serves, is commanded, hangs and exits under its unit's
# hardening; finally the packages are purged. Tests that cannot run here (without root, cgroups, or
# an archive of packages) are skipped, and a line says so. The system's files are kept in the work
# folder.
#     tests/integration/packaging/run.sh --build DIR --work DIR
# Prints "N passed, N failed" at the end; the exit status is 0 if none failed.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

build= work=
# shellcheck source=tests/lib/options.sh
source "$here/../../lib/options.sh"
read_options '--build DIR --work DIR' "$@"
mkdir -p "$work"
work=$(cd "$work" && pwd)

cmake --build "$build" --target embagd embag_cli embag_load embag_client embag_shared embag_local \
    man
rm -rf "$work/packages"
cpack --config "$build/CPackConfig.cmake" -G DEB -B "$work/packages"
packages=("$work"/packages/*.deb)

# Dependencies of the packages to install: libc6 (>= 2.34), libuv1 (>= 1.33.1) -> libc6,libuv1
needed=$(for package in "${packages[@]}"; do
    [[ $package == */libembag-dev_* ]] || dpkg-deb -f "$package" Depends
done |
    tr ',' '\n' | sed -E 's/\(.*//; s/ //g' | sort -u | grep -v embag | paste -sd,)
tar=$work/root-$(sha256sum <<<"apt,$needed" | cut -c1-16).tar
if [[ ! -f $tar ]]; then
    rm -f "$work"/root-*.tar
    if mmdebstrap --quiet --variant=essential --include="apt,systemd,$needed" bookworm \
        "$work/part.tar"; then
        mv "$work/part.tar" "$tar"
    elif mmdebstrap --quiet --simulate --variant=essential bookworm /dev/null; then
        echo "$0: the archive of Debian packages answers, but the system could not be built" >&2
        exit 1
    fi
fi
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$here/../../lib
exec /usr/bin/python3 "$here/packaging_test.py" "$tar" "${packages[@]}"
