#!/usr/bin/env bash
# All tests, from a clean checkout: installs what is missing, builds, runs every suite.
#   tests/run.sh          what needs Debian's packages only: some 6 minutes on two cores
#   tests/run.sh --all    also network tests at length, the sanitizers, other processors (emulated),
#                         fuzzing, other clients, container, packages and chart, the status page
#                         in a browser, Prometheus, models that change under load, the comparison
#                         with grpc++: some 40
#   tests/run.sh --long   what takes long and is run by hand: attacks for minutes, and every fuzz
#                         target for three: some 40 on two cores
# Goes on after a failure, unless the packages are missing. The last line is "N passed, N failed",
# counting single tests; before it stands what was skipped.
set -uo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."

all=false
long=false
case ${1:-} in
'') ;;
--all) all=true ;;
--long) long=true ;;
*)
    echo "usage: tests/run.sh [--all | --long]" >&2
    exit 2
    ;;
esac

export python=/usr/bin/python3
logs=build/tests
passed_total=0
failed_total=0
skipped=() # what could not be had here, with its section
section_pid=
export PYTHONDONTWRITEBYTECODE=1
export UBSAN_OPTIONS=print_stacktrace=1

# Nothing can be tested.
give_up() {
    [[ -z ${1:-} ]] || echo "tests/run.sh: $1" >&2
    printf '\n0 passed, 1 failed\n'
    exit 1
}

# Temporary files, a directory for each section. One test runs the server as another user, who must
# get at its model.
mkdir -p "$logs" && scratch=$(mktemp -d) && chmod 711 "$scratch" || give_up
trap 'rm -rf "$scratch"' EXIT

# A section runs in the process group that timeout makes, so that what it started ends with it.
stop_section() { [[ -z $section_pid ]] || kill -TERM -- "-$section_pid" 2>/dev/null; }
trap 'stop_section; exit 130' INT TERM

# Lines of the output that are shown in any case: which variants of the kernels were tested.
shown='processor: .*|[a-z0-9+-]+: (tested|skipped, .*)|[a-z0-9+-]+ over [a-z0-9 ]+: skip .*'

