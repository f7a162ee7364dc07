#!/bin/bash
# Builds and runs programs that use an installed Meshift: by find_package, by pkg-config and plain
# g++, from C99 and from Python, over MPI with shared and static libraries, and from its sources by
# add_subdirectory and FetchContent. Runs the tests of cmake/installed_tests, and checks the symbols
# that the libraries export.
#
#   cmake/check_consumers.sh PREFIX REPOSITORY SCRATCH
set -euo pipefail
cd "$(dirname "$0")/.."
prefix=$(cd "$1" && pwd)
repository=$(cd "$2" && pwd)
rm -rf "$3"
mkdir -p "$3"
scratch=$(cd "$3" && pwd)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1

# Examples and tests stand for users' programs: copy them away from the sources.
mkdir "$scratch/programs"
tar -cf - examples cmake/installed_tests $(sed -nE '/foreach\(test /,/\)$/ {s/foreach\(test//; s/\)$//; p}' cmake/installed_tests/CMakeLists.txt |
  tr -s ' \n' '\n' | sed 's/..*/&_test.cc/') capi/cxx17_test.cc | tar -xf - -C "$scratch/programs"

# A name, a project, then options: configures, builds and tests it.
use() {
  local build=$scratch/$1/build
  mkdir -p "$build"
  cmake -S "$scratch/programs/$2" -B "$build" -DCMAKE_BUILD_TYPE=Release "${@:3}" > "$scratch/$1/log" 2>&1 &&
    cmake --build "$build" -j "$(nproc)" >> "$scratch/$1/log" 2>&1 || { tail -n 50 "$scratch/$1/log"; exit 1; }
  grep "left out" "$scratch/$1/log" || true
  ctest --test-dir "$build" --output-on-failure > "$scratch/$1/ctest.log" || { cat "$scratch/$1/ctest.log"; exit 1; }
  sed -nE 's|^ *[0-9]+/[0-9]+ Test +#[0-9]+: (.*)|  \1|p' "$scratch/$1/ctest.log"
  grep "100% tests passed" "$scratch/$1/ctest.log"
}

echo "== find_package"
use package examples/cmake -DCMAKE_PREFIX_PATH="$prefix"
echo "== the installed tests"
use tests cmake/installed_tests -DCMAKE_PREFIX_PATH="$prefix"

echo "== pkg-config"
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig LD_LIBRARY_PATH=$prefix/lib
mkdir "$scratch/pkg"
# shellcheck disable=SC2046 # options
g++ -std=c++20 -I"$scratch/programs/examples/your_workspace" "$scratch/programs/examples/your_workspace/shard_rows_test.cc" \
  -o "$scratch/pkg/shard_rows" $(pkg-config --cflags --libs meshift)
"$scratch/pkg/shard_rows"
echo "meshift $(pkg-config --modversion meshift)"
if command -v python3 > /dev/null; then
  echo "== Python"
  python3 "$scratch/programs/examples/c/plan.py" "$prefix/lib/libmeshift.so" | tail -n 1
fi
unset LD_LIBRARY_PATH

echo "== symbols"
for library in "$prefix"/lib/libmeshift*.so; do
  # NAME@@NODE: every symbol has one of our version nodes, and no foreign symbol is exported.
  names=$(nm -D --defined-only --with-symbol-versions "$library" | awk '{print $3}')
  public=$(grep -c '@@MESHIFT_[0-9.]*$' <<< "$names" || true)
  private=$(grep -c '@@MESHIFT_PRIVATE_' <<< "$names" || true)
  other=$(grep -vE '@@MESHIFT_|^MESHIFT_' <<< "$names" || true)
  echo "$(basename "$library"): $public public, $private for the project's own libraries, soname $(readelf -d "$library" | sed -nE 's/.*soname: \[(.*)\]/\1/p')"
  [[ -z $other ]] || { echo "also exported: $other"; exit 1; }
done

echo "== add_subdirectory"
mkdir "$scratch/subdirectory"
git clone --quiet "$repository" "$scratch/subdirectory/meshift-src"
use subdirectory examples/cmake -DMESHIFT_FROM=subdirectory -DMESHIFT_SOURCES="$scratch/subdirectory/meshift-src"
echo "== FetchContent"
use fetch examples/cmake -DMESHIFT_FROM=fetch -DMESHIFT_SOURCES="$repository" -DFETCHCONTENT_BASE_DIR="$scratch/fetch"
echo "consumers passed"
