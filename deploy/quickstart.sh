#!/usr/bin/env bash
# From a checkout to answered lookups: installs missing packages, builds, writes two models, starts
# the server, and sends it the specification's examples and lookups in a recommender's 26 tables.
#   deploy/quickstart.sh [--port N] [--once]
# The server keeps running until the next run on its port; its status page is on port N + 1. --once
# stops it at the end.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."

port=8600
once=false
while (($# > 0)); do
    case $1 in
    --once) once=true ;;
    --port)
        port=${2:-}
        shift
        ;;
    *) port= ;;
    esac
    if [[ ! $port =~ ^[1-9][0-9]{0,4}$ ]] || ((port > 65534 || $# == 0)); then
        echo "usage: deploy/quickstart.sh [--port N] [--once]" >&2
        exit 2
    fi
    shift
done
address=127.0.0.1:$port
http_port=$((port + 1))
http_address=127.0.0.1:$http_port
work=build/quickstart
build=build/release
log=$work/embagd-$port.log
pid_file=$work/embagd-$port.pid
admin=unix:$work/admin-$port.sock
server=0

say() { printf '\n== %s\n' "$*"; }

fail() {
    printf 'quickstart: %s\n' "$*" >&2
    exit 1
}

# Runs a command and prints its output only if it fails.
run_quietly() {
    "$@" >"$work/build.log" 2>&1 || {
        cat "$work/build.log" >&2
        fail "$1 failed, see above"
    }
}

# Stops a process and waits for its end. Returns its exit status if it is a child of this shell.
stop_server() {
    kill "$1" 2>/dev/null || return 0
    wait "$1" 2>/dev/null || return $?
}

# Stops the server that an earlier run left on this port.
stop_earlier_server() {
    local pid
    pid=$(cat "$pid_file" 2>/dev/null) || return 0
    rm -f "$pid_file"
    [[ $(readlink "/proc/$pid/exe" 2>/dev/null) == "$PWD/$build/embagd"* ]] || return 0
    echo "stopping the server of an earlier run (pid $pid)"
    kill "$pid" 2>/dev/null || return 0
    for ((tenths = 0; tenths < 350; tenths++)); do
        [[ -d /proc/$pid ]] || return 0
        sleep 0.1
    done
    fail "pid $pid did not end within 35 s"
}

port_answers() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# Prints the answer of the operators' port for a path, with its headers.
fetch() {
    exec 3<>"/dev/tcp/127.0.0.1/$http_port"
    printf 'GET %s HTTP/1.0\r\n\r\n' "$1" >&3
    cat <&3
    exec 3>&-
}

# Returns whether the build directory was configured for this checkout where it is now, not before
# the checkout was moved or copied.
is_configured() {
    [[ -f $build/build.ninja &&
        $(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$build/CMakeCache.txt") -ef $PWD ]]
}

build_server() {
    if ! is_configured; then
        run_quietly cmake --fresh --preset release -DEMBAG_FOLDERS="kernels;proto;server;client"
    fi
    run_quietly cmake --build "$build" --target embagd embag_cli embag_load
}

# The tables of dlrm-v2 have 105 GB at scale 1. For a while they are in memory twice: in the page
# cache and in the server.
choose_scale() {
    local memory disk
    memory=$(awk '/^MemAvailable:/ {print int($2 / 1024)}' /proc/meminfo)
    disk=$(df -Pm "$work" | awk 'NR == 2 {print $4}')
    if ((memory > 3000 && disk > 2000)); then
        echo 200
    elif ((memory > 500 && disk > 500)); then
        echo 2000
    else
        echo 20000
    fi
}

# make-model renames a finished model into place, so a model that exists is complete.
write_models() {
    [[ -d $work/models/spec ]] || "$build/embag" make-model --example spec "$work/models"
    [[ -d $work/models/dlrm-v2 ]] ||
        "$build/embag" make-model --workload dlrm-v2 --scale "$(choose_scale)" "$work/models"
    du -sh "$work/models"
}

start_server() {
    # The log is emptied first. Otherwise the event=ready of an earlier run would be found.
    : >"$log"
    setsid "$build/embagd" --model-repository "$work/models" --listen "$address" \
        --admin-listen "$admin" --http-listen "$http_address" >/dev/null 2>>"$log" </dev/null &
    server=$!
    trap 'stop_server "$server" || true' EXIT
    for ((tenths = 0; tenths < 600; tenths++)); do
        if grep -q 'event=ready' "$log"; then
            echo "$server" >"$pid_file"
            return 0
        fi
        if [[ ! -d /proc/$server ]]; then
            cat "$log" >&2
            fail "the server did not start, see above"
        fi
        sleep 0.1
    done
    fail "the server was not ready within a minute; its log is $log"
}

mkdir -p "$work" 2>/dev/null && [[ -w $work ]] || fail "$PWD/$work is not writable"
stop_earlier_server
for taken in "$port" "$http_port"; do
    ! port_answers "$taken" ||
        fail "port $taken is in use; stop its listener, or choose another port: --port N"
done

say "packages"
deploy/install-packages.sh
say "build"
build_server
echo "$build/embagd, $build/embag, $build/embag-load"
say "models"
write_models
say "server"
start_server
echo "pid $server, gRPC on $address, status page on http://$http_address/, log in $log"
[[ $(fetch /readyz) == "HTTP/1."?" 200 "* ]] || fail "http://$http_address/readyz is not ready"
say "the specification's examples, over the network"
"$build/embag" demo --server "$address" --cases tests/conformance/spec_examples.json
say "lookups of dlrm-v2"
"$build/embag" demo --server "$address" --lookups 20
say "versions, over the admin socket"
"$build/embag" models status --server "$admin"

if $once; then
    trap - EXIT
    rm -f "$pid_file"
    stop_server "$server" || fail "the server ended with status $?; its log is $log"
    say "stopped"
    exit 0
fi
trap - EXIT
say "the server is running"
cat <<END
see:       http://$http_address/ in a browser
try next:  $PWD/$build/embag lookup --server $address --model spec --table emb_table \\
               --indices 0,2,3,4 --offsets 0,2,2
           $PWD/$build/embag-load --server $address --workload dlrm-v2 --duration 3
           $PWD/$build/embag models status --server unix:$PWD/$work/admin-$port.sock
stop:      kill $server
END