# section SECONDS_MAX NAME COMMAND...: runs a command or function below, counts its tests, shows
# the output if any failed.
section() {
    local limit=$1 name=$2 slug=${2//[^a-z0-9+]/-} start=$SECONDS status=0 passed failed
    local log=$logs/$slug.log lines line
    shift 2
    printf '\n== %s\n' "$name"
    mkdir -m 711 "$scratch/$slug"
    TMPDIR=$scratch/$slug timeout -k 10 "$limit" bash -c '"$@"' - "$@" >"$log" 2>&1 </dev/null &
    section_pid=$!
    wait "$section_pid" || status=$?
    stop_section
    section_pid=
    rm -rf "${scratch:?}/$slug"
    read -r passed failed < <("$python" tests/count_tests.py "$log")
    # A command that fails without a failing test has itself failed.
    ((status == 0 || failed > 0)) || failed=1
    ((failed == 0)) || cat "$log"
    mapfile -t lines < <(sed -En "s/^([0-9]+: )?($shown)\$/\2/p" "$log")
    for line in "${lines[@]}"; do
        echo "  $line"
        [[ $line != *': skip'* ]] || skipped+=("$name: $line")
    done
    passed_total=$((passed_total + passed))
    failed_total=$((failed_total + failed))
    printf '%s: %d passed, %d failed, %d s\n' "$name" "$passed" "$failed" $((SECONDS - start))
    ((failed == 0))
}

# A build directory that was made before the checkout was moved or copied begins afresh.
configure() {
    local preset=$1 cache=build/$1/CMakeCache.txt fresh=()
    shift
    if [[ -f $cache && ! $(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$cache") -ef $PWD ]]; then
        fresh=(--fresh)
    fi
    cmake "${fresh[@]}" --preset "$preset" "$@"
}

build() { configure "$@" -DEMBAG_WERROR=ON && cmake --build "build/$1"; }

# clang on Debian has no OpenMP, so that the fuzz targets are all it can build.
build_fuzz() { configure fuzz && cmake --build build/fuzz; }

unit_tests() {
    local preset=$1
    shift
    ctest --test-dir "build/$preset" --verbose --timeout 300 -j "$(nproc)" "$@"
}

# In two processes: a test mostly waits.
network_tests() {
    local preset=$1 part parts=() status=0 claims
    shift
    claims=$(mktemp -d) || return
    for part in 1 2; do
        "$python" tests/integration/run.py --embagd "build/$preset/embagd" \
            --embag "build/$preset/embag" --build "build/$preset" --claims "$claims" "$@" \
            >"$TMPDIR/part-$part" 2>&1 &
        parts+=($!)
    done
    for part in 1 2; do
        wait "${parts[part - 1]}" || status=$?
        cat "$TMPDIR/part-$part"
    done
    return "$status"
}

# One after the other: they measure what others are served beside an attack.
long_network_tests() {
    "$python" tests/integration/run.py --embagd build/release/embagd --embag build/release/embag \
        --build build/release --long
}

old_processor_tests() { tests/variants/run_emulated.sh build/release; }

# By an emulator, so of some widths only.
arm64_tests() { EMBAG_TEST_BEST=neon EMBAG_TEST_WIDTHS=4 unit_tests arm64; }

tidy() { tests/tidy.sh --self-test && tests/tidy.sh; }

# A port whose successor is free too: quickstart takes both.
free_port() {
    "$python" -c 'import socket
while True:
    with socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", 0))
        port = first.getsockname()[1]
        try:
            second.bind(("127.0.0.1", port + 1))
        except (OSError, OverflowError):
            continue
        print(port)
        break'
}

quickstart() { deploy/quickstart.sh --port "$(free_port)" --once && echo "1 passed, 0 failed"; }

# Every target for so many seconds, two at a time. New finds go to the build directory.
fuzz() {
    find build/fuzz -maxdepth 1 -name 'fuzz_*' -type f -perm -u+x | sort |
        xargs -I '{}' -P 2 tests/fuzz/run_target.sh '{}' "$1"
}

python_tests() {
    tests/integration/python/run.sh --embagd build/release/embagd --embag build/release/embag \
        --build build/release
}

triton_tests() {
    tests/integration/triton/run.sh --embagd build/release/embagd --build build/triton
}

kserve_tests() {
    tests/integration/kserve/run.sh --embagd build/release/embagd --build build/kserve
}

node_tests() {
    tests/integration/node/run.sh --embagd build/release/embagd --build build/clients/node
}

page_tests() { tests/integration/page/run.sh --build build/release; }

monitoring_tests() { tests/integration/monitoring/run.sh --build build/release; }

package_tests() {
    tests/integration/packaging/run.sh --build build/release --work build/packaging
}

container_tests() {
    tests/integration/container/run.sh --embag build/release/embag --build build/container
}

helm_tests() {
    tests/integration/helm/run.sh --embagd build/release/embagd --build build/clients/helm
}

# One after the other; what cannot be had is skipped, and says so.
interop() {
    "$python" tests/integration/interop.py --embagd build/release/embagd --build build/release \
        --work build/clients "$@"
}

compare_with_grpcpp() {
    tests/bench/unary_cpu.sh --pairs 5 --requests 50000 && echo "1 passed, 0 failed"
}

# Small and short, so that its figures are none: that it runs, and every answer is right.
model_figures() {
    tests/bench/models.sh --work "$TMPDIR" --rounds 1 --seconds 30 --scale 5000 --rows 4000000 \
        --keyed-bytes 67108864 --pack-rows 100000 && echo "1 passed, 0 failed"
}

export -f configure build build_fuzz unit_tests network_tests long_network_tests arm64_tests
export -f tidy free_port quickstart
export -f old_processor_tests fuzz python_tests node_tests triton_tests kserve_tests interop
export -f page_tests monitoring_tests package_tests container_tests helm_tests
export -f compare_with_grpcpp model_figures

release_options=(-DEMBAG_FOLDERS="kernels;proto;server;client;tests")
packages=--tests
network_options=(--quick)
if $all; then
    packages=--all
    network_options=()
    release_options+=(-DEMBAG_BENCH_PEERS=ON)
fi

printf '\n== packages\n'
# In the foreground, where sudo can ask for a password.
timeout --foreground -k 10 600 deploy/install-packages.sh "$packages" || give_up
[[ -x $python ]] || give_up "$python is missing: the tests run with Debian's python3"
$long || section 60 "tidy and format" tidy
if section 1500 "build" build release "${release_options[@]}" && ! $long; then
    section 300 "unit tests and variants" unit_tests release
    section 1500 "network tests" network_tests release "${network_options[@]}"
    section 300 "quickstart" quickstart
fi
if $all; then
    if section 1500 "build with address and undefined sanitizers" build asan; then
        section 600 "unit tests, sanitized" unit_tests asan
        section 1500 "network tests, sanitized" network_tests asan --quick
    fi
    if section 1500 "build with thread sanitizer" build tsan; then
        # What has no threads is left out.
        section 600 "unit tests, threads" unit_tests tsan -E '^(variants|codec.*|fuzz_.*)$'
        section 1500 "network tests, threads" network_tests tsan --quick
    fi
    section 300 "variants on older processors, emulated" old_processor_tests
    if section 600 "build of kernels for arm64" build arm64; then
        section 300 "unit tests and variants on arm64, emulated" arm64_tests
    fi
    section 400 "models that change, small" model_figures
    section 400 "status page in Chromium" page_tests
    section 200 "metrics, rules and dashboard with Prometheus" monitoring_tests
    section 900 "Debian packages, under systemd" package_tests
    section 1200 "container image" container_tests
    section 1500 "Helm chart" helm_tests
    section 900 "clients: python package" python_tests
    section 300 "clients: grpc-js" node_tests
    section 600 "clients: tritonclient, and its calls from grpc++" triton_tests
    section 300 "clients: KServe's" kserve_tests
    section 900 "clients: stock ones, over every transport" interop \
        grpcio grpc++ grpc-js grpc-go grpcurl
    section 100 "a drain under load" interop drain
    section 500 "h2spec" interop h2spec
    section 300 "clients: h2load, beside grpc++" compare_with_grpcpp
    if section 1500 "build of fuzz targets" build_fuzz; then
        section 900 "fuzz targets" fuzz 20
    fi
fi

if $long; then
    section 3600 "attacks, long" long_network_tests
    if section 1500 "build of fuzz targets" build_fuzz; then
        section 3600 "fuzz targets, long" fuzz 180
    fi
fi

if ((${#skipped[@]} > 0)); then
    printf '\n== skipped\n'
    printf '  %s\n' "${skipped[@]}"
fi
printf '\n%d passed, %d failed\n' "$passed_total" "$failed_total"
((failed_total == 0))
