#!/bin/bash
# Ranks that were not all given the same arguments say so at once, and what the difference is. Runs under mpi_test.sh.
#
#   other_arguments_test.sh MPIRUN MESHIFT
set -u
mpirun=$1 meshift=$2
problem="--engine mpi --mesh d=3 --tensor f32[12] --from P --to R"
# The arguments of ranks 0 and 1, those of rank 2, and what is said.
expect() {
  local output
  # shellcheck disable=SC2086
  output=$(timeout 30 "$mpirun" -n 2 "$meshift" $1 : -n 1 "$meshift" $2 2>&1)
  local code=$?
  if ((code != 2)) || [[ $(grep -cF -- "meshift: rank 0 was asked to $3" <<< "$output") != 1 ]]; then
    echo "exit code $code (124: no answer); not said, or not once: $3"
    echo "$output"
    exit 1
  fi
}
expect "run $problem --repeat 3" "run $problem --repeat 4" "run --repeat 3, and rank 2 to run --repeat 4"
expect "run --engine mpi --conformance --cases 20" "run $problem" "run --conformance --cases 20, and rank 2 to run --repeat 1"
expect "run --engine mpi --conformance --cases 20" "run --engine mpi --conformance --cases 21" "run --conformance --cases 20, and rank 2 to run --conformance --cases 21"
expect "run $problem" "run $problem --seed 2" "run --repeat 1, and rank 2 to run --repeat 1 --seed 2"
expect "calibrate --engine mpi --max-bytes 64KiB" "run $problem" "calibrate --max-bytes 64KiB --repeat 20, and rank 2 to run --repeat 1"
echo "said"
