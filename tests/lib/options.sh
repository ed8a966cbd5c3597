# Parses the command line of a test script, which sources this file under `set -euo pipefail`.
# shellcheck shell=bash

# read_options '--NAME WHAT...' ARGUMENT...: stores the value of each option in the variable NAME,
# which must be empty before. If an option is missing or unknown, it prints the usage and ends the
# script.
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
