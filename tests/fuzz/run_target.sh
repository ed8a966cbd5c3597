#!/usr/bin/env bash
# Runs one fuzz target, starting from its corpus:
#   tests/fuzz/run_target.sh build/fuzz/fuzz_NAME [SECONDS]
# SECONDS defaults to 20. New inputs and crashes go to build/fuzz/found/NAME. Then
# tests/fuzz/keep_found.sh adds the inputs that reach new code to the corpus.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
target=$1
seconds=${2:-20}
name=${target##*/fuzz_}
found=build/fuzz/found/$name
mkdir -p "$found/corpus" || exit 1

dictionary=()
[[ ! -f tests/fuzz/dict/$name.dict ]] || dictionary=(-dict="tests/fuzz/dict/$name.dict")

if "$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
    "${dictionary[@]}" -artifact_prefix="$found/" \
    "$found/corpus" "tests/fuzz/corpus/$name" >"$found/log" 2>&1; then
    counts="1 passed, 0 failed"
    output=$(grep '^stat::number_of_executed_units' "$found/log")
else
    counts="0 passed, 1 failed"
    output=$(cat "$found/log")
fi
# Prints everything with one write, because two targets run at the same time.
printf '%s: %s\n%s\n' "$name" "$output" "$counts"
[[ $counts == 1* ]]
