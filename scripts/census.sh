#!/usr/bin/env bash
# Runs a command, and fails if it fails or if it leaves anything of sandboxes on the host:
# containers, tasks, snapshots, leases, mounts, cgroups, network namespaces, sockets, processes.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
go build -o "$dir/census" ./test/census
"$dir/census" >"$dir/before.json"
"$@"
echo "== census: before and after"
"$dir/census" --compare "$dir/before.json"
