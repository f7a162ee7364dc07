#!/bin/bash
# The bundle's script, with the programs that the bundle has: without a GPU, and over the stand-ins for the driver and NCCL.
set -u

bundle=$TEST_TMPDIR/bundle
mkdir -p "$bundle"
for program in kernel_check nccl_check run_gpu_checks.sh; do cp -L "tests/gpu/$program" "$bundle/"; done
export TMPDIR=$TEST_TMPDIR
failures=0

# expect <exit code> <text that is printed> <arguments>
expect() {
  local code=$1 text=$2 output
  shift 2
  output=$("$bundle/run_gpu_checks.sh" "$@" 2>&1)
  local got=$?
  if ((got != code)) || [[ $output != *"$text"* ]]; then
    printf 'arguments %s: exit code %s, not %s, or no "%s" in:\n%s\n' "$*" "$got" "$code" "$text" "$output"
    failures=$((failures + 1))
  fi
}

MESHIFT_CUDA_LIBRARY=/nowhere/libcuda.so.1 expect 3 "no GPU to check: no CUDA driver library /nowhere/libcuda.so.1" --quick
expect 2 "unknown option --fast" --fast
expect 2 "--ranks wants a value" --ranks
expect 2 "--ranks wants numbers from 2 to 16, with commas between them, not '2,x'" --ranks 2,x
for option in --cases --seconds --copies --rounds --mib; do
  for value in 0 -1 x 1.5 ''; do expect 2 "$option wants a number from 1 on, not '$value'" $option "$value"; done
done
# By another name, and from a folder with a space.
ln -s "$bundle/run_gpu_checks.sh" "$TEST_TMPDIR/link.sh"
mv "$bundle" "$TEST_TMPDIR/a bundle"
ln -s "$TEST_TMPDIR/a bundle" "$bundle"
if ! output=$(cd "$TEST_TMPDIR" && CDPATH=.:/tmp MESHIFT_CUDA_LIBRARY=/nowhere/libcuda.so.1 bash link.sh --quick 2>&1) && [[ $output != *"no GPU to check"* ]]; then
  echo "by another name: $output"
  failures=$((failures + 1))
fi

export MESHIFT_CUDA_LIBRARY=$PWD/testing/fake_gpu/libfake_cuda.so
small=(--copies 3 --rounds 1 --mib 1 --ranks 2,4 --seconds 100 --cases 30)
MESHIFT_NCCL_LIBRARY=$PWD/testing/fake_gpu/libfake_nccl.so expect 0 "all is right" "${small[@]}"
# Of several libraries the first that is new enough.
mkdir "$TEST_TMPDIR/old" "$TEST_TMPDIR/new"
cp -L comm/nccl/libold_nccl.so "$TEST_TMPDIR/old/libnccl.so.2"
cp -L testing/fake_gpu/libfake_nccl.so "$TEST_TMPDIR/new/libnccl.so.2"
LD_LIBRARY_PATH=$TEST_TMPDIR/old:$TEST_TMPDIR/new expect 0 "NCCL: $TEST_TMPDIR/new/libnccl.so.2" "${small[@]}"
MESHIFT_NCCL_LIBRARY=/nowhere/libnccl.so.2 expect 3 "kernels: right, NCCL: not checked" "${small[@]}"
exit $((failures > 0))
