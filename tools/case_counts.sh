#!/bin/bash
# Adds up what the shards of the exhaustive tests printed in the last `./bazelw test //...`: how many cases ran, how long they took, and
# how many failed in which way.
#
#   tools/case_counts.sh [bazel-testlogs]
set -euo pipefail
logs=${1:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/bazel-testlogs}/tests
# What the test printed, all shards together.
output_of() {
  find -L "$logs/$1" -name test.log -exec cat {} +
}
output_of small_world_test | awk '
  / cases in [0-9]+ ms: / {
    kind = /^random/ ? "random world" : /^rank 0/ ? "rank 0" : "small world"
    for (i = 1; i < NF; ++i) {
      if ($(i + 1) == "cases") cases[kind] += $i
      if ($(i + 1) == "ms:") ms[kind] += $i
      if ($(i + 1) == "refused,") refused[kind] += $i
      if ($(i + 1) == "not" && $(i + 2) == "proven,") unproven[kind] += $i
      if ($(i + 1) == "wrong,") wrong[kind] += $i
      if ($(i + 1) == "with" && $(i + 2) == "differing") differing[kind] += $i
      if ($(i + 1) == "with" && $(i + 2) == "other") miscounted[kind] += $i
    }
  }
  END {
    for (kind in cases) {
      printf "%s: %d cases in %d s of work: %d refused, %d not proven, %d wrong, %d with differing replicas, %d with other bytes than planned\n",
        kind, cases[kind], ms[kind] / 1000, refused[kind], unproven[kind], wrong[kind], differing[kind], miscounted[kind]
    }
  }' | sort
for test in per_dim_test mutation_test peer_cases_test; do
  output_of "$test" |
    grep -E '^(per-dim|shard [0-9]+: [0-9]+ damaged|dtensor_counts|live_2x2)' || true
done
