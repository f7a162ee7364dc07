#!/bin/bash
# Starts a command as N ranks on this host, with the variables that torchrun sets, on the stand-in
# libraries if these are given as data. Prints the output of each rank; fails if one fails.
#
#   torchrun.sh N COMMAND [ARGUMENT...]
set -u
n=$1
shift
export MESHIFT_CUDA_LIBRARY=${MESHIFT_CUDA_LIBRARY:-testing/fake_gpu/libfake_cuda.so}
export MESHIFT_NCCL_LIBRARY=${MESHIFT_NCCL_LIBRARY:-testing/fake_gpu/libfake_nccl.so}
export WORLD_SIZE=$n LOCAL_WORLD_SIZE=$n MASTER_ADDR=127.0.0.1
# A port range that the kernel does not assign by itself. Parts of one test
# (testing/side_by_side.sh) have separate ports, on which no process listens. If two jobs meet at
# one port all the same, their names tell them apart.
part=${TEST_SHARD_INDEX:-0} parts=${TEST_TOTAL_SHARDS:-1}
while
  MASTER_PORT=$((15000 + (RANDOM * 32768 + RANDOM) % (15000 / parts) * parts + part))
  (exec 3<> "/dev/tcp/127.0.0.1/$MASTER_PORT") 2> /dev/null
do :; done
export MASTER_PORT TORCHELASTIC_RUN_ID=${TORCHELASTIC_RUN_ID:-$$.$RANDOM$RANDOM}
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
pids=()
for ((rank = 0; rank < n; ++rank)); do
  # In the foreground, so that the end of this process group ends the ranks.
  RANK=$rank LOCAL_RANK=$rank timeout --foreground 120 "$@" > "$logs/$rank" 2>&1 &
  pids+=($!)
done
code=0
for ((rank = 0; rank < n; ++rank)); do
  wait "${pids[$rank]}" || code=$?
done
for ((rank = 0; rank < n; ++rank)); do
  cat "$logs/$rank"
done
exit $code
