#!/bin/sh
# Writes a linker version script for a library: functions of public headers get the node
# MESHIFT_0.2, functions for the project's own libraries MESHIFT_PRIVATE_0.2.0; all others are
# hidden.
#
#   version_script.sh OUT 0.2 0.2.0 OBJECT... -- USER_OBJECT...
#
# In the objects, names of public headers have the visibility "default", others "protected". Private
# names are the protected ones that the objects after "--" use.
set -eu
out=$1 public=$2 private=$3
shift 3
own=$(mktemp) users=$(mktemp)
trap 'rm -f "$own" "$users"' EXIT
to=$own
for object in "$@"; do
  if [ "$object" = -- ]; then to=$users; else printf '%s\n' "$object" >> "$to"; fi
done

# Lines "VISIBILITY INDEX NAME" of the visible symbols.
symbols() {
  [ -s "$1" ] || return 0
  xargs readelf --wide --symbols < "$1" |
    awk '$5 == "GLOBAL" || $5 == "WEAK" || $5 == "UNIQUE" {print $6, $7, $8}'
}
{
  echo "MESHIFT_$public {"
  echo "  global:"
  symbols "$own" | awk '$1 == "DEFAULT" && $2 != "UND" && $3 ~ /7meshift|^meshift_/ {print "    " $3 ";"}' | LC_ALL=C sort -u
  echo "  local: *;"
  echo "};"
  # Protected symbols of the library that users need.
  { symbols "$own" | awk '$1 == "PROTECTED" && $2 != "UND" {print $3}'; } | LC_ALL=C sort -u > "$own.all"
  { symbols "$users" | awk '$2 == "UND" {print $3}'; } | LC_ALL=C sort -u > "$users.all"
  shared=$(LC_ALL=C comm -12 "$own.all" "$users.all")
  rm -f "$own.all" "$users.all"
  if [ -n "$shared" ]; then
    echo "MESHIFT_PRIVATE_$private {"
    echo "  global:"
    printf '%s\n' "$shared" | sed 's/.*/    &;/'
    echo "} MESHIFT_$public;"
  fi
} > "$out"
