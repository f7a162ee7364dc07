#!/bin/sh
# Writes a linker's version script of a library: what public headers declare under MESHIFT_0.2, what only the project's own libraries may
# use under MESHIFT_PRIVATE_0.2.0, all else hidden.
#
#   version_script.sh OUT 0.2 0.2.0 OBJECT... -- USER_OBJECT...
#
# Names of public headers have the visibility "default" in the objects, others "protected"; private is what is protected and used by the
# objects behind "--".
set -eu
out=$1 public=$2 private=$3
shift 3
own=$(mktemp) users=$(mktemp)
trap 'rm -f "$own" "$users"' EXIT
to=$own
for object in "$@"; do
  if [ "$object" = -- ]; then to=$users; else printf '%s\n' "$object" >> "$to"; fi
done

# Lines "VISIBILITY INDEX NAME" of the symbols that others can see.
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
  # What users lack and the library keeps to itself.
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
