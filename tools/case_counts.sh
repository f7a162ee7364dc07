#!/bin/bash
# Sums the output of the shards of the exhaustive tests in the last `./bazelw test //...`: the
# number of cases, their time, and the failures by kind.
#
#   tools/case_counts.sh [bazel-testlogs]
set -euo pipefail
logs=${1:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/bazel-testlogs}/tests
# The output of all shards of the test.
output_of() {
  find -L "$logs/$1" -name test.log -exec cat {} + 2> /dev/null || true
}
for test in small_world dtype_world cast_world cross_world; do
  output_of "${test}_test" | awk -v test="$test" '
  / cases in [0-9]+ ms: / {
    kind = /^random/ ? test ", random" : /^rank 0/ ? test ", rank 0" : /^from|^sample/ ? test ", all dtypes" : test
    for (i = 1; i < NF; ++i) {
      if ($(i + 1) == "cases") cases[kind] += $i
      if ($(i + 1) == "ms:") ms[kind] += $i
      if ($(i + 1) == "refused," && $(i + 2) != "as") refused[kind] += $i
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
done
for test in strided_test per_dim_test mutation_test other_planners_cases_test; do
  output_of "$test" |
    grep -E '^(per-dim|((casts|f4e2m1|random), )?shard [0-9]+ of [0-9]+: |((two meshes|ordered), )?shard [0-9]+: [0-9]+ damaged|dtensor_counts|live_2x2)' || true
done
