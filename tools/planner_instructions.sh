#!/bin/bash
# Counts the instructions of planning with valgrind: for each matching benchmark of
# //bench:planner_bench, a run of two iterations minus a run of one. Other work on the machine does
# not change the counts.
#
#   tools/planner_instructions.sh [REGEX]         # cold/2d and cold/3d if none is given
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if ! command -v valgrind > /dev/null; then
  echo "planner_instructions: valgrind is missing; Debian's package valgrind has it" >&2
  exit 1
fi
pattern=${1:-^cold/[23]d$}
./bazelw build --noshow_progress //bench:planner_bench
bench=bazel-bin/bench/planner_bench
cd "$bench.runfiles/meshift"
count() {
  valgrind --tool=callgrind --callgrind-out-file=/dev/null "$bench" "--benchmark_filter=^$1\$" --benchmark_min_time=0 \
    "--benchmark_repetitions=$2" 2>&1 > /dev/null |
    awk '{ text = text $0 "\n" } /Collected/ { print $NF; found = 1 } END { if (!found) { printf "%s", text > "/dev/stderr"; exit 1 } }'
}
bench=$PWD/bench/planner_bench
for name in $("$bench" --benchmark_list_tests "--benchmark_filter=$pattern"); do
  once=$(count "$name" 1)
  twice=$(count "$name" 2)
  printf '%-24s %d instructions for an iteration\n' "$name" $((twice - once))
done
