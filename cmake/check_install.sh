#!/bin/bash
# Builds and installs with CMake, moves the sources and the installed tree away, and uses it in
# programs (check_consumers.sh). If MPICH is installed too, repeats this with MPICH. Needs no Bazel.
# With ccache each file is compiled once.
#
#   cmake/check_install.sh [SCRATCH]        # SCRATCH/main/build is used again where it is there; default: a folder that is removed
set -euo pipefail
cd "$(dirname "$0")/.."
if (($# > 0)); then
  mkdir -p "$1"
  scratch=$(cd "$1" && pwd)
else
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
fi
rm -rf "$scratch"/{repository,main/meshift-src,elsewhere,prefix,mpich}
command -v ninja > /dev/null && export CMAKE_GENERATOR=Ninja
if command -v ccache > /dev/null; then
  # All builds have the sources at ../meshift-src, so that ccache finds the same commands.
  export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache
  export CCACHE_BASEDIR=$scratch CCACHE_NOHASHDIR=1 CCACHE_DIR=${CCACHE_DIR:-$scratch/ccache} CCACHE_MAXSIZE=3G
fi

# A repository with the last commit and uncommitted changes of tracked files.
mkdir "$scratch/repository"
git ls-files -z | tar --null -T - -cf - | tar -xf - -C "$scratch/repository"
(cd "$scratch/repository" && git init --quiet && git add --all --force &&
  git -c user.name=check -c user.email=check@localhost -c commit.gpgsign=false commit --quiet --message "Check")

# Arguments: a folder in scratch, then options. Builds there and installs to its prefix.
build_and_install() {
  local folder=$scratch/$1
  mkdir -p "$folder"
  git clone --quiet "$scratch/repository" "$folder/meshift-src"
  cmake -S "$folder/meshift-src" -B "$folder/build" "${@:2}" > "$folder/configure.log" || { cat "$folder/configure.log"; exit 1; }
  grep "meshift:" "$folder/configure.log"
  local start=$SECONDS
  cmake --build "$folder/build" -j "$(nproc)" > "$folder/build.log" 2>&1 || { tail -n 50 "$folder/build.log"; exit 1; }
  echo "$1: built in $((SECONDS - start)) s"
  cmake --install "$folder/build" --prefix "$folder/elsewhere" > "$folder/install.log"
  rm -rf "$folder/meshift-src"
}
build_and_install main
mv "$scratch/main/elsewhere" "$scratch/prefix"
cmake/check_consumers.sh "$scratch/prefix" "$scratch/repository" "$scratch/consumers"
echo "== libtorch"
cmake/check_torch.sh "$scratch/prefix"

if command -v mpicc.mpich > /dev/null && command -v mpicc.openmpi > /dev/null; then
  echo "== MPICH"
  build_and_install mpich -DMPI_C_COMPILER="$(command -v mpicc.mpich)" -DMESHIFT_TESTING=OFF -DMESHIFT_STATIC=OFF
  cmake -S cmake/installed_tests -B "$scratch/mpich/tests" -DCMAKE_PREFIX_PATH="$scratch/mpich/elsewhere" > "$scratch/mpich/tests.log" &&
    cmake --build "$scratch/mpich/tests" >> "$scratch/mpich/tests.log" 2>&1 || { cat "$scratch/mpich/tests.log"; exit 1; }
  ctest --test-dir "$scratch/mpich/tests" --output-on-failure -R "mpi_" | tee "$scratch/mpich/ctest.log"
  grep -q "100% tests passed" "$scratch/mpich/ctest.log"
  ldd "$scratch/mpich/elsewhere/bin/meshift" | grep -o "libmpich[^ ]*"
else
  echo "MPICH: left out: mpicc.mpich and mpicc.openmpi are not both there"
fi
echo "passed"
