#!/bin/bash
# Builds and runs the container image.
#     tests/integration/container/run.sh --embag PATH --build DIR
# If an image registry answers, the base image is the one that the container file names. Otherwise
# it is a system that mmdebstrap makes from Debian's packages. Needs root. Images are kept below the
# build folder.
# Prints "N passed, N failed" at the end; the exit status is 0 if none failed.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$here/../../..

embag= build=
# shellcheck source=tests/lib/options.sh
source "$here/../../lib/options.sh"
read_options '--embag PATH --build DIR' "$@"
embag=$(readlink -f "$embag")
mkdir -p "$build"
build=$(readlink -f "$build")

if ((EUID != 0)); then
    echo "container: skipped, its tests need root"
    echo "0 passed, 0 failed"
    exit 0
fi

# shellcheck source=tests/lib/podman.sh
source "$here/../../lib/podman.sh"
podman= base=
prepare_podman "$build"

# Runs the guide's command from the checkout's root.
read -ra build_words < <(grep -m1 '^podman build ' "$root/deploy/OPERATIONS.md")
(cd "$root" && "$podman" build --build-arg BASE="$base" "${build_words[@]:2}")

mkdir -p "$build/messages"
(cd "$root/proto" &&
    protoc --python_out="$build/messages" embag/v1/{embedding_bag,model_admin}.proto)
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$build/messages:$root/tests/lib
exec /usr/bin/python3 "$here/container_test.py" "$podman" "$base" "$embag"
