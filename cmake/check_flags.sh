#!/bin/bash
# Compiles comm/kernels with options that users may set, and runs 512 redistributions that promise
# equal bits. Each set of options must give the same hash, or a compile error that says why. BUILD:
# a folder built by cmake --build, with static libraries.
#
#   cmake/check_flags.sh BUILD
set -euo pipefail
build=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0

includes=(-I. -Iinclude)
g++ -std=c++20 -O1 "${includes[@]}" -c cmake/flags/ordered_bits.cc -o "$scratch/main.o"
# The archive without the members that are compiled here.
cp "$build/libmeshift.a" "$build/libmeshift_testing.a" "$scratch/"
kernels=$(cd comm/kernels && ls ./*.cc | grep -v _test.cc | sed 's|^\./||')
for kernel in $kernels; do ar d "$scratch/libmeshift.a" "$kernel.o"; done
read -ra libraries <<< "$(pkg-config --libs absl_status absl_statusor absl_hash absl_raw_hash_set absl_strings fmt libsodium)"

# Arguments: a name, a compiler and its options. Sets $scratch/out to the output, and $compiled to
# whether it compiled.
try() {
  local objects=() kernel
  compiled=0
  for kernel in $kernels; do
    "$@" -std=gnu++20 -DNDEBUG "${includes[@]}" -c "comm/kernels/$kernel" -o "$scratch/$kernel.o" 2> "$scratch/out" || return 1
    objects+=("$scratch/$kernel.o")
  done
  compiled=1
  g++ "$scratch/main.o" "${objects[@]}" "$scratch/libmeshift_testing.a" "$scratch/libmeshift.a" "${libraries[@]}" -ldl -o "$scratch/bits" 2> "$scratch/out" || return 1
  "$scratch/bits" > "$scratch/out" 2>&1
}

same() {
  if ! try "$@"; then
    echo "FAILED: $*: $(head -n 5 "$scratch/out")"
    failed=1
    return
  fi
  local hash
  hash=$(cat "$scratch/out")
  echo "$hash  $*"
  : "${first:=$hash}"
  [[ $hash == "$first" ]] || { echo "FAILED: another hash"; failed=1; }
}

refused() {
  if try "$@"; then
    # Options that the compiler ignores, or that have no effect here, keep the bits.
    if [[ $(cat "$scratch/out") == "$first" ]]; then echo "$first  $* (changes nothing)"; else echo "FAILED: $*: other bits, and no refusal"; failed=1; fi
  elif ! grep -qE 'without -ffast-math|promises equal bits' "$scratch/out"; then
    echo "FAILED: $*: $(head -n 5 "$scratch/out")"
    failed=1
  else
    echo "refused by $( ((compiled)) && echo "the engine" || echo "the compiler"): $*"
  fi
}

same g++ -O3 -ffp-contract=off -fno-trapping-math
same g++ -O0
same g++ -O3 -march=native
same g++ -O2 -march=x86-64-v3
same g++ -O3 -march=native -ffp-contract=fast
if command -v clang++ > /dev/null; then
  same clang++ -O3
  same clang++ -O3 -march=native
fi
for option in -ffast-math -fassociative-math -freciprocal-math -ffinite-math-only -fno-signed-zeros -funsafe-math-optimizations; do
  refused g++ -O3 -march=native "$option"
  if command -v clang++ > /dev/null; then refused clang++ -O3 -march=native "$option"; fi
done
exit "$failed"
