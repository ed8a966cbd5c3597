#!/usr/bin/env bash
# Runs all tests from a clean checkout: installs missing packages, builds, runs every suite.
#   tests/run.sh          suites that need Debian's packages only: some 6 minutes on two cores
#   tests/run.sh --all    also the network tests in full, the sanitizers, other processors
#                         (emulated), fuzzing, other clients, container, packages and chart, the
#                         status page in a browser, Prometheus, models that change under load,
#                         the comparison with grpc++: an hour or more
#   tests/run.sh --long   suites that take long and are run by hand: attacks for minutes, 200 kills
#                         of a server with resident tables, a cluster whose hosts, packets and names
#                         fail, TorchRec and TensorFlow, which are downloaded, the container image
#                         of a release, the chart in an API server of Kubernetes, and three minutes
#                         for each fuzz target: some 90 minutes on two cores
# If ccache is installed, it keeps objects for the next run, in whichever folder.
# Continues after a failure, unless packages are missing. The last line is "N passed, N failed",
# counting single tests; the skipped suites are listed before it.
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
skipped=() # suites and tests that could not run here, with their section
section_pid=
export ahead_pid=
export PYTHONDONTWRITEBYTECODE=1
export UBSAN_OPTIONS=print_stacktrace=1
if command -v ccache >/dev/null; then
    export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache
    export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
fi

# Reports that nothing can be tested, and exits.
give_up() {
    [[ -z ${1:-} ]] || echo "tests/run.sh: $1" >&2
    printf '\n0 passed, 1 failed\n'
    exit 1
}

# Temporary files, in one directory for each section. One test runs the server as another user, who
# must be able to read its model.
mkdir -p "$logs" && scratch=$(mktemp -d) && chmod 711 "$scratch" || give_up
trap 'stop_ahead; rm -rf "$scratch"' EXIT

# Ends the current section. The section runs in the process group that timeout creates, so its
# children end with it.
stop_section() { [[ -z $section_pid ]] || kill -TERM -- "-$section_pid" 2>/dev/null; }
trap 'stop_section; exit 130' INT TERM

# Output lines that are always shown: which variants of the kernels were tested, and skips.
shown='processor: .*|[a-z0-9+-]+: (tested|skipped, .*)'

# section SECONDS_MAX NAME COMMAND...: runs a command or a function defined below, counts its tests,
# and shows its output if any failed.
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
    # A command that fails although none of its tests failed counts as one failed test.
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

