#!/usr/bin/env bash
# Shows the whole loop on this machine and removes everything again. See examples/demo for
# the code that is called.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/sandboxes.sh

say "1. Install what is missing, build"
prepare

say "2. A daemon and a sandbox"
daemon_and_sandbox
show "bin/agentix sandbox ls"
note "(for the commands below: export AGENTIX_ADDRESS=$AGENTIX_ADDRESS)"

say "3. A call by the command line"
show "bin/agentix call box app::run --kwargs '{\"input\": \"hello\"}'"
show "bin/agentix call box app::powers --args '[2, [53, 70]]'"

say "4. The same by curl, over the Unix socket and over TCP with the token"
body="'{\"callable\": \"app::run\", \"kwargs\": {\"input\": \"hello\"}}'"
show "curl -sS --fail-with-body --unix-socket $state/d/agentixd.sock -d $body http://localhost/v1/sandboxes/box:remote"
note ""
show "curl -sS --fail-with-body -H \"Authorization: Bearer \$(cat $state/d/token)\" -d $body $url/v1/sandboxes/box:remote"
note ""

say "5. The same by the Python SDK, in a sandbox of its own; its log records arrive here"
note "  async with provider.session(config) as sandbox:"
note "      print(await sandbox.remote(run, input=\"hello\"))"
show "export PYTHONPATH=$root/worker/src:$root/sdk/python/src:$root/gen/python"
show "$python examples/demo/sdk.py $project $image"

say "6. The same by a bare generated stub"
show "$python examples/demo/stub.py box"
unset PYTHONPATH

say "7. A unit-test file in the sandbox; log records, output and spans stream in meanwhile"
printf '$ %s\n' "bin/agentix events box --follow --tail 1 &"
bin/agentix events box --follow --tail 1 > >(tee "$state/events") 2>"$state/follower.err" &
follower=$!
until grep -q . "$state/events" 2>/dev/null; do sleep 0.05; done
show "bin/agentix call box checks::run --args '[\"test_shop\"]' --call-id demo-tests" | tee "$state/counts"
until grep -qF 'finished checks::run' "$state/events"; do sleep 0.05; done
kill "$follower"
wait "$follower" || true
follower=
grep -qF 'a child process says hello' "$state/events"
grep -qF '"passed":3' <(tr -d ' ' <"$state/counts")
grep -qF '"failed":1' <(tr -d ' ' <"$state/counts")

say "8. A function that fails, with its traceback from the sandbox"
code=0
show "bin/agentix call box app::settle --args '[\"12.50\", 0]'" || code=$?
note "(exit code $code)"
[ $code = 1 ]

say "9. Remove everything"
show "bin/agentix sandbox rm box"
show "bin/agentix sandbox ls"
