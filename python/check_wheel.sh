#!/bin/bash
# Builds the wheel, installs it in an empty environment that sees no compiler, and uses it there. Fails where the wheel has more than 8 MB,
# or the import takes more than 40 ms over `python -c pass` (more on a slow machine). Compiles each file once where there is a ccache.
#
#   python/check_wheel.sh [SCRATCH]         # SCRATCH/build is used again where it is there; default: a folder that is removed
#   PYTHON=python3.13 WHEEL=meshift.whl python/check_wheel.sh     # of a wheel that is there
set -euo pipefail
cd "$(dirname "$0")/.."
readonly repository=$PWD
python=$(command -v "${PYTHON:-python3}")
if (($# > 0)); then
  mkdir -p "$1"
  scratch=$(cd "$1" && pwd)
else
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
fi
rm -rf "$scratch"/{meshift-src,dist,venv,tools,programs}
export PIP_DISABLE_PIP_VERSION_CHECK=1

wheel=${WHEEL:-}
if [[ -z $wheel ]]; then
  # The sources lie, and compile, as those of cmake/check_install.sh do, so that ccache knows their objects.
  mkdir "$scratch/meshift-src"
  git ls-files -z | tar --null -T - -cf - | tar -xf - -C "$scratch/meshift-src"
  command -v ninja > /dev/null && export CMAKE_GENERATOR=Ninja
  export CC=${CC:-cc} CXX=${CXX:-c++}
  if command -v ccache > /dev/null; then
    export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache
    export CCACHE_BASEDIR=$scratch CCACHE_NOHASHDIR=1 CCACHE_DIR=${CCACHE_DIR:-$scratch/ccache} CCACHE_MAXSIZE=3G
  fi
  start=$SECONDS
  "$python" -m venv "$scratch/tools"
  "$scratch/tools/bin/pip" wheel --verbose --no-deps --wheel-dir "$scratch/dist" --config-settings "build-dir=$scratch/build" \
    "$scratch/meshift-src" > "$scratch/wheel.log" 2>&1 || { tail -n 50 "$scratch/wheel.log"; exit 1; }
  echo "built in $((SECONDS - start)) s"
  wheel=$(ls "$scratch"/dist/*.whl)
fi
bytes=$(stat -c %s "$wheel")
echo "$(basename "$wheel"): $bytes bytes"
((bytes <= 8000000)) || { echo "that is more than 8 MB"; exit 1; }

# Nothing of this machine but Python: no compiler, no variable, and no folder of ours.
"$python" -m venv "$scratch/venv"
"$scratch/venv/bin/pip" install --quiet --no-index "$wheel"
mkdir "$scratch/programs"
cp -r python/examples python/bench "$scratch/programs"
cd "$scratch/programs"
alone() { env -i HOME="$scratch" PATH="$scratch/venv/bin" "$@"; }
if alone bash -c 'command -v cc || command -v gcc || command -v g++' 2> /dev/null; then
  echo "there is a compiler"
  exit 1
fi
alone meshift --version
alone python -m meshift plan --mesh dp=2,tp=4 --tensor 'bf16[64,16]' --from P,R --to R,R | tail -n 2
alone python examples/plan.py > plan.out
grep "promise" plan.out
# All that is loaded besides is the machine's C and C++ library.
alone python -c "import meshift
for line in sorted({line.split()[-1] for line in open('/proc/self/maps') if '.so' in line}): print(line)" > loaded
others=$(grep -vE "/site-packages/meshift/|python|/(ld-linux[^/]*|lib(c|m|dl|rt|pthread|util|gcc_s|stdc\+\+|ffi|z|expat))[.-][^/]*$" loaded || true)
[[ -z $others ]] || { echo "also loaded: $others"; exit 1; }
alone python bench/import_time.py 40

# The types that the package has. mypy and NumPy lie elsewhere.
"$python" -m venv "$scratch/tools"
"$scratch/tools/bin/pip" install --quiet mypy numpy
"$scratch/tools/bin/pip" install --quiet --no-index "$wheel"
"$scratch/tools/bin/mypy" --config-file "$repository/pyproject.toml" examples bench/import_time.py
echo "passed"
