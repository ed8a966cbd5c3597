#!/bin/bash
# Tests the Open Inference Protocol with its clients: tritonclient and perf_analyzer, which are
# installed below the build folder, once, and the same calls from grpc++. A client is skipped if no
# package index answers, or if the index has none for this machine; a line says why.
#     tests/integration/triton/run.sh --embagd PATH --build DIR
# Prints "N passed, N failed" at the end; the exit status is 0 if none failed.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
proto=$here/../../../proto
client=tritonclient[grpc]==2.73.0

embagd= build=
# shellcheck source=tests/lib/options.sh
source "$here/../../lib/options.sh"
# shellcheck source=tests/lib/pip.sh
source "$here/../../lib/pip.sh"
read_options '--embagd PATH --build DIR' "$@"

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
    "$python" -m venv "$venv"
    if install_packages tritonclient 200 "$venv/bin/pip" "$client"; then
        echo "$client" >"$venv/installed"
    fi
fi
[[ ! -f $venv/installed ]] || python=$venv/bin/python

# A wheel of tritonclient that contains perf_analyzer, which the client's version above lacks, and
# the CUDA library with which it is linked. It needs no GPU.
analyzer_wheels=(tritonclient==2.50.0 nvidia-cuda-runtime-cu12==12.4.127)
analyzer=$build/analyzer
if [[ ! -f $analyzer/installed || $(<"$analyzer/installed") != "${analyzer_wheels[*]}" ]]; then
    rm -rf "$analyzer"
    if install_packages perf-analyzer 200 "$venv/bin/pip" --no-deps --target "$analyzer" \
        "${analyzer_wheels[@]}"; then
        echo "${analyzer_wheels[*]}" >"$analyzer/installed"
    fi
fi
export LD_LIBRARY_PATH=$analyzer/nvidia/cuda_runtime/lib
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$here/../../lib
exec "$python" "$here/triton_test.py" "$embagd" "$build/infer-sequence" \
    "$analyzer/bin/perf_analyzer"
