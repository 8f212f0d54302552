#!/usr/bin/env bash
# Makes .venv with the pinned packages of scripts/requirements-<set>.txt (set: demo, dev), once.
set -euo pipefail
cd "$(dirname "$0")/.."
set=${1:?demo or dev}
wanted=$(cat scripts/requirements-demo.txt "scripts/requirements-$set.txt" | sha256sum)
stamp=.venv/.stamp-$set
if [ -x .venv/bin/python ] && [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
  exit 0
fi
echo "venv: installing the packages of scripts/requirements-$set.txt"
[ -x .venv/bin/python ] && .venv/bin/python -c 'pass' 2>/dev/null || python3 -m venv --clear .venv
.venv/bin/python -m pip install --quiet --disable-pip-version-check -r "scripts/requirements-$set.txt"
echo "$wanted" >"$stamp"
