#!/bin/bash
# The steps of nccl_probe that need PyTorch, with a stand-in for PyTorch (fake_torch/): Python runs
# inside a rank, lends a communicator, and continues after the engine has used it. Skipped if Python
# or its shared library is missing.
set -u

export MESHIFT_CUDA_LIBRARY=$PWD/testing/fake_gpu/libfake_cuda.so MESHIFT_NCCL_LIBRARY=$PWD/testing/fake_gpu/libfake_nccl.so
export PYTHONPATH=$PWD/tests/gpu/fake_torch PYTHONDONTWRITEBYTECODE=1
failures=0

library='import os, sysconfig as s; print(os.path.join(s.get_config_var("LIBDIR") or "", s.get_config_var("INSTSONAME") or ""))'
for python in python3 /usr/bin/python3; do
  file=$("$python" -c "$library" 2> /dev/null)
  [[ $file == *.so* && -f $file ]] && break
  python=
done
if [[ -z $python ]]; then
  echo "skipped: no Python with a shared library"
  exit 0
fi
export MESHIFT_PYTHON=$python

# probe <step> <text that it prints>
probe() {
  local output
  output=$(tests/gpu/nccl_probe --only "$1" --out "$TEST_TMPDIR/$1" 2>&1)
  if [[ $output != "$1: $2"* ]]; then
    printf 'no "%s: %s" in:\n%s\n' "$1" "$2" "$output"
    tail -n 20 "$TEST_TMPDIR/$1/$1"/rank*.log
    failures=$((failures + 1))
  fi
}

probe host_torch "right, "
probe lent_blocking "right, "
probe lent_nonblocking "right, "
grep -q "calls on a non-blocking communicator that PyTorch lent are right" "$TEST_TMPDIR/lent_nonblocking/lent_nonblocking/result" || failures=$((failures + 1))
# Without PyTorch, and without a shared library, the reason is printed.
PYTHONPATH='' probe host_torch "skipped: $python: no PyTorch: "
MESHIFT_PYTHON=/nowhere/python3 probe host_torch "skipped: /nowhere/python3: "
exit $((failures > 0))
