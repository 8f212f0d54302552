#!/usr/bin/env bash
# The neighbours of the public protocol at our ends, as a table of cases and peers: hosts of
# python-socketio and of socket.io-client, workers and servers that were written from the
# protocol alone and, where UPSTREAM_PYTHON names an interpreter that has it installed
# already, the neighbour's own. Usage: interop.sh [hosts|all|full]
#   hosts  hosts at our runtime and at our worker
#   all    these, and our daemon at runtimes of others
#   full   all, in the long form
set -euo pipefail
cd "$(dirname "$0")/.."
form=${1:-all}
root=$PWD

scripts/deps.sh python js
scripts/venv.sh dev
js=test/interop/js
if ! cmp -s "$js/package-lock.json" "$js/node_modules/.stamp"; then
  echo "interop: installing the packages of $js/package-lock.json"
  npm ci --prefix "$js" --no-audit --no-fund --silent
  cp "$js/package-lock.json" "$js/node_modules/.stamp"
fi
CGO_ENABLED=0 go build -trimpath -o bin/ ./runtime/cmd/agentix-runtime

unset AGENTIX_LOG_BUFFER AGENTIX_TRACE_BUFFER AGENTIX_TOKEN
export AGENTIX_RUNTIME=$root/bin/agentix-runtime AGENTIX_INTEROP_TABLE=1
[ "$form" != full ] || export AGENTIX_INTEROP_FULL=1
status=0
(cd test/interop && "$root/.venv/bin/python" -m pytest -q) || status=$?
if [ "$form" != hosts ]; then
  go test -json -count=1 -timeout 60m ./test/external | .venv/bin/python test/interop/daemon_table.py || status=$?
fi
exit $status
