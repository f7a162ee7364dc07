#!/bin/bash
# Builds all fuzz targets (fuzz/, docs/fuzzing.md) with clang, libFuzzer, ASan and UBSan, and runs each for a while, two at a time.
#
#   tools/fuzz.sh                         # a minute each
#   tools/fuzz.sh 600                     # ten minutes each
#   tools/fuzz.sh 60 --disk_cache=DIR     # more arguments go to `bazel build`
#
# Exits non-zero if a target finds a failure. The failing input is kept in fuzz-findings/, and the
# last lines say how to run it again. FUZZ_TARGETS="mesh npy" selects targets. FUZZ_CORPUS names a
# folder that keeps the corpus for the next run (default: none).
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

export FUZZ_SECONDS=${1:-60}
if ! [[ $FUZZ_SECONDS =~ ^[1-9][0-9]*$ ]]; then
  echo "fuzz.sh: '$FUZZ_SECONDS' is no number of seconds" >&2
  exit 2
fi
read -ra targets <<< "${FUZZ_TARGETS:-$(cd fuzz && echo *_fuzz.cc)}"
targets=("${targets[@]%_fuzz.cc}")

# The default of further packages that this build needs.
export BAZELW_EXTRA_PACKAGES="${BAZELW_EXTRA_PACKAGES:-clang libclang-rt-14-dev}"
bazel() { ./bazelw "$1" --config=fuzz --noshow_progress --curses=no --color=no "${@:2}"; }
labels=("${targets[@]/#/\/\/fuzz:}")
bazel build "${@:2}" "${labels[@]/%/_fuzz}" || exit 1
binaries=$(bazel info "${@:2}" bazel-bin) || exit 1

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export binaries scratch findings=$PWD/fuzz-findings

# Runs one target; creates a file in scratch/found if it finds a failure.
run_one() {
  local target=$1 learnt=${FUZZ_CORPUS:-$scratch/corpus}/$1 log=$scratch/$1.log
  local options=(-max_total_time="$FUZZ_SECONDS" -timeout=20 -rss_limit_mb=2048 -max_len=4096 -use_value_profile=1 -print_final_stats=1)
  [[ -f fuzz/$target.dict ]] && options+=(-dict="fuzz/$target.dict")
  mkdir -p "$learnt" "$findings" "$scratch/found"
  if "$binaries/fuzz/${target}_fuzz" "${options[@]}" -artifact_prefix="$findings/$target-" "$learnt" "fuzz/corpus/$target" \
    > "$log" 2>&1 < /dev/null; then
    printf '%-12s %9d inputs, %s\n' "$target" "$(awk '/number_of_executed_units/ {print $2}' "$log")" \
      "$(grep -oE 'cov: [0-9]+ ft: [0-9]+ corp: [0-9]+' "$log" | tail -n 1)"
  else
    touch "$scratch/found/$target"
    {
      echo "==== $target found something"
      grep -vE '^#[0-9]+\s|NEW_FUNC' "$log" | tail -n 60
      echo "==== again: bazel-bin/fuzz/${target}_fuzz fuzz-findings/${target}-..."
    }
  fi
}
export -f run_one
printf '%s\0' "${targets[@]}" | xargs -0 -n 1 -P 2 bash -c 'run_one "$1"' run_one

rmdir "$findings" 2> /dev/null
found=$(find "$scratch/found" -type f 2> /dev/null | wc -l)
echo "fuzz.sh: ${#targets[@]} targets for $FUZZ_SECONDS s each, $found with findings"
((found == 0))
