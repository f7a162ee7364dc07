#!/bin/bash
# Builds and installs with CMake, moves the sources away and the installed tree elsewhere, and has programs use it: by find_package, by
# pkg-config and plain g++, over MPI with shared and static libraries; then runs the command, and looks at what the libraries export.
# Needs no Bazel.
#
#   cmake/check_install.sh [SCRATCH]        # SCRATCH/build is used again where it is there; default: a folder that is removed
set -euo pipefail
cd "$(dirname "$0")/.."
if (($# > 0)); then
  mkdir -p "$1"
  scratch=$(cd "$1" && pwd)
else
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
fi
rm -rf "$scratch"/{source,moved,prefix,elsewhere,consumer,pkg}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1

# The last commit and what is not committed yet: what git knows.
mkdir -p "$scratch/source"
git ls-files -z | tar --null -T - -cf - | tar -xf - -C "$scratch/source"
command -v ninja > /dev/null && export CMAKE_GENERATOR=Ninja
cmake -S "$scratch/source" -B "$scratch/build" ${MESHIFT_CMAKE_OPTIONS:-} > "$scratch/configure.log" || { cat "$scratch/configure.log"; exit 1; }
grep "meshift:" "$scratch/configure.log"
start=$SECONDS
cmake --build "$scratch/build" -j "$(nproc)" > "$scratch/build.log" 2>&1 || { tail -n 50 "$scratch/build.log"; exit 1; }
echo "built in $((SECONDS - start)) s"
cmake --install "$scratch/build" --prefix "$scratch/elsewhere" > "$scratch/install.log"
# Examples are programs of others: they lie beside nothing of ours.
mkdir -p "$scratch/consumer"
cp -r examples "$scratch/consumer/"
mv "$scratch/source" "$scratch/moved"
mv "$scratch/elsewhere" "$scratch/prefix"
du -sh "$scratch/prefix"/{lib,include,bin} | sed 's|'"$scratch"'/||'

echo "== find_package"
cmake -S "$scratch/consumer/examples/cmake" -B "$scratch/consumer/build" -DCMAKE_PREFIX_PATH="$scratch/prefix" > "$scratch/consumer.log" ||
  { cat "$scratch/consumer.log"; exit 1; }
cmake --build "$scratch/consumer/build" > "$scratch/consumer.log" 2>&1 || { cat "$scratch/consumer.log"; exit 1; }
ctest --test-dir "$scratch/consumer/build" --output-on-failure | tee "$scratch/ctest.log"
grep -q "100% tests passed" "$scratch/ctest.log"

echo "== pkg-config"
export PKG_CONFIG_PATH=$scratch/prefix/lib/pkgconfig
export LD_LIBRARY_PATH=$scratch/prefix/lib
mkdir "$scratch/pkg"
# shellcheck disable=SC2046 # options
g++ -std=c++20 -I"$scratch/consumer/examples/your_workspace" "$scratch/consumer/examples/your_workspace/shard_rows_test.cc" \
  -o "$scratch/pkg/shard_rows" $(pkg-config --cflags --libs meshift)
"$scratch/pkg/shard_rows"
echo "meshift $(pkg-config --modversion meshift)"

echo "== the command"
meshift=$scratch/prefix/bin/meshift
"$meshift" --version
"$meshift" run --mesh ddp=8,fsdp=5,tp=1 --tensor 'bf16[64,512]' --from P,P,R --to R,R,R | tail -n 3
"$meshift" run --conformance | tail -n 1
if ls "$scratch"/prefix/lib/libmeshift_mpi.so > /dev/null 2>&1; then
  for ranks in 2 4; do
    mpirun -n "$ranks" "$meshift" run --engine mpi --conformance | tail -n 1
  done
fi

echo "== symbols"
for library in "$scratch"/prefix/lib/libmeshift*.so; do
  # NAME@@NODE; every symbol has one of our nodes, and nothing of others is exported.
  names=$(nm -D --defined-only --with-symbol-versions "$library" | awk '{print $3}')
  public=$(grep -c '@@MESHIFT_[0-9.]*$' <<< "$names" || true)
  private=$(grep -c '@@MESHIFT_PRIVATE_' <<< "$names" || true)
  other=$(grep -vE '@@MESHIFT_|^MESHIFT_' <<< "$names" || true)
  echo "$(basename "$library"): $public public, $private for the project's own libraries, soname $(readelf -d "$library" | sed -nE 's/.*soname: \[(.*)\]/\1/p')"
  [[ -z $other ]] || { echo "also exported: $other"; exit 1; }
done
echo "passed"
