#!/bin/bash
# Builds a release of this tree twice, in different folders, and tests the artifacts.
#     tests/integration/release/run.sh --build DIR --podman DIR --helm DIR
# --podman is the folder of the container tests, whose base image is reused; --helm is that of the
# chart's tests, whose helm is used if it is there. The container image is built, and the Debian
# packages are built twice, only with EMBAG_LONG in the environment. Needs root.
# Prints "N passed, N failed" at the end; the exit status is 0 if none failed.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../../.." && pwd)

build= podman= helm=
# shellcheck source=tests/lib/options.sh
source "$here/../../lib/options.sh"
read_options '--build DIR --podman DIR --helm DIR' "$@"

if ((EUID != 0)); then
    echo "release: skipped, its container image needs root"
    echo "0 passed, 0 failed"
    exit 0
fi

mkdir -p "$build" "$podman"
build=$(realpath "$build")
helm=$(realpath -m "$helm")
# shellcheck source=tests/lib/podman.sh
source "$here/../../lib/podman.sh"
base=
prepare_podman "$(realpath "$podman")"
# shellcheck source=tests/lib/pip.sh
source "$here/../../lib/pip.sh"

# The tree as it is now, as a repository whose only commit has a tag and a dated changelog.
rm -rf "$build/tree" "$build/first" "$build/second"
mkdir "$build/tree"
(cd "$root" && git ls-files -z -co --exclude-standard --deduplicate |
    xargs -0 sh -c 'for path; do [ ! -e "$path" ] || printf "%s\0" "$path"; done' - |
    tar --null -T - -cf -) | tar -xf - -C "$build/tree"
version=$(sed -En 's/^project\(embag VERSION ([0-9.]+) .*/\1/p' "$root/CMakeLists.txt")
cd "$build/tree"
sed -Ei "s/^## ${version//./\\.}, .*/## $version, 2026-01-31/" deploy/CHANGELOG.md
git init -q
git add -A
GIT_AUTHOR_DATE=2026-01-31T12:00:00Z GIT_COMMITTER_DATE=2026-01-31T12:00:00Z \
    git -c user.name=test -c user.email=test@example.org commit -q -m 'A release'
git tag "v$version"

python=
/usr/bin/python3 -m venv "$build/spdx"
if install_packages spdx-tools 120 "$build/spdx/bin/pip" --retries 1 --timeout 15 spdx-tools; then
    python=$build/spdx/bin/python
fi
export PODMAN=$podman PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$root/tests/lib
exec /usr/bin/python3 "$here/release_test.py" "$build" "$version" "$base" "$helm/bin/helm" "$python"
