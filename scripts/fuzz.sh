#!/usr/bin/env bash
# Runs every fuzz test for a fixed number of executions (default 2000).
set -euo pipefail
cd "$(dirname "$0")/.."
executions=${1:-2000}
grep -rnoE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' . | while IFS=: read -r file _ function; do
  echo "fuzz $file ${function#func }"
  go test -run '^$' -fuzz "^${function#func }\$" -fuzztime "${executions}x" "./$(dirname "${file#./}")" </dev/null
done
