#!/usr/bin/env bash
# Checks the house rules that a program can check: layers, names, sizes, format.
#   tests/tidy.sh               checks the tree; exits with 1 if a rule is broken
#   tests/tidy.sh --self-test   tests each rule with text that breaks it and text that does not
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Debian's interpreter, because the one on PATH may be another.
python=/usr/bin/python3
for tool in "$python" clang-format; do
    if ! command -v "$tool" >/dev/null; then
        echo "tests/tidy.sh: $tool is missing; deploy/install-packages.sh --tests installs it" >&2
        exit 2
    fi
done

export PYTHONDONTWRITEBYTECODE=1
if [[ ${1:-} == --self-test ]]; then
    exec "$python" tests/tidy_cases.py
fi
exec "$python" tests/tidy.py
