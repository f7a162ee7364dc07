#!/bin/bash
# Builds examples/torch with an installed Meshift, and runs it: redistributions of PyTorch's tensors
# among 4 processes, compared with plain PyTorch; bad input; lifetimes of tensors. Also compiles
# meshift/torch.h alone with every installed compiler, with warnings as errors. If Torch, MPI or a
# compiler is missing, it reports the omitted parts.
#
#   cmake/check_torch.sh PREFIX          # the prefix of the installation
#
# CMAKE_PREFIX_PATH in the environment may name a libtorch; else CMake finds Debian's package libtorch-dev.
set -euo pipefail
if (($# != 1)) || [[ ! -d $1 ]]; then
  echo "usage: $0 PREFIX, where Meshift is installed" >&2
  exit 2
fi
prefix=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export CMAKE_PREFIX_PATH=$prefix${CMAKE_PREFIX_PATH:+:$CMAKE_PREFIX_PATH}

# Runs a command; shows selected lines of its output, or all if it fails.
quietly() {
  "$@" > "$scratch/log" 2>&1 || { cat "$scratch/log"; exit 1; }
}

if ! compgen -G "$prefix/lib*/libmeshift_mpi.so" > /dev/null && ! compgen -G "$prefix/lib/*/libmeshift_mpi.so" > /dev/null; then
  echo "left out: this Meshift was built without MPI"
  exit 0
fi
# A copy outside Meshift's sources, like a user's program.
cp -r examples/torch "$scratch/example"
quietly cmake -S "$scratch/example" -B "$scratch/build" -DCMAKE_BUILD_TYPE=Release
if grep -q "left out: Torch was not found" "$scratch/log"; then
  echo "left out: Torch was not found (Debian's package is libtorch-dev)"
  exit 0
fi
echo "torch: $(sed -nE 's/^Torch_DIR:PATH=//p' "$scratch/build/CMakeCache.txt")"

# Headers of an imported target give no warnings, so a copy comes first.
mkdir -p "$scratch/header/include/meshift"
cp "$prefix/include/meshift/torch.h" "$scratch/header/include/meshift/"
cat > "$scratch/header/CMakeLists.txt" << 'END_OF_FILE'
cmake_minimum_required(VERSION 3.25)
project(header LANGUAGES C CXX)
# The other order: Torch is found first, and no component of Meshift is requested.
find_package(Torch REQUIRED)
find_package(meshift 0.2 REQUIRED)
add_library(header OBJECT header.cc)
target_include_directories(header BEFORE PRIVATE include)
target_compile_options(header PRIVATE -Wall -Wextra -Wpedantic -Werror)
target_link_libraries(header PRIVATE meshift::torch)
add_library(theirs OBJECT theirs.cc)
target_link_libraries(theirs PRIVATE meshift::torch)
END_OF_FILE
cat > "$scratch/header/header.cc" << 'END_OF_FILE'
#include "meshift/torch.h"
#include "meshift/torch.h"
#include "meshift/meshift.h"
// ::torch is not hidden by what this brings in.
namespace torch { struct Here {}; }
using namespace meshift;
using namespace meshift::libtorch;
torch::Here here;
namespace meshift { torch::Here there; }
END_OF_FILE
# The headers of some libtorch versions are not valid C++20 for every compiler (1.13 with clang 14).
echo '#include <ATen/ATen.h>' > "$scratch/header/theirs.cc"
compilers=
for compiler in g++ clang++; do
  if ! command -v "$compiler" > /dev/null; then
    echo "left out: $compiler is not there"
    continue
  fi
  quietly cmake -S "$scratch/header" -B "$scratch/header/$compiler" -DCMAKE_CXX_COMPILER="$compiler"
  if ! cmake --build "$scratch/header/$compiler" --target theirs > /dev/null 2>&1; then
    echo "left out: $compiler does not compile this libtorch's ATen/ATen.h as C++20"
    continue
  fi
  quietly cmake --build "$scratch/header/$compiler" --target header
  compilers+=" $compiler"
done
[[ -n $compilers ]] || { echo "no compiler compiles this libtorch's headers"; exit 1; }
echo "meshift/torch.h compiles with$compilers"

quietly cmake --build "$scratch/build" -j "$(nproc)"
ctest --test-dir "$scratch/build" --output-on-failure > "$scratch/log" 2>&1 || { cat "$scratch/log"; exit 1; }
grep -hE "right|should be|are in PyTorch" "$scratch/build/Testing/Temporary/LastTest.log"
grep -E "tests passed" "$scratch/log"
echo "passed"
