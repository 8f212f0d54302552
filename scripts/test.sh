#!/usr/bin/env bash
# All tests in the order that fails fastest, with the time that each step took.
set -euo pipefail
cd "$(dirname "$0")/.."

step() {
  local began=$SECONDS
  echo "== make $1"
  make --no-print-directory "$1"
  echo "== make $1: $((SECONDS - began)) s"
}

if [ -z "${AGENTIX_CENSUS:-}" ]; then
  # What sandboxes use on the host must be the same before and after.
  AGENTIX_CENSUS=1 exec scripts/census.sh "$0"
fi
for target in check-generate lint test-unit test-containerd test-faults test-python test-interop test-demo fuzz-short; do
  step "$target"
done
echo "== all in $SECONDS s"
