#!/bin/bash
# Builds, installs and uses Meshift on a bare Debian 12, without Bazel, by the words of README.md: in a new root that debootstrap makes.
# As root; takes some minutes, 3 GB, and Debian's packages. Not part of .ci/run.
#
#   cmake/check_debian.sh [ROOT]            # default: a folder that is removed
set -euo pipefail
cd "$(dirname "$0")/.."
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
mirror=$(find /etc/apt \( -name '*.list' -o -name '*.sources' \) -exec cat {} + | sed -nE 's/^(URIs: |deb (\[[^]]*\] )?)([^ ]+).*/\3/p' | head -n 1)
if ! [[ -x $root/usr/bin/apt-get ]]; then
  command -v debootstrap > /dev/null || { echo "debootstrap is missing (Debian: apt-get install debootstrap)"; exit 1; }
  debootstrap --variant=minbase bookworm "$root" "$mirror" > "$root.log" 2>&1 || { tail -n 20 "$root.log"; exit 1; }
  rm -f "$root.log"
  find /etc/apt \( -name '*.list' -o -name '*.sources' -o -path '/etc/apt/apt.conf.d/*' \) -exec cp --parents -t "$root" {} +
fi
cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
mount -t proc proc "$root/proc"
mount --rbind --make-rslave /dev "$root/dev"

# Those that README.md names under "Install it", and python3 and git for programs that use Meshift.
packages=$(awk '/^## Install it/ {on = 1; next} /^## / {on = 0} on' README.md | grep -oE '`[^`]*`' | tr -d '`' | tr ' ' '\n' |
  grep -E '^(g\+\+|cmake|ninja-build|pkg-config|openmpi-bin|lib[a-z0-9-]+-dev|nlohmann-json3-dev)$' | sort -u | tr '\n' ' ')
echo "packages: $packages"
in_root "apt-get -q update > /dev/null && apt-get -q install -y --no-install-recommends $packages python3 git make > /apt.log 2>&1 || { tail -n 20 /apt.log; exit 1; }"
in_root "! command -v bazel" || { echo "there is a bazel"; exit 1; }

rm -rf "$root/meshift"
git clone --quiet --no-hardlinks . "$root/meshift"
echo "== README.md's commands"
commands=$(awk '/^## Install it/ {on = 1} /^## A plan/ {on = 0} on && /^```/ {inside = !inside; plain = $0 == "```"; next} on && inside && plain' README.md)
echo "$commands"
in_root "cd /meshift && { $commands
} > /build.log 2>&1 || { tail -n 40 /build.log; exit 1; }"
in_root "/opt/meshift/bin/meshift --version"
echo "== programs that use it"
in_root "cd /meshift && git config --global --add safe.directory '*' && MESHIFT_BUILD=/meshift/build cmake/check_install.sh /check"
echo "passed on $(in_root '. /etc/os-release && echo "$PRETTY_NAME"')"
