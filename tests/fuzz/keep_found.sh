#!/usr/bin/env bash
# Adds inputs that the fuzz targets have found to the corpora, and minimises them:
#   tests/fuzz/keep_found.sh [NAME...]
# Keeps all inputs that people have named. Of the others (found_* in the corpus, and the inputs in
# build/fuzz/found/NAME) it keeps a small set that reaches the same code. Prints for each target the
# number of edges and of inputs (bytes) before and after.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
bytes_max=4096 # of an input; larger ones seldom reach code that small ones do not

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

count_edges() { "$1" -runs=0 "$2" 2>&1 | sed -n 's/.*DONE *cov: \([0-9]*\).*/\1/p'; }

describe() {
    printf '%s edges, %s inputs (%s bytes)' "$(count_edges "$1" "$2")" \
        "$(find "$2" -type f | wc -l)" "$(cat "$2"/* | wc -c)"
}

keep_found() {
    local name=$1 target=build/fuzz/fuzz_$1 corpus=tests/fuzz/corpus/$1 file before kept
    local named=$work/$1/named others=$work/$1/others
    mkdir -p "$named" "$others"
    before=$(describe "$target" "$corpus")
    for file in "$corpus"/*; do
        if [[ $file == */found_* ]]; then
            cp "$file" "$others"
        else
            cp "$file" "$named"
        fi
    done
    if [[ -d build/fuzz/found/$name/corpus ]]; then
        find "build/fuzz/found/$name/corpus/" -type f -size "-$((bytes_max + 1))c" \
            -exec cp -t "$others" {} +
    fi
    # Compares edges only. If execution counts mattered too, several times as many inputs would be
    # kept.
    "$target" -set_cover_merge=1 -use_counters=0 "$named" "$others" 2>"$work/log" ||
        { cat "$work/log" >&2; return 1; }
    # Adds new inputs before it removes old ones, so that an interruption leaves too many rather
    # than too few.
    local -A is_kept=()
    for file in "$named"/*; do
        if [[ ! -e $corpus/${file##*/} ]]; then
            kept=found_$(sha1sum "$file" | head -c 12)
            cp "$file" "$corpus/$kept"
            is_kept[$kept]=1
        fi
    done
    for file in "$corpus"/found_*; do
        [[ -n ${is_kept[${file##*/}]:-} ]] || rm -f "$file"
    done
    printf '%s: %s; now %s\n' "$name" "$before" "$(describe "$target" "$corpus")"
}

(($# > 0)) || set -- $(find build/fuzz -maxdepth 1 -name 'fuzz_*' -type f -perm -u+x |
    sed 's,.*/fuzz_,,' | sort)
for name in "$@"; do
    keep_found "$name"
done
