#!/bin/bash
# Ranks as processes on the stand-in libraries: the run fails if one of them breaks a rule of CUDA
# or NCCL, and only then.
#
#   broken_rule_test.sh MPI_TEST_SH LIBBREAK_A_RULE_SO MPIRUN MESHIFT
set -u
run() {
  "$mpi_test" "$mpirun" -n 8 "$@" "$meshift" run --engine nccl --mesh dp=4,tp=2 --tensor 'bf16[40,6]' --from P,R --to 'S(0),R' 2>&1
}
mpi_test=$1 library=$PWD/$2 mpirun=$3 meshift=$4
if ! output=$(run); then
  echo "a run that breaks no rule fails:"
  echo "$output"
  exit 1
fi
if output=$(run -x "LD_PRELOAD=$library"); then
  echo "a run that breaks a rule passes:"
  echo "$output"
  exit 1
fi
if ! grep -q 'ends with broken rules' <<< "$output" || ! grep -q 'no such event' <<< "$output"; then
  echo "the run does not say which rule was broken:"
  echo "$output"
  exit 1
fi
