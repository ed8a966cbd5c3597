# The command line of a script of tests; sourced by it, under `set -euo pipefail`.
# shellcheck shell=bash

# read_options '--NAME WHAT...' ARGUMENT...: puts the value of each of the options into the variable
# NAME, which is empty before. Where one is missing or unknown it says so and ends the script.
read_options() {
    local usage=$1 word name is_right=true
    shift
    while (($# > 1)) && [[ $1 == --* && " $usage " == *" $1 "* ]]; do
        printf -v "${1#--}" %s "$2"
        shift 2
    done
    for word in $usage; do
        name=${word#--}
        [[ $word != --* || -n ${!name} ]] || is_right=false
    done
    if (($# > 0)) || ! $is_right; then
        echo "usage: $0 $usage" >&2
        exit 2
    fi
}
