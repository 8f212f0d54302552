#!/usr/bin/env bash
# Generates gen/ from proto/: Go, gateway and OpenAPI by buf with local plugins, Python by grpcio-tools.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
buf=(go tool -modfile=tools/go.mod buf)

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

"${buf[@]}" generate

protos=(proto/agentix/v1/*.proto)
# The plugins of mypy-protobuf type the messages and the service stubs.
PATH="$(dirname "$python"):$PATH" "$python" -m grpc_tools.protoc \
  --proto_path=proto --proto_path=third_party/googleapis \
  --python_out="$out" --mypy_out="$out" --grpc_python_out="$out" --mypy_grpc_out="$out" \
  "${protos[@]}"
rm -rf gen/python
mkdir -p gen/python/agentix
mv "$out/agentix/v1" gen/python/agentix/v1
find gen/python -name '*_pb2_grpc.py*' -print0 | while IFS= read -r -d '' stub; do
  # A file without a service has an empty stub: leave it out.
  grep -q 'Stub' "$stub" || rm "$stub"
done
touch gen/python/agentix/v1/py.typed
