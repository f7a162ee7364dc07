#!/bin/bash
# The steps of nccl_probe that need PyTorch, with a stand-in for PyTorch (fake_torch/), which lends a
# communicator, and continues after the engine has used it. Skipped if Python is missing.
set -u

export MESHIFT_CUDA_LIBRARY=$PWD/testing/fake_gpu/libfake_cuda.so MESHIFT_NCCL_LIBRARY=$PWD/testing/fake_gpu/libfake_nccl.so
export PYTHONPATH=$PWD/tests/gpu/fake_torch PYTHONDONTWRITEBYTECODE=1
failures=0

if ! command -v python3 > /dev/null; then
  echo "skipped: no Python"
  exit 0
fi
export MESHIFT_PYTHON=python3

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
probe lent_split "right, "
grep -q "calls on a non-blocking communicator that PyTorch lent are right" "$TEST_TMPDIR/lent_nonblocking/lent_nonblocking/result" || failures=$((failures + 1))
# Without PyTorch or Python the reason is printed.
PYTHONPATH='' probe host_torch "skipped: python3: no PyTorch: "
MESHIFT_PYTHON=/nowhere/python3 probe host_torch "skipped: /nowhere/python3: "
exit $((failures > 0))
