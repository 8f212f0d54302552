#!/usr/bin/env bash
# Sourced by demo.sh and figures.sh: a daemon and, where they can run, containers of the
# script's own under a private directory, all removed at the end. Only the cached image,
# bin/ and .venv stay.
export PATH=$PATH:/usr/local/go/bin:/usr/local/sbin:/usr/sbin:/sbin
root=$PWD
began=$SECONDS
cache=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/agentix
project=$root/examples/demo/project
python=$root/.venv/bin/python
why=
image=
unset AGENTIX_TOKEN AGENTIX_PICKLE_TRUST

say() { if [ -t 1 ]; then printf '\n\033[1m%s\033[0m\n' "$*"; else printf '\n%s\n' "$*"; fi; }
note() { printf '%s\n' "$*"; }
show() { # prints a command as a person would paste it, and runs it
  printf '$ %s\n' "$*"
  eval "$*"
}

# --- what this script starts, and how it ends -------------------------------------------
state=$(mktemp -d /tmp/agentix-demo.XXXXXX)
pids=()
follower=
cleanup() {
  local code=$? pid
  trap - EXIT INT TERM
  [ -z "$follower" ] || kill "$follower" 2>/dev/null || true
  if [ -n "${AGENTIX_ADDRESS:-}" ]; then
    bin/agentix sandbox ls -o json 2>/dev/null | grep -o '"name":"sandboxes/[a-z0-9-]*"' | cut -d/ -f2 | tr -d '"' |
      xargs -r bin/agentix sandbox rm --allow-missing || true
  fi
  for ((i = ${#pids[@]} - 1; i >= 0; i--)); do
    pid=${pids[i]}
    kill "$pid" 2>/dev/null || continue
    for _ in $(seq 100); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
    kill -KILL "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  done
  if grep -q " $state/" /proc/mounts; then
    note "demo: mounts were left; unmounting them" >&2
    grep -o " $state/[^ ]*" /proc/mounts | sort -r | xargs -r -n1 umount || true
    [ $code != 0 ] || code=1
  fi
  if [ $code != 0 ]; then
    for log in "$state"/*.log; do
      [ -f "$log" ] && { note "--- end of $log"; tail -n 20 "$log"; } >&2
    done
  fi
  rm -rf "$state"
  [ $code = 0 ] && note "Everything was removed. $((SECONDS - began)) s."
  exit $code
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# --- parts ------------------------------------------------------------------------------
start_containerd() {
  # A containerd of its own: nothing of the host's one, if there is one, is touched.
  cat >"$state/containerd.toml" <<TOML
version = 2
root = "$state/containerd/root"
state = "$state/containerd/state"
disabled_plugins = [
  "io.containerd.grpc.v1.cri", "io.containerd.internal.v1.opt", "io.containerd.internal.v1.restart",
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.tracing.processor.v1.otlp",
]
[grpc]
  address = "$state/containerd.sock"
TOML
  containerd --config "$state/containerd.toml" >"$state/containerd.log" 2>&1 &
  pids+=($!)
  for _ in $(seq 150); do
    if [ -S "$state/containerd.sock" ] && ctr --address "$state/containerd.sock" version >/dev/null 2>&1; then
      return 0
    fi
    kill -0 "${pids[-1]}" 2>/dev/null || break
    sleep 0.1
  done
  why="containerd does not start: $(tail -n 1 "$state/containerd.log")"
  return 1
}

python_image() { # prints the path of a tar with Debian's python3; made once, about 5 s
  local suite tar sources=
  suite=$(. /etc/os-release && [ "$ID" = debian ] && echo "${VERSION_CODENAME:-}")
  suite=${suite:-bookworm}
  tar=$cache/demo-python-$suite.tar
  if [ ! -f "$tar" ]; then
    mkdir -p "$cache"
    for file in /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list; do
      [ -s "$file" ] && grep -q deb "$file" && { sources=$file; break; }
    done
    mmdebstrap --variant=extract --include=python3 --format=tar --quiet "$suite" "$tar.$$" $sources >&2
    mv "$tar.$$" "$tar"
  fi
  echo "$tar"
}

start_daemon() {
  local http
  bin/agentixd --state-dir "$state/d" --http 127.0.0.1:0 --runtime "$root/bin/agentix-runtime" \
    --allow-host-path "$project" "$@" >"$state/agentixd.log" 2>&1 &
  pids+=($!)
  for _ in $(seq 100); do
    if [ -S "$state/d/agentixd.sock" ] && http=$(grep -o 'http-address=[0-9.:]*' "$state/agentixd.log"); then
      url=http://${http#http-address=}
      export AGENTIX_ADDRESS=unix://$state/d/agentixd.sock
      return 0
    fi
    kill -0 "${pids[-1]}" 2>/dev/null || break
    sleep 0.1
  done
  why="agentixd does not start: $(tail -n 1 "$state/agentixd.log")"
  return 1
}

containers() { # everything for real containers; on failure `why` tells what is missing
  [ "$(id -u)" = 0 ] || { why="containers need root"; return 1; }
  scripts/deps.sh containers || { why="containerd, runc or mmdebstrap cannot be installed"; return 1; }
  note "image: Debian's python3, by mmdebstrap"
  tar=$(python_image) || { why="mmdebstrap cannot build the image"; return 1; }
  start_containerd || return 1
  start_daemon --provider containerd --containerd-address "$state/containerd.sock" || return 1
  show "bin/agentix image import --rootfs --name python $tar" || { why="the image cannot be imported"; return 1; }
  image=python
  show "bin/agentix sandbox create --id box --image python --project $project" ||
    { why="a container cannot be started"; return 1; }
}

end_started() {
  local pid
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null && wait "$pid" 2>/dev/null || true; done
  pids=()
  unset AGENTIX_ADDRESS
  rm -rf "$state/d"
}

prepare() { # installs what is missing and builds
  scripts/deps.sh python demo
  scripts/venv.sh demo
  make --no-print-directory build
}

daemon_and_sandbox() { # containers, or plain processes where they cannot run
  containers && return
  note "Containers cannot run here: $why."
  note "The same follows with --provider process, which isolates nothing."
  end_started
  start_daemon --provider process --insecure-process-as-root || { note "$why" >&2; exit 1; }
  show "bin/agentix sandbox create --id box --project $project"
}
