#!/usr/bin/env bash
# Fails if docs/SPECIFICATION.md names a test that does not exist.
set -euo pipefail
cd "$(dirname "$0")/.."
missing=0
while read -r name; do
  if ! grep -rqE --include='*_test.go' --include='test_*.py' "(func|def) $name\(" daemon internal providers runtime test worker/tests sdk/python/tests; then
    echo "docs/SPECIFICATION.md names $name, which does not exist" >&2
    missing=1
  fi
done < <(grep -oE '`(Test|test_|Fuzz)[A-Za-z0-9_]+`' docs/SPECIFICATION.md | tr -d '`' | sort -u)
exit $missing