# Configures a preset. If the checkout was moved or copied, an existing build directory is
# configured afresh.
configure() {
    local preset=$1 cache=build/$1/CMakeCache.txt fresh=()
    shift
    if [[ -f $cache && ! $(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$cache") -ef $PWD ]]; then
        fresh=(--fresh)
    fi
    cmake "${fresh[@]}" --preset "$preset" "$@"
}

build() { configure "$@" -DEMBAG_WERROR=ON && cmake --build "build/$1"; }

# Debian's clang has no OpenMP, so it can build nothing but the fuzz targets.
build_fuzz() { configure fuzz && cmake --build build/fuzz; }

build_preset() { if [[ $1 == fuzz ]]; then build_fuzz; else build "$1"; fi; }

# Builds presets one after the other. A failure is reported by the section that builds the preset
# again. Some kernels share the processors among sessions first, so the session has a low priority
# as well.
build_in_idle_time() {
    local preset
    [[ ! -w /proc/self/autogroup ]] || echo 19 >/proc/self/autogroup || true
    for preset in "$@"; do
        build_preset "$preset"
        : >"$scratch/built-$preset"
    done
}

# Begins to build presets while tests run. Most tests wait most of the time, and the compilers get
# only what time they leave.
build_ahead() {
    mkdir -m 711 "$scratch/ahead"
    TMPDIR=$scratch/ahead setsid timeout -k 10 5400 chrt --idle 0 \
        bash -c 'build_in_idle_time "$@"' - "$@" >"$logs/build-ahead.log" 2>&1 </dev/null &
    ahead_pid=$!
}
stop_ahead() { [[ -z $ahead_pid ]] || kill -TERM -- "-$ahead_pid" 2>/dev/null; }

# Builds a preset that may have been begun ahead.
finish_build() {
    while [[ -n $ahead_pid && ! -e $scratch/built-$1 ]] && kill -0 "$ahead_pid" 2>/dev/null; do
        sleep 1
    done
    build_preset "$1"
}

unit_tests() {
    local preset=$1
    shift
    ctest --test-dir "build/$preset" --verbose --timeout 300 -j "$(nproc)" "$@"
}

# Runs the tests in two processes, because a test spends most of its time waiting.
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

# Runs tests of lookups against a router whose tables are divided among part servers.
routed_tests() {
    local module status=0
    for module in differential groups infer sequences missing_positions errors_per_query streams \
        edge_requests; do
        "$python" tests/integration/run.py --embagd build/release/embagd \
            --embag build/release/embag --build build/release --quick --routed \
            --only "*test_$module.*" || status=$?
    done
    return "$status"
}

# Runs the tests one after the other, because they measure how others are served during an attack.
long_network_tests() {
    "$python" tests/integration/run.py --embagd build/release/embagd --embag build/release/embag \
        --build build/release --long
}

kill_tests() {
    EMBAG_LONG=1 "$python" tests/integration/run.py --embagd build/release/embagd \
        --embag build/release/embag --build build/release --only '*test_a_kill_at_a_random_time*'
}

old_processor_tests() { tests/variants/run_emulated.sh build/release; }

# Tests a few widths only, because an emulator is slow.
arm64_tests() { EMBAG_TEST_BEST=neon EMBAG_TEST_WIDTHS=4 unit_tests arm64; }

tidy() { tests/tidy.sh --self-test && tests/tidy.sh; }

# Prints a free port whose successor is free too: the quickstart uses both.
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

# Runs every target for this many seconds, two at a time. New inputs go to the build directory.
fuzz() {
    find build/fuzz -maxdepth 1 -name 'fuzz_*' -type f -perm -u+x | sort |
        xargs -I '{}' -P 2 tests/fuzz/run_target.sh '{}' "$1"
}

# Builds without ccache, because what is compared must have been compiled twice.
release_tests() {
    env -u CMAKE_C_COMPILER_LAUNCHER tests/integration/release/run.sh --build build/release-twice \
        --podman build/container --helm build/clients/helm
}

python_tests() {
    tests/integration/python/run.sh --embagd build/release/embagd --embag build/release/embag \
        --build build/release
}

framework_tests() {
    tests/integration/frameworks/run.sh --embagd build/release/embagd --embag build/release/embag \
        --build build/release "$@"
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

cluster_tests() { tests/integration/cluster/run.sh --build build/release "$@"; }

package_tests() {
    tests/integration/packaging/run.sh --build build/release --work build/packaging
}

container_tests() {
    tests/integration/container/run.sh --embag build/release/embag --build build/container
}

helm_tests() {
    tests/integration/helm/run.sh --embagd build/release/embagd --build build/clients/helm
}

# Runs the suites one after the other. Skips those that cannot run here, and prints a line for each.
interop() {
    "$python" tests/integration/interop.py --embagd build/release/embagd --build build/release \
        --work build/clients "$@"
}

compare_with_grpcpp() {
    tests/bench/unary_cpu.sh --pairs 5 --requests 50000 && echo "1 passed, 0 failed"
}

# Too small and short for meaningful figures: checks that the script runs, and that every answer is
# right.
model_figures() {
    tests/bench/models.sh --work "$TMPDIR" --rounds 1 --seconds 30 --scale 5000 --rows 4000000 \
        --keyed-bytes 67108864 --pack-rows 100000 && echo "1 passed, 0 failed"
}

export scratch
export -f configure build build_fuzz build_preset build_in_idle_time finish_build
export -f unit_tests network_tests long_network_tests routed_tests
export -f kill_tests
export -f arm64_tests tidy free_port quickstart
export -f old_processor_tests fuzz python_tests node_tests triton_tests kserve_tests interop
export -f framework_tests page_tests monitoring_tests package_tests container_tests helm_tests
export -f release_tests cluster_tests
export -f compare_with_grpcpp model_figures

release_options=(-DEMBAG_FOLDERS="kernels;proto;server;client;tests")
packages=--tests
network_options=(--quick)
if $all || $long; then
    packages=--all
fi
if $all; then
    network_options=()
    release_options+=(-DEMBAG_BENCH_PEERS=ON)
fi

printf '\n== packages\n'
# Runs in the foreground, so that sudo can ask for a password.
timeout --foreground -k 10 600 deploy/install-packages.sh "$packages" || give_up
[[ -x $python ]] || give_up "$python is missing: the tests run with Debian's python3"
$long || section 60 "tidy and format" tidy
if section 1500 "build" build release "${release_options[@]}" && ! $long; then
    ! $all || build_ahead asan tsan arm64 fuzz
    section 300 "unit tests and variants" unit_tests release
    section 1500 "network tests" network_tests release "${network_options[@]}"
    section 300 "quickstart" quickstart
fi
if $all; then
    section 300 "network tests through a router" routed_tests
    if section 1500 "build with address and undefined sanitizers" finish_build asan; then
        section 1500 "unit tests, sanitized" unit_tests asan
        section 1500 "network tests, sanitized" network_tests asan --quick
    fi
    if section 1500 "build with thread sanitizer" finish_build tsan; then
        # Tests without threads are left out.
        section 1500 "unit tests, thread sanitizer" unit_tests tsan \
            -E '^(variants|codec.*|fuzz_.*)$'
        section 1500 "network tests, thread sanitizer" network_tests tsan --quick
    fi
    section 600 "variants on older processors, emulated" old_processor_tests
    if section 600 "build of kernels for arm64" finish_build arm64; then
        section 300 "unit tests and variants on arm64, emulated" arm64_tests
    fi
    section 400 "models that change under load, small" model_figures
    section 400 "status page in Chromium" page_tests
    section 200 "metrics, rules and dashboard with Prometheus" monitoring_tests
    section 400 "cluster, short" cluster_tests
    section 900 "Debian packages, under systemd" package_tests
    section 1200 "container image" container_tests
    section 1500 "Helm chart" helm_tests
    section 1500 "release" release_tests
    section 900 "clients: Python package" python_tests
    section 600 "clients: PyTorch" framework_tests
    section 300 "clients: grpc-js" node_tests
    section 600 "clients: tritonclient, and the same calls from grpc++" triton_tests
    section 300 "clients: KServe" kserve_tests
    section 900 "clients: stock gRPC, over every transport" interop \
        grpcio grpc++ grpc-js grpc-go grpcurl balance
    section 100 "drain under load" interop drain
    section 500 "h2spec" interop h2spec
    section 300 "clients: h2load, compared with grpc++" compare_with_grpcpp
    if section 1500 "build of fuzz targets" finish_build fuzz; then
        section 900 "fuzz targets" fuzz 10
    fi
fi

if $long; then
    section 3600 "attacks, long" long_network_tests
    section 3600 "kills at random times" kill_tests
    section 4500 "cluster" cluster_tests --long
    EMBAG_LONG=1 section 3000 "release, all of it built twice" release_tests
    EMBAG_LONG=1 section 3000 "Helm chart, with an API server" helm_tests
    section 3600 "clients: PyTorch, TorchRec and TensorFlow" framework_tests --long
    if section 1500 "build of fuzz targets" build_preset fuzz; then
        section 3600 "fuzz targets, long" fuzz 180
    fi
fi

if ((${#skipped[@]} > 0)); then
    printf '\n== skipped\n'
    printf '  %s\n' "${skipped[@]}"
fi
printf '\n%d passed, %d failed\n' "$passed_total" "$failed_total"
((failed_total == 0))
