#!/bin/bash
# Lists the product's .cc files that run for one plan, from main to the printed text: the code to
# read for the planner. Uses the functions that callgrind saw; inlined functions count where they
# were inlined.
#
#   tools/path_files.sh                    # for (P,P,R) -> (R,R,R)
#   tools/path_files.sh --mesh a=2,b=2 --tensor 'f32[8,8]' --from P,R --to R,R     # any options of `meshift plan`
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if ! command -v valgrind > /dev/null; then
  echo "path_files: valgrind is missing; Debian's package valgrind has it" >&2
  exit 1
fi
(($#)) || set -- --mesh a=2,b=2,c=2 --tensor 'bf16[4096,4096]' --from P,P,R --to R,R,R
./bazelw build --noshow_progress //cli:meshift >&2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
valgrind --tool=callgrind --callgrind-out-file="$scratch/calls" --demangle=no bazel-bin/cli/meshift plan "$@" > "$scratch/plan" 2> "$scratch/log" ||
  { cat "$scratch/log" >&2; exit 1; }
# Names of functions that ran: "fn=(12) _ZN..."; a repeated number has no name.
sed -nE 's/^c?fn=\([0-9]+\) ([^ ]+).*/\1/p' "$scratch/calls" | sed "s/'.*//" | grep -v '^_GLOBAL__' | sort -u > "$scratch/ran"
find -L bazel-bin -path '*/_objs/*' -name '*.o' -not -path '*.runfiles*' -not -path '*test*' -print0 |
  xargs -0 nm -A --defined-only 2> /dev/null | sed -nE 's|^bazel-bin/([^:]*)/_objs/[^/]*/([^:]*)\.o:[0-9a-f]+ [Tt] (.*)|\3 \1/\2|p' |
  sed -E 's/\.pic$//' | sort -u > "$scratch/defined"
# A local name may be defined in several files: skip those.
awk 'NR == FNR { ran[$1] = 1; next } $1 in ran { files[$1] = files[$1] " " $2; ++count[$1] }
     END { for (name in count) if (count[name] == 1) print files[name] }' "$scratch/ran" "$scratch/defined" |
  sed -E 's/^ //; s/$/.cc/' | sort -u > "$scratch/files"
cat "$scratch/files"
printf '%d files\n' "$(wc -l < "$scratch/files")"
