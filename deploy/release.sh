#!/usr/bin/env bash
# Builds everything that a release consists of from one tag, into one folder:
#     deploy/release.sh [--only PART,...] [--base IMAGE] TAG FOLDER
#
#   embag-server_V_ARCH.deb, embag-tools_..., libembag..., libembag-local...,   part debs
#       libembag-dev_...
#   embag-V-ARCH.oci.tar        container image, an OCI archive               part image
#   embag-V.tgz                 Helm chart                                    part chart
#   embag-V.tar.gz, embag-V-py3-none-any.whl   Python package                 part python
#   embag-V.spdx.json           SBOM (SPDX 2.3) of the above
#   SHA256SUMS                  checksums of all of them
#
# The tag is vV or V, where V is the version in CMakeLists.txt, Chart.yaml and pyproject.toml, and
# deploy/CHANGELOG.md has a section "## V, YYYY-MM-DD". Only committed files of the tag are used.
# Every date in the files is that of the tagged commit, so two runs on machines with the same Debian
# packages produce the same bytes. The image is built on --base (debian:bookworm-slim), and installs
# what Debian's archive has that day. FOLDER must not exist; it appears when everything is done.
# Nothing is published. Needs `deploy/install-packages.sh --release`. PODMAN names another podman.
set -euo pipefail
umask 022

fail() {
    echo "release.sh: $*" >&2
    exit 1
}

usage() {
    echo "usage: $0 [--only debs,image,chart,python] [--base IMAGE] TAG FOLDER" >&2
    exit 2
}

parts=debs,image,chart,python
base=debian:bookworm-slim
while [[ ${1:-} == --* ]]; do
    case $1 in
    --only) parts=${2:-} ;;
    --base) base=${2:-} ;;
    *) usage ;;
    esac
    (($# >= 2)) || usage
    shift 2
done
(($# == 2)) || usage
for part in ${parts//,/ }; do
    [[ $part == @(debs|image|chart|python) ]] || usage
done
tag=$1
folder=$(realpath -m "$2")
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
podman=${PODMAN:-podman}
python=/usr/bin/python3

needed=(git dpkg-deb sha256sum)
case $parts in *debs*) needed+=(cmake ninja cpack help2man) ;; esac
case $parts in *image*) needed+=("$podman") ;; esac
case $parts in *python*) needed+=(protoc) ;; esac
for program in "${needed[@]}"; do
    command -v "$program" >/dev/null ||
        fail "$program is missing: run deploy/install-packages.sh --release"
done

# Git refuses a checkout that belongs to another user unless safe.directory names it.
tagged() { git -c safe.directory="$repository" -C "$repository" "$@"; }

commit=$(tagged rev-parse --verify --quiet "refs/tags/$tag^{commit}") ||
    fail "there is no tag \"$tag\" in $repository: expected one of: $(tagged tag | tail -3 | xargs)"
[[ ! -e $folder ]] || fail "$folder exists: expected a folder that is not there yet"
SOURCE_DATE_EPOCH=$(tagged log -1 --format=%ct "$commit")
export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC PYTHONHASHSEED=0

mkdir -p "$(dirname "$folder")"
work=$(mktemp -d)
built=$(mktemp -d "$folder.XXXXXX")
trap 'rm -rf "$work" "$built"' EXIT
source=$work/source
mkdir "$source"
tagged archive --format=tar "$commit" | tar -xf - -C "$source"

# The version V of the tag. Each file must state the same one.
version=${tag#v}
check_version() {
    local file=$1 found
    found=$(sed -En "s/$2/\1/p" "$source/$file" | head -n 1)
    [[ $found == "$version" ]] ||
        fail "$file of $tag has the version \"$found\": expected \"$version\""
}
check_version CMakeLists.txt '^project\(embag VERSION ([0-9.]+) .*'
check_version deploy/helm/embag/Chart.yaml '^version: (.*)'
check_version deploy/helm/embag/Chart.yaml '^appVersion: "?([^"]*)"?'
check_version client/python/pyproject.toml '^version = "(.*)"'
grep -qE "^## ${version//./\\.}, [0-9]{4}-[0-9]{2}-[0-9]{2}$" "$source/deploy/CHANGELOG.md" ||
    fail "deploy/CHANGELOG.md of $tag lacks a section: expected \"## $version, YYYY-MM-DD\""
architecture=$(dpkg --print-architecture)

# pack TAR FOLDER NAME...: makes a tar file whose bytes depend only on names, contents and execute
# bits.
pack() {
    tar --sort=name --format=gnu --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
        --mode=u+rw,go=rX -cf "$1" -C "$2" "${@:3}"
}

# The path of the source differs from run to run, so the text of asserts must not contain it.
make_debs() {
    (cd "$source" && CFLAGS="-ffile-prefix-map=$source=." cmake --preset release \
        -DEMBAG_FOLDERS="kernels;proto;server;client" &&
        cmake --build build/release)
    (cd "$source/build/release" && cpack -G DEB -B "$work/debs")
    cp "$work"/debs/*.deb "$built/"
}

make_image() {
    local name=embag-$version-$architecture
    (cd "$source" && "$podman" build --format docker --timestamp "$SOURCE_DATE_EPOCH" \
        --build-arg BASE="$base" -f deploy/Containerfile -t "embag:$version" .)
    "$podman" save --format oci-dir -o "$work/image" "embag:$version"
    pack "$built/$name.oci.tar" "$work/image" blobs index.json oci-layout
}

make_chart() {
    mkdir "$work/chart"
    cp -R "$source/deploy/helm/embag" "$work/chart/"
    rm "$work/chart/embag/.helmignore"
    pack "$work/chart.tar" "$work/chart" embag
    gzip -9n <"$work/chart.tar" >"$built/embag-$version.tgz"
}

# The wheel is built from the source distribution, as a user without protoc would.
make_python() {
    (cd "$source/client/python" && "$python" setup.py --quiet sdist --dist-dir "$work/sdist")
    tar -xzf "$work/sdist/embag-$version.tar.gz" -C "$work/sdist"
    pack "$work/sdist.tar" "$work/sdist" "embag-$version"
    gzip -9n <"$work/sdist.tar" >"$built/embag-$version.tar.gz"
    "$python" -m pip wheel --quiet --no-index --no-deps --no-build-isolation \
        --wheel-dir "$built" "$built/embag-$version.tar.gz"
}

for part in ${parts//,/ }; do
    started=$SECONDS
    echo "== $part"
    # Runs in the background, because bash ignores set -e in a command that is followed by ||.
    "make_$part" >"$work/$part.log" 2>&1 &
    wait $! || {
        cat "$work/$part.log" >&2
        fail "the part $part could not be built"
    }
    echo "   $((SECONDS - started)) s"
done

echo "== SBOM and checksums"
"$python" "$source/deploy/sbom.py" --version "$version" --commit "$commit" "$built" \
    >"$work/embag-$version.spdx.json"
mv "$work/embag-$version.spdx.json" "$built/"
(cd "$built" && sha256sum -- * >"$work/SHA256SUMS" && mv "$work/SHA256SUMS" .)
chmod 755 "$built"
chmod 644 "$built"/*
mv -T "$built" "$folder"
cat "$folder/SHA256SUMS"
