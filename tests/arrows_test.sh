#!/bin/bash
# Dependencies between folders, and between public headers, point up the list of docs/design.md,
# "Layers".
#
#   arrows_test.sh graph docs/design.md include/meshift/*.h     # graph: of `bazel query --output=graph`
set -euo pipefail
readonly graph=$1 design=$2
shift 2

# Prints the edges of stdin that point down the list, then the number of edges.
against() {
  awk '
    # The table: a public header counts as a file of its folder; of several folders the last counts.
    FNR == NR && /^\| `[a-z_\/]+`.* \| [a-z_ ]+ \|$/ {
      split($0, cells, "|")
      n = split(cells[2], folders, ", ")
      for (i = 1; i <= n; ++i) gsub(/[` ]|\/$|\/`/, "", folders[i])
      m = split(cells[3], names, " ")
      for (j = 1; j <= m; ++j) owner[names[j]] = folders[m == n ? j : 1]
      next
    }
    # The list: the first block of the page. A folder with indented subfolders below it comes after
    # them.
    FNR == NR {
      if (/^```/) { ++fences; next }
      if (fences != 1) next
      sub(/(never|know|knows|of planner\/ it).*/, "")
      n = split($0, words)
      for (i = 1; i <= n; ++i) {
        if (words[i] !~ /^[a-z_]+\/[a-z_\/]*$/) continue
        name = substr(words[i], 1, length(words[i]) - 1)
        place[name] = ++places
        parent = name
        if (/^ / && sub(/\/[^\/]*$/, "", parent)) place[parent] = places + 0.5
      }
      next
    }
    function folder(label) {
      if (match(label, /^"meshift\/[a-z_]+\.h"$/)) {
        label = owner[substr(label, 10, RLENGTH - 12)]
        return label in place ? label : ""
      }
      if (!match(label, /^"\/\/[a-z_\/]+:/)) return ""
      label = substr(label, 4, RLENGTH - 4)
      while (!(label in place) && sub(/\/[^\/]*$/, "", label)) {}
      return label in place ? label : ""
    }
    $2 == "->" {
      from = folder($1)
      to = folder($3)
      if (from == "" || to == "") next
      ++edges
      if (place[to] > place[from]) print $0
      # The verifier may depend on the plan, but not on the planner.
      if (from == "planner/verifier" && to ~ /^planner/ && to != from && to != "planner/plan") print $0
    }
    END { print edges + 0 }
  ' "$design" -
}

# Prints an edge for each header that a header includes.
arrows_of_headers() {
  local header
  for header in "$@"; do
    sed -nE "s|^#include (\"meshift/[^\"]+\").*|\"meshift/$(basename "$header")\" -> \1|p" "$header"
  done
}

# Each public header is listed once in the table.
for header in "$@"; do
  name=$(basename "$header" .h)
  lines=$(grep -cE "^\| (none|\`[^|]*/\`) \| ([a-z_]+ )*${name} ([a-z_]+ )*\|$" "$design" || true)
  ((lines == 1)) || { echo "$design has $lines owners of meshift/$name.h"; exit 1; }
done

found=$(cat "$graph" <(arrows_of_headers "$@") | against)
seen=$(tail -n 1 <<< "$found")
if [[ $found != "$seen" ]]; then
  echo "these arrows point down the list of $design:"
  echo "$found"
  exit 1
fi
echo "$seen arrows point up the list"
((seen > 300))
# Edges that the test must detect.
for arrow in base:status,planner/plan:plan planner/search:search,planner:planner comm/executor:lanes,comm:redistributor \
  mesh:layout,placement:sharding planner/verifier:verifier,planner/search:search comm/engine:engine,comm/local:engine \
  testing:checks,testing/internal:stopwatch cli:cli,testing/internal:command; do
  found=$(printf '  "//%s" -> "//%s"\n' "${arrow%,*}" "${arrow#*,}" | against | wc -l)
  ((found == 2)) || { echo "not found: $arrow"; exit 1; }
done
found=$(echo '"meshift/plan.h" -> "meshift/planner.h"' | against | wc -l)
((found == 2)) || { echo "not found: from plan.h to planner.h"; exit 1; }
