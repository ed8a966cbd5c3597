# Functions that the benchmarks of servers share; sourced by them, from the repository's root, under
# `set -euo pipefail`. Servers run on one core, `server_cpu`, load on another, `load_cpu`. What
# start_server has started is ended when the script ends.
# shellcheck shell=bash

python=/usr/bin/python3
servers=()

# fail TEXT: says what is wrong, and ends the script.
fail() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

# refuse TEXT: the command line is wrong; ends the script.
refuse() {
    printf '%s: %s; --help says more\n' "${0##*/}" "$*" >&2
    exit 2
}

# show_help: the comment at the head of the script.
show_help() { sed -n '2,/^set/s/^#\( \|$\)//p' "tests/bench/${0##*/}"; }

# value, count, time_span OPTION [VALUE]...: print the value that an option has on the command line:
# any, a whole number of at least 1, seconds. End the script, if called as VARIABLE=$(...), where it
# is none.
value() {
    [[ -n ${2:-} ]] || refuse "$1 needs a value"
    printf '%s\n' "$2"
}
count() {
    [[ ${2:-} =~ ^[1-9][0-9]{0,8}$ ]] || refuse "$1 '${2:-}': needs a whole number of at least 1"
    printf '%s\n' "$2"
}
time_span() {
    [[ ${2:-} =~ ^([1-9][0-9]{0,4}(\.[0-9]+)?|0\.[1-9][0-9]*)$ ]] ||
        refuse "$1 '${2:-}': needs seconds, at least 0.1"
    printf '%s\n' "$2"
}

# read_build ARGUMENT...: the command line of a script in figure_options.py; leaves the folder of
# the build in `build`. Ends the script where help is asked for or something is wrong.
read_build() {
    local -x PYTHONDONTWRITEBYTECODE=1
    local command=("$python" tests/bench/figure_options.py "${0##*/}" "$@")
    [[ " $* " != *" --help "* && " $* " != *" -h "* ]] || exec "${command[@]}"
    build=$("${command[@]}")
}

# note TEXT: progress, on stderr, so that what is measured can be piped.
note() { printf '%s\n' "$*" >&2; }

# need TOOL...: what is missing must show before anything is written or measured.
need() {
    local tool
    for tool in "$@"; do
        command -v "$tool" >/dev/null ||
            fail "$tool is missing; this installs and builds what is needed:
  deploy/install-packages.sh --all
  cmake --fresh --preset release -DEMBAG_BENCH_PEERS=ON && cmake --build build/release"
    done
}

# The first two of the CPUs that this process may use.
pick_cores() {
    local cpus
    read -r -a cpus < <("$python" -c 'import os; print(*sorted(os.sched_getaffinity(0)))')
    server_cpu=${cpus[0]}
    load_cpu=${cpus[1]:-$server_cpu}
    [[ $server_cpu != "$load_cpu" ]] || note "one core only: servers and load share it"
}

# processor: what these figures were measured on.
processor() { grep -m1 'model name' /proc/cpuinfo | sed 's/.*: //' || true; }

# launch LOG COMMAND...: starts a server on its core; leaves its pid in `pid`.
launch() {
    local log=$1
    shift
    : >"$log"
    taskset -c "$server_cpu" "$@" >>"$log" 2>&1 &
    pid=$!
    servers+=("$pid")
}

# wait_ready LOG TEXT: until the server `pid` has said so in its log.
wait_ready() {
    local tenths
    for ((tenths = 0; tenths < 1200; tenths++)); do
        ! grep -q "$2" "$1" || return 0
        [[ -d /proc/$pid ]] || break
        sleep 0.1
    done
    cat "$1" >&2
    fail "a server did not start; this is its log: $1"
}

# start_server LOG COMMAND...: starts a server that says event=listening and event=ready. Leaves its
# pid in `pid` and its address in `address`.
start_server() {
    launch "$@"
    wait_ready "$1" 'event=ready'
    address=$(sed -n '/event=listening/s/.*\(127\.0\.0\.1:[0-9]*\).*/\1/p' "$1")
}

# stop_server PID: ends a server that start_server has started, and waits for its end.
stop_server() {
    local kept=() other
    for other in "${servers[@]}"; do
        [[ $other == "$1" ]] || kept+=("$other")
    done
    servers=("${kept[@]}")
    kill "$1" 2>/dev/null || true
    wait "$1" 2>/dev/null || true
}

stop_servers() {
    local pid
    for pid in "${servers[@]}"; do
        kill "$pid" 2>/dev/null || true
    done
    wait
}
trap stop_servers EXIT

# cpu_ticks PID: clock ticks of CPU that a process has used, its ended threads included.
cpu_ticks() { sed 's/.*) //' "/proc/$1/stat" | awk '{print $12 + $13}'; }

# cpu_ns PID: the same in nanoseconds, by the process's clock, whose number is made of its pid.
cpu_ns() {
    "$python" -c 'import sys, time
print(time.clock_gettime_ns(~int(sys.argv[1]) << 3 | 2))' "$1"
}

# cpu_us TICKS COUNT: microseconds of CPU for each of COUNT.
cpu_us() {
    awk -v ticks="$1" -v n="$2" -v hz="$(getconf CLK_TCK)" \
        'BEGIN {printf "%.2f\n", ticks / hz / (n ? n : 1) * 1e6}'
}

# rss_mib PID: memory of a process that is in RAM.
rss_mib() { awk '/^VmRSS:/ {printf "%.0f\n", $2 / 1024}' "/proc/$1/status"; }

# median: of the numbers on stdin, one a line.
median() { sort -g | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }

# json_value KEY FILE: a value of the JSON object in FILE; "a.b" is b of the object a.
json_value() {
    "$python" -c '
import functools, json, sys
whole = json.load(open(sys.argv[2]))
value = functools.reduce(lambda at, key: at[key], sys.argv[1].split("."), whole)
print(json.dumps(value) if isinstance(value, (dict, list)) else value)' "$1" "$2"
}
