#!/usr/bin/env bash
# Lists the packages that have tests for real containers.
set -euo pipefail
cd "$(dirname "$0")/.."
grep -rlE --include='*_test.go' '^//go:build containerd' . | xargs -r -n1 dirname | sort -u
