#!/bin/bash
# Builds, installs and uses Meshift on a bare Debian, without Bazel, as README.md says, in a new
# root made by debootstrap. Needs root, half an hour on two cores, 3 GB, and Debian's packages. Not
# part of .ci/run.
#
#   cmake/check_debian.sh [ROOT]            # Debian 12; default: a folder that is removed
#   SUITE=trixie cmake/check_debian.sh      # Debian 13: gcc 14, Abseil 2024-07, fmt 10, Open MPI 5
#   SUITE=forky cmake/check_debian.sh       # newer ones
set -euo pipefail
cd "$(dirname "$0")/.."
suite=${SUITE:-bookworm}
if (($# > 0)); then
  mkdir -p "$1"
  root=$(cd "$1" && pwd)
else
  root=$(mktemp -d)
fi
in_root() { chroot "$root" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive bash -c "$1"; }
leave() {
  umount -R "$root/dev" 2> /dev/null || true
  umount "$root/proc" 2> /dev/null || true
  if (($1 == 0)); then rm -rf --one-file-system "$root"; fi
}
trap 'leave $#' EXIT

# The sources of packages that this machine uses.
mirror=$(find /etc/apt \( -name '*.list' -o -name '*.sources' \) -exec cat {} + | sed -nE 's/^(URIs: |deb (\[[^]]*\] )?)([^ ]+).*/\3/p' | grep -m 1 -E '/debian/?$')
if ! [[ -x $root/usr/bin/apt-get ]]; then
  command -v debootstrap > /dev/null || { echo "debootstrap is missing (Debian: apt-get install debootstrap)"; exit 1; }
  log=$(mktemp)
  # For a suite that is newer than debootstrap, use the script of sid.
  script=/usr/share/debootstrap/scripts/$suite
  [[ -e $script ]] || script=/usr/share/debootstrap/scripts/sid
  debootstrap --variant=minbase "$suite" "$root" "$mirror" "$script" > "$log" 2>&1 || { tail -n 20 "$log"; exit 1; }
  rm -f "$log"
  cp -r /etc/apt/apt.conf.d -t "$root/etc/apt"
  echo "deb $mirror $suite main" > "$root/etc/apt/sources.list"
fi
cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
mount -t proc proc "$root/proc"
mount --rbind --make-rslave /dev "$root/dev"

# The packages that README.md names under "Install it"; python3 and git for programs that use
# Meshift, ccache for the second build.
packages=$(awk '/^## Install it/ {on = 1; next} /^## / {on = 0} on' README.md | grep -oE '`[^`]*`' | tr -d '`' | tr ' ' '\n' |
  grep -E '^(g\+\+|cmake|ninja-build|pkg-config|openmpi-bin|lib[a-z0-9-]+-dev|nlohmann-json3-dev)$' | sort -u | tr '\n' ' ')
echo "packages: $packages"
in_root "apt-get -q update > /dev/null && apt-get -q install -y --no-install-recommends $packages python3 git ccache > /apt.log 2>&1 || { tail -n 20 /apt.log; exit 1; }"
in_root "! command -v bazel" || { echo "there is a bazel"; exit 1; }

rm -rf "$root"/{meshift,repository,check,opt/meshift}
git clone --quiet --no-hardlinks . "$root/meshift"
echo "== README.md's commands"
commands=$(awk '/^## Install it/ {on = 1} /^## A plan/ {on = 0} on && /^```/ {inside = !inside; plain = $0 == "```"; next} on && inside && plain' README.md)
echo "$commands"
in_root "cd /meshift && { $commands
} > /build.log 2>&1 || { tail -n 40 /build.log; exit 1; }"
in_root "/opt/meshift/bin/meshift --version"
echo "== programs that use it"
in_root "mv /meshift /repository && git config --global --add safe.directory '*' && export CMAKE_GENERATOR=Ninja &&
  export CMAKE_CXX_COMPILER_LAUNCHER=ccache CCACHE_BASEDIR=/check CCACHE_NOHASHDIR=1 &&
  /repository/cmake/check_consumers.sh /opt/meshift /repository /check"
in_root "dpkg-query -W -f '\${Package} \${Version}\n' g++ libabsl-dev libfmt-dev cmake libopenmpi-dev"
echo "passed on $(in_root '. /etc/os-release && echo "$PRETTY_NAME"')"
