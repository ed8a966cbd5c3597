#!/usr/bin/env bash
# Makes the manual pages of embagd, embag and embag-load from their --help, with help2man.
#     deploy/man/make.sh BIN VERSION OUT
# BIN is the folder of the three programs. OUT receives NAME.SECTION.gz for each program and each
# command of embag. SOURCE_DATE_EPOCH sets the date in the footer.
set -euo pipefail

if (($# != 3)); then
    echo "usage: $0 BIN VERSION OUT" >&2
    exit 2
fi
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bin=$(realpath "$1")
version=$2
mkdir -p "$3"
out=$(realpath "$3")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

pages=(embagd embag embag-lookup embag-models embag-publish embag-settings embag-pack embag-split
    embag-check embag-manifest embag-resident embag-make-model embag-demo embag-load)

section_of() { if [[ $1 == embagd ]]; then echo 8; else echo 1; fi; }

# Turns --help into the layout that help2man reads: further lines of the synopsis begin with "or:",
# a heading above options ends with a colon, and descriptions start in column 24.
to_help2man() {
    awk '
        { lines[NR] = $0 }
        END {
            for (i = 1; i <= NR; i++) {
                line = lines[i]
                in_usage = line ~ /^Usage:/ || (in_usage && line ~ /^       embag/)
                is_heading = line ~ /^[^ ]/ && lines[i + 1] ~ /^  / && lines[i - 1] !~ /^[^ ]/
                if (in_usage)
                    sub(/^       embag/, "  or:  embag", line)
                else if (is_heading)
                    sub(/:?$/, ":", line)
                else if (line ~ /^        [^ ]/)
                    sub(/^ +/, "                        ", line)
                if (sub(/^Exit status: /, "", line))
                    print "\n*Exit status*\n"
                print line
            }
        }'
}

# see_also NAME: prints the section SEE ALSO of a page.
see_also() {
    local other separator=
    echo '[SEE ALSO]'
    for other in "${pages[@]}"; do
        if [[ $other != "$1" ]]; then
            printf '%s.BR %s (%s)' "$separator" "$other" "$(section_of "$other")"
            separator=$' ,\n'
        fi
    done
    printf '\n.PP\nThe guides are in /usr/share/doc/embag.\n'
}

# page NAME SUMMARY PROGRAM [COMMAND...]: makes a manual page.
page() {
    local name=$1 summary=$2 section
    section=$(section_of "$name")
    shift 2
    "$bin/$1" "${@:2}" --help | to_help2man >"$work/$name.help"
    # help2man runs a program that has the page's name, with --help and --version.
    cat >"$work/$name" <<END
#!/bin/sh
case \$1 in
--help) cat "$work/$name.help" ;;
--version) echo "$name $version" ;;
esac
END
    chmod +x "$work/$name"
    cat "$here/$name.txt" <(see_also "$name") >"$work/$name.include" 2>/dev/null ||
        see_also "$name" >"$work/$name.include"
    help2man --no-info --section="$section" --name="$summary" --source="embag $version" \
        --include="$work/$name.include" --output="$work/$name.$section" "$work/$name"
    gzip -9n <"$work/$name.$section" >"$out/$name.$section.gz"
}

page embagd "server of embedding tables over gRPC" embagd
page embag "command line of embag, a server of embedding tables" embag
page embag-lookup "look up bags of rows and print the pooled vectors" embag lookup
page embag-models "list, load, unload and serve the versions of models" embag models
page embag-publish "serve a version on several servers" embag publish
page embag-settings "list and reload the settings of a server" embag settings
page embag-pack "pack, quantise and split a table" embag pack
page embag-split "divide a version among part servers" embag split
page embag-check "check table files and the memory that they need" embag check
page embag-manifest "write or check the list of a version's files" embag manifest
page embag-resident "list, check or delete the tables in a resident_dir" embag resident
page embag-make-model "write an example or a workload's model" embag make-model
page embag-demo "run the specification's examples or timed lookups" embag demo
page embag-load "load generator of embag" embag-load
