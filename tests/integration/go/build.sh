#!/usr/bin/env bash
# Builds the grpc-go clients in a build folder; grpcurl is built by interop.py.
#     tests/integration/go/build.sh DIR
# Exit status 77: Go is not installed, or no module proxy answers.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source=$(cd "$here/../../.." && pwd)
build=${1:?usage: $0 DIR}
PATH=$PATH:/usr/local/go/bin
command -v go >/dev/null || {
    echo "Go is not installed"
    exit 77
}
mkdir -p "$build/client" "$build/bin"
build=$(cd "$build" && pwd)
export GOBIN=$build/bin GOFLAGS=-buildvcs=false
cp -R "$here"/{main.go,balance,go.mod,go.sum} "$build/client/"
cd "$build/client"
timeout 120 go mod download google.golang.org/grpc google.golang.org/protobuf \
    github.com/cncf/xds/go github.com/envoyproxy/protoc-gen-validate || {
    echo "no Go module proxy answers"
    exit 77
}
go install google.golang.org/protobuf/cmd/protoc-gen-go
protoc --plugin="$GOBIN/protoc-gen-go" -I "$source/proto" --go_out=. embag/v1/embedding_bag.proto
go build -o "$GOBIN/interop" .
go build -o "$GOBIN/balance" ./balance
