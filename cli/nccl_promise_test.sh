#!/bin/bash
# `meshift run` over NCCL with the promise `batch-invariant`, each rank a process on the stand-in
# libraries. Expects NCCL's tree if the environments of all ranks fit, else ordered sums; the output
# says which, and why.
#
#   nccl_promise_test.sh TORCHRUN_SH MESHIFT
set -eu
torchrun=$1 meshift=$2
profile=$("$meshift" env --profile batch-invariant --nccl-version 2.28.9)
eval "$profile"
# Runs on 4 ranks; each first evaluates the given shell code.
run() {
  "$torchrun" 4 bash -c "$1"'; shift; exec "$@"' rank 0 "$meshift" run --engine nccl --mesh dp=2,tp=2 --tensor 'bf16[40,6]' \
    --from P,P --to R,R --promise batch-invariant
}
expect() {
  if ! grep -qF -- "$1" <<< "$output"; then
    echo "not in the output: $1"
    echo "$output"
    exit 1
  fi
}
output=$(run :)
expect 'kept (engine nccl reduces every element in the same way (by tree, as the environment of every rank says, on one channel)'
output=$(run '[ "$RANK" != 2 ] || unset NCCL_PROTO')
expect 'kept (contributions are combined in ascending order of coordinates: engine nccl does not promise to reduce every element in the same way (rank 2: NCCL_PROTO is not set'
