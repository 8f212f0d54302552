"""Makes a table of cases and runtimes of `go test -json ./test/external` on stdin; what failed is printed whole."""

from __future__ import annotations

import collections
import json
import re
import sys

rows: dict[str, dict[str, str]] = {}
output: dict[str, list[str]] = collections.defaultdict(list)
failed: list[str] = []
ended = False

for line in sys.stdin:
    try:
        event = json.loads(line)
    except ValueError:
        sys.stdout.write(line)
        continue
    test, action = event.get("Test", ""), event["Action"]
    if action in ("output", "build-output"):
        output[test].append(event["Output"])
    elif action in ("pass", "fail", "skip"):
        ended = ended or not test
        if action == "fail":
            failed.append(test)
        name, _, runtime = test.removeprefix("Test").partition("/")
        if name:
            case = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name).lower()
            rows.setdefault(case, {})[runtime.partition("/")[0]] = {"pass": "ok", "fail": "FAILED", "skip": "-"}[action]

for test in failed:
    print("".join(output[test]))
columns = sorted({column for row in rows.values() for column in row if column})
width = max(map(len, rows), default=4)
print("=== cases x runtimes, for our daemon")
print(" | ".join(["case".ljust(width), *(c.ljust(10) for c in columns)]))
for case, row in rows.items():
    cells = [row.get(c, row[""] if set(row) == {""} and c == columns[0] else "") for c in columns]
    print(" | ".join([case.ljust(width), *(c.ljust(10) for c in cells)]))
passed = sum(result == "ok" for row in rows.values() for result in row.values())
print(f"{passed} passed, {len(failed)} failed")
sys.exit(0 if ended and not failed and rows else 1)
