#!/usr/bin/env bash
# Installs by apt what is missing of the packages for: containers, docker, python, demo, js, faults.
# Without root it names them and fails.
set -euo pipefail

declare -A package_of=(
  [containerd]=containerd [runc]=runc [dockerd]=docker.io [mmdebstrap]=mmdebstrap [curl]=curl [git]=git
  [busybox]=busybox-static [musl-gcc]=musl-tools [gcc]=gcc
  [iptables]=iptables [nft]=nftables [ip]=iproute2 [mkfs.ext4]=e2fsprogs [losetup]=mount [prlimit]=util-linux [nsenter]=util-linux [node]=nodejs [npm]=npm
)
missing=()
need() { command -v "$1" >/dev/null 2>&1 || missing+=("${package_of[$1]:-$1}"); }

export PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
for group in "$@"; do
  case $group in
  containers)
    for tool in containerd runc mmdebstrap busybox musl-gcc gcc mkfs.ext4 nft ip; do need "$tool"; done
    [ -x /usr/lib/cni/ptp ] || [ -x /opt/cni/bin/ptp ] || missing+=(containernetworking-plugins)
    # One test needs it, and not every distribution has it.
    command -v runsc >/dev/null 2>&1 || [ -z "$(apt-cache search --names-only '^runsc$' 2>/dev/null)" ] || missing+=(runsc)
    ;;
  demo) need curl ;;
  docker) for tool in dockerd runc; do need "$tool"; done ;;
  faults) for tool in ip iptables mkfs.ext4 losetup prlimit nsenter; do need "$tool"; done ;;
  js) for tool in node npm; do need "$tool"; done ;;
  python)
    command -v python3 >/dev/null 2>&1 || missing+=(python3)
    python3 -c 'import ensurepip, venv' >/dev/null 2>&1 || missing+=(python3-venv)
    ;;
  *)
    echo "deps: unknown group $group" >&2
    exit 2
    ;;
  esac
done

command -v go >/dev/null 2>&1 || {
  echo "deps: Go is not installed, or not on PATH: see https://go.dev/dl" >&2
  exit 1
}
[ ${#missing[@]} -gt 0 ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
  echo "deps: missing: ${missing[*]}; install them, or run this as root on Debian" >&2
  exit 1
fi
echo "deps: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
