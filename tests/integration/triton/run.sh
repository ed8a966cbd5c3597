#!/bin/bash
# The Open Inference Protocol with its clients: tritonclient, which is installed below the build
# folder, once, and skipped where no package index answers; and the same calls from grpc++.
#     tests/integration/triton/run.sh --embagd PATH --build DIR
# Ends with a line "N passed, N failed"; exit status 0 if none failed.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
proto=$here/../../../proto
client=tritonclient[grpc]==2.73.0
usage() {
    echo "usage: $0 --embagd PATH --build DIR" >&2
    exit 2
}

embagd= build=
while (($# > 0)); do
    case $1 in
    --embagd) embagd=${2:-} ;;
    --build) build=${2:-} ;;
    *) usage ;;
    esac
    shift $(($# > 1 ? 2 : 1))
done
[[ -n $embagd && -n $build ]] || usage

mkdir -p "$build/generated"
protoc --proto_path="$proto" --cpp_out="$build/generated" --grpc_out="$build/generated" \
    --plugin=protoc-gen-grpc="$(command -v grpc_cpp_plugin)" inference/open_inference.proto
read -ra flags < <(pkg-config --cflags --libs grpc++ protobuf)
c++ -std=c++17 -I "$build/generated" "$here/infer_sequence.cc" \
    "$build"/generated/inference/open_inference{,.grpc}.pb.cc "${flags[@]}" \
    -o "$build/infer-sequence"

python=/usr/bin/python3
venv=$build/venv
if [[ ! -f $venv/installed ]] || [[ $(<"$venv/installed") != "$client" ]]; then
    rm -rf "$venv"
    if "$python" -m venv "$venv" && timeout 200 "$venv/bin/pip" install -q "$client"; then
        echo "$client" >"$venv/installed"
    fi
fi
[[ ! -f $venv/installed ]] || python=$venv/bin/python
exec "$python" "$here/triton_test.py" "$embagd" "$build/infer-sequence"
