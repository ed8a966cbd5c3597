#!/usr/bin/env bash
# Runs the variants' tests, and those of what chooses a variant, of a build for x86-64 on emulated
# older processors, two at a time:
#   tests/variants/run_emulated.sh BUILD
# Ends with a line "N passed, N failed".
set -uo pipefail
build=$1

# As qemu-x86_64 -cpu calls them, less what it would complain of: without AVX, and with AVX2 but no
# AVX-512. Beside each the variant that must be its best.
processors=(
    Nehalem ref
    Haswell-noTSX,-pcid,-x2apic,-tsc-deadline,-invpcid avx2
)
# Emulation is slow, and QEMU 7.2 reads all of what vmaskmovps masks.
export EMBAG_TEST_WIDTHS=${EMBAG_TEST_WIDTHS:-7} EMBAG_TEST_SLACK_BYTES=32

results=$(mktemp -d) || exit 1
trap 'rm -rf "$results"' EXIT

list() { ctest --test-dir "$build" -N -R '^(variants|bag_.*)$' | sed -n 's/^ *Test *#[0-9]*: //p'; }

program_of() { [[ $1 == variants ]] && echo test_variants || echo test_kernels; }

run_tests() {
    local processor=$1 test status
    export EMBAG_TEST_BEST=$2
    echo "processor: ${processor%%,*}"
    for test in $(list); do
        status=0
        qemu-x86_64 -cpu "$processor" "$build/$(program_of "$test")" --group "$test" 2>&1 ||
            status=$?
        echo "$test: status $status"
    done
}

for ((i = 0; i < ${#processors[@]}; i += 2)); do
    run_tests "${processors[@]:i:2}" >"$results/$i" &
done
wait

cat "$results"/*
passed=$(cat "$results"/* | grep -c '^\[ \+OK \]')
failed=$(cat "$results"/* | grep -c 'status [1-9][0-9]*$')
# A list that is empty, or a program that tests nothing, must not pass for a success.
((passed > 0)) || failed=1
echo "$passed passed, $failed failed"
((failed == 0))
