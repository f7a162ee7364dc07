#!/bin/bash
# Runs clang-tidy over C++ files with this project's checks (.clang-tidy) and the flags of the build.
#
#   tools/tidy.sh              # every tracked .cc file, the last changed first, except *_absent.cc
#                              # (needs generated headers) and examples/torch (needs libtorch)
#   tools/tidy.sh planner/search/search.cc     # these files
#
# Exits non-zero if a file has findings. A file takes 6 to 17 seconds. TIDY_JOBS sets the number of
# parallel jobs (default: one per core), TIDY_SECONDS the time after which no further file is
# started (default: no limit). The last line has the number of checked files.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

if ! command -v clang-tidy > /dev/null; then
  echo "tidy.sh: clang-tidy is missing (Debian package clang-tidy)" >&2
  exit 1
fi
if (($#)); then
  files=("$@")
else
  mapfile -t files < <(
    git log --format= --name-only -- '*.cc' | awk '!seen[$0]++' | grep -Fxf <(git ls-files '*.cc' ':!*_absent.cc' ':!examples/torch')
  )
fi
if ((${#files[@]} == 0)); then
  echo "tidy.sh: no .cc files to look at" >&2
  exit 1
fi

flags=(-std=c++20 -I. -Iinclude -Wall -Wextra)
# Headers outside /usr/include that some files need.
mpi=/usr/lib/x86_64-linux-gnu/openmpi/include
[[ -d $mpi ]] && flags+=(-isystem "$mpi" -DOMPI_SKIP_MPICXX)
cuda=${CUDA_HOME:-/usr/local/cuda}/include
[[ -d $cuda ]] && flags+=(-isystem "$cuda")

results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT

# Arguments: the flags, then the file. Writes one line per checked file to a results file;
# clang-tidy's stderr only counts suppressed warnings.
look_at() {
  local file=${*: -1}
  ((SECONDS_LIMIT == 0 || $(date +%s) < SECONDS_LIMIT)) || return 0
  echo "$file" >> "$RESULTS/seen"
  local findings
  if ! findings=$(clang-tidy --quiet "$file" -- "${@:1:$#-1}" 2> "$RESULTS/stderr.$$"); then
    echo "$file" >> "$RESULTS/with_findings"
    if [[ -n $findings ]]; then printf '%s\n' "$findings"; else cat "$RESULTS/stderr.$$"; fi
  fi
}
export -f look_at
export RESULTS=$results
export SECONDS_LIMIT=$((${TIDY_SECONDS:-0} ? $(date +%s) + TIDY_SECONDS : 0))
printf '%s\0' "${files[@]}" |
  xargs -0 -n 1 -P "${TIDY_JOBS:-$(nproc)}" bash -c 'look_at "$@"' tidy "${flags[@]}"

touch "$results/seen" "$results/with_findings"
findings=$(wc -l < "$results/with_findings")
echo "tidy.sh: $(wc -l < "$results/seen") of ${#files[@]} files seen, $findings with findings"
((findings == 0))
