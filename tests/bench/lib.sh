# Functions that the benchmarks of servers share. They source this file from the repository's root,
# under `set -euo pipefail`. Servers run on one core, `server_cpu`, and load on another, `load_cpu`.
# Servers that start_server has started are ended when the script ends.
# shellcheck shell=bash

python=/usr/bin/python3
servers=()

# fail TEXT: prints an error and ends the script.
fail() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

# refuse TEXT: reports an invalid command line and ends the script.
refuse() {
    printf '%s: %s; see --help\n' "${0##*/}" "$*" >&2
    exit 2
}

# show_help: prints the comment at the head of the script.
show_help() { sed -n '2,/^set/s/^#\( \|$\)//p' "tests/bench/${0##*/}"; }

# value, count, time_span OPTION [VALUE]...: print the value of an option on the command line: any
# text, a whole number of at least 1, or seconds. If it is invalid, they end the script, provided
# that they are called as VARIABLE=$(...).
value() {
    [[ -n ${2:-} ]] || refuse "$1 needs a value"
    printf '%s\n' "$2"
}
count() {
    [[ ${2:-} =~ ^[1-9][0-9]{0,8}$ ]] ||
        refuse "$1 '${2:-}': expected a whole number of at least 1"
    printf '%s\n' "$2"
}
time_span() {
    [[ ${2:-} =~ ^([1-9][0-9]{0,4}(\.[0-9]+)?|0\.[1-9][0-9]*)$ ]] ||
        refuse "$1 '${2:-}': expected seconds, at least 0.1"
    printf '%s\n' "$2"
}

# read_build ARGUMENT...: checks the command line of a script with figure_options.py. Sets `build`
# to the folder of the build. Ends the script after --help, or if the command line is invalid.
read_build() {
    local -x PYTHONDONTWRITEBYTECODE=1
    local command=("$python" tests/bench/figure_options.py "${0##*/}" "$@")
    [[ " $* " != *" --help "* && " $* " != *" -h "* ]] || exec "${command[@]}"
    build=$("${command[@]}")
}

# note TEXT: prints progress on stderr, so that figures on stdout can be piped.
note() { printf '%s\n' "$*" >&2; }

# need TOOL...: ends the script if a tool is missing, before anything is written or measured.
need() {
    local tool
    for tool in "$@"; do
        command -v "$tool" >/dev/null ||
            fail "$tool is missing; this installs and builds what is needed:
  deploy/install-packages.sh --all
  cmake --fresh --preset release -DEMBAG_BENCH_PEERS=ON && cmake --build build/release"
    done
}

# pick_cores: sets `server_cpu` and `load_cpu` to the first two CPUs that this process may use.
pick_cores() {
    local cpus
    read -r -a cpus < <("$python" -c 'import os; print(*sorted(os.sched_getaffinity(0)))')
    server_cpu=${cpus[0]}
    load_cpu=${cpus[1]:-$server_cpu}
    [[ $server_cpu != "$load_cpu" ]] || note "there is only one core: servers and load share it"
}

# processor: prints the name of the processor.
processor() { grep -m1 'model name' /proc/cpuinfo | sed 's/.*: //' || true; }

# launch LOG COMMAND...: starts a server on its core. Sets `pid`.
launch() {
    local log=$1
    shift
    : >"$log"
    taskset -c "$server_cpu" "$@" >>"$log" 2>&1 &
    pid=$!
    servers+=("$pid")
}

# wait_ready LOG TEXT: waits until the log of the server `pid` has the text.
wait_ready() {
    local tenths
    for ((tenths = 0; tenths < 1200; tenths++)); do
        ! grep -q "$2" "$1" || return 0
        [[ -d /proc/$pid ]] || break
        sleep 0.1
    done
    cat "$1" >&2
    fail "a server did not start; its log is $1"
}

# start_server LOG COMMAND...: starts a server that logs event=listening and event=ready. Sets `pid`
# and `address`.
start_server() {
    launch "$@"
    wait_ready "$1" 'event=ready'
    address=$(sed -n '/event=listening/s/.*\(127\.0\.0\.1:[0-9]*\).*/\1/p' "$1")
}

# stop_server PID: ends a server that start_server has started, and waits until it has ended.
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

# cpu_ticks PID: prints the CPU time of a process, including its ended threads, in clock ticks.
cpu_ticks() { sed 's/.*) //' "/proc/$1/stat" | awk '{print $12 + $13}'; }

# cpu_ns PID: prints the CPU time of a process in nanoseconds. Reads it from the clock of the
# process, whose id follows from the pid.
cpu_ns() {
    "$python" -c 'import sys, time
print(time.clock_gettime_ns(~int(sys.argv[1]) << 3 | 2))' "$1"
}

# cpu_us TICKS COUNT: prints TICKS in microseconds, divided by COUNT.
cpu_us() {
    awk -v ticks="$1" -v n="$2" -v hz="$(getconf CLK_TCK)" \
        'BEGIN {printf "%.2f\n", ticks / hz / (n ? n : 1) * 1e6}'
}

# rss_mib PID: prints the resident memory of a process in MiB.
rss_mib() { awk '/^VmRSS:/ {printf "%.0f\n", $2 / 1024}' "/proc/$1/status"; }

# median: prints the median of the numbers on stdin, one per line.
median() { sort -g | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }

# json_value KEY FILE: prints a value of the JSON object in FILE. The key a.b is b in the object a.
json_value() {
    "$python" -c '
import functools, json, sys
whole = json.load(open(sys.argv[2]))
value = functools.reduce(lambda at, key: at[key], sys.argv[1].split("."), whole)
print(json.dumps(value) if isinstance(value, (dict, list)) else value)' "$1" "$2"
}
