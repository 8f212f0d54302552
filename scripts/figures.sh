#!/usr/bin/env bash
# Measures a daemon of its own: on containers, or on plain processes where those cannot run.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/sandboxes.sh

prepare
daemon_and_sandbox
export PYTHONPATH=$root/worker/src:$root/sdk/python/src:$root/gen/python
"$python" scripts/figures.py "$project" $image
