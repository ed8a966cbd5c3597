# Downloads packages for tests with pip; sourced under `set -euo pipefail`.
# shellcheck shell=bash

# has_index PIP: succeeds if a package index answers, not just a cache or a folder of wheels.
has_index() {
    env -u PIP_FIND_LINKS timeout 60 "$1" --disable-pip-version-check --no-cache-dir --retries 1 \
        --timeout 15 index versions pip >/dev/null 2>&1
}

# install_packages NAME SECONDS PIP ARGUMENT...: runs `PIP install ARGUMENT...`. If no index
# answers, or if it has no such package for this machine, prints "NAME: skipped, REASON" and returns
# 1. Ends the script if an index answers and the installation fails for another reason.
install_packages() {
    local name=$1 seconds_max=$2 pip=$3 status=0 output reason
    shift 3
    output=$(timeout "$seconds_max" "$pip" --disable-pip-version-check install --quiet "$@" 2>&1) ||
        status=$?
    ((status != 0)) || return 0
    printf '%s\n' "$output" >&2
    reason=$(grep -m 1 '^ERROR: ' <<<"$output") || reason=$(tail -n 1 <<<"$output")
    reason=${reason#ERROR: }
    ((status != 124)) || reason="pip took longer than $seconds_max s"
    if ! has_index "$pip"; then
        echo "$name: skipped, no package index answers: $reason"
        return 1
    fi
    if ((status == 124)) || [[ $reason == *'(from versions: none)'* ]]; then
        echo "$name: skipped, a package is not available: $reason"
        return 1
    fi
    echo "$0: the package index answers, but the installation failed: $reason" >&2
    exit 1
}
