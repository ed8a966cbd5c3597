#!/usr/bin/env bash
# Runs the tests of the kernel variants and of their selection, from a build for x86-64, on emulated
# older processors, two at a time:
#   tests/variants/run_emulated.sh BUILD
# The last line is "N passed, N failed".
set -uo pipefail
build=$1

# Names for qemu-x86_64 -cpu, without the features that it would warn about: a processor without
# AVX, and one with AVX2 but no AVX-512. Next to each is the best variant it must select.
processors=(
    Nehalem ref
    Haswell-noTSX,-pcid,-x2apic,-tsc-deadline,-invpcid avx2
)
# Emulation is slow, and QEMU 7.2 also reads the elements that vmaskmovps masks out.
export EMBAG_TEST_WIDTHS=${EMBAG_TEST_WIDTHS:-7} EMBAG_TEST_SLACK_BYTES=32

results=$(mktemp -d) || exit 1
trap 'rm -rf "$results"' EXIT

list() {
    ctest --test-dir "$build" -N -R '^(variants.*|bag_.*)$' | sed -n 's/^ *Test *#[0-9]*: //p'
}

program_of() { [[ $1 == variants* ]] && echo test_variants || echo test_kernels; }

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
# An empty list, or a program that tests nothing, must not count as a success.
((passed > 0)) || failed=1
echo "$passed passed, $failed failed"
((failed == 0))
