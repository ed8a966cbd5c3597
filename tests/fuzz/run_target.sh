#!/usr/bin/env bash
# Runs one fuzz target for 20 seconds from its corpus: tests/fuzz/run_target.sh build/fuzz/fuzz_NAME
# What it finds, inputs and crashes, goes to build/fuzz/found/NAME.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
target=$1
name=${target##*/fuzz_}
found=build/fuzz/found/$name
mkdir -p "$found/corpus" || exit 1

if "$target" -max_total_time=20 -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="$found/" "$found/corpus" "tests/fuzz/corpus/$name" >"$found/log" 2>&1; then
    counts="1 passed, 0 failed"
    output=$(grep '^stat::number_of_executed_units' "$found/log")
else
    counts="0 passed, 1 failed"
    output=$(cat "$found/log")
fi
# In one write: two targets run at a time.
printf '%s: %s\n%s\n' "$name" "$output" "$counts"
[[ $counts == 1* ]]
