#!/bin/bash
# Ranks with different arguments report the difference at once. Runs under mpi_test.sh.
#
#   other_arguments_test.sh MPIRUN MPIRUN_GOES_ON MESHIFT
set -u
mpirun=$1 goes_on=$2 meshift=$3
problem="--engine mpi --mesh d=3 --tensor f32[12] --from P --to R"
# expect ARGUMENTS OTHERS MESSAGE: the arguments of ranks 0 and 1, those of rank 2, the message.
expect() {
  local output
  # shellcheck disable=SC2086
  output=$(timeout 30 "$mpirun" -n 2 "$meshift" $1 : -n 1 "$meshift" $2 2>&1)
  local code=$?
  if ((code != 2)) || [[ $(grep -cxF -- "meshift: rank 0 was asked to $3" <<< "$output") != 3 ]]; then
    echo "exit code $code (124: no answer); not said by all: $3"
    echo "$output"
    exit 1
  fi
}
expect "run $problem --repeat 3" "run $problem --repeat 4" "run --repeat 3, and rank 2 to run --repeat 4"
expect "run --engine mpi --conformance --cases 20" "run $problem" "run --conformance --cases 20, and rank 2 to run --mesh d=3 --tensor f32[12] --from P --to R"
expect "run --engine mpi --conformance --cases 20" "run --engine mpi --conformance --cases 21" "run --cases 20, and rank 2 to run --cases 21"
expect "run $problem" "run $problem --seed 2" "run, and rank 2 to run --seed 2"
expect "run $problem" "run ${problem/d=3/d=2}" "run --mesh d=3, and rank 2 to run --mesh d=2"
expect "calibrate --engine mpi --max-bytes 64KiB" "run $problem" "calibrate --max-bytes 64KiB --repeat 20, and rank 2 to run --mesh d=3 --tensor f32[12] --from P --to R"
# Arguments that are wrong on their own, on the first rank or the last: all ranks print the mistake,
# and none hangs. The last argument: the number of ranks that print it.
expect_wrong() {
  local output
  # shellcheck disable=SC2086
  output=$(timeout 30 "$mpirun" "$goes_on" -n 1 "$meshift" $1 : -n 2 "$meshift" $2 2>&1)
  local code=$?
  if ((code == 124)) || [[ $(grep -cF -- "$3" <<< "$output") != "$4" ]]; then
    echo "exit code $code (124: no answer); not said by $4: $3"
    echo "$output"
    exit 1
  fi
}
bad="--engine mpi --mesh d=3 --tensor f32[12] --from P --to X"
for _ in 1 2 3; do
  expect_wrong "run $bad" "run $problem" 'meshift: rank 0: --to: placements "X"' 3
  expect_wrong "run $problem" "run $bad" 'meshift: rank 1: --to: placements "X"' 3
done
expect_wrong "run $bad" "run $bad" 'meshift: --to: placements "X"' 1
expect_wrong "run $problem --repeat x" "run $problem --repeat x" "meshift: --repeat: 'x' is not a number" 1
expect "run $problem" "run $problem --buffers one" "run, and rank 2 to run --buffers one"
echo "said"
