#!/bin/bash
# Checks the MPI engine over MPICH: its tests, those of the command and of the C interface over MPI,
# and the 2,000 cases of --conformance and of --conformance --cross on 2, 4 and 8 ranks. If MPICH
# (Debian: libmpich-dev mpich) is missing, it says so and passes.
#
#   tools/check_mpich.sh [OPTION...]      # Bazel options, such as --disk_cache=FOLDER
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
if ! { command -v mpicc.mpich && command -v mpirun.mpich; } > /dev/null; then
  echo "left out: MPICH is not installed (Debian: libmpich-dev mpich)"
  exit 0
fi
trap 'exit 130' INT
failed=0
begin=$SECONDS
run_tests() {
  ./bazelw test --config=mpich --keep_going --test_env=MESHIFT_TEST_FRACTION=16 --test_env=MESHIFT_FAULT_ROUNDS=20 "$@" \
    //comm/mpi/... //cli:mpich //capi:mpi_test_4
}
# Tests with time limits may fail beside others on a slow machine: the failed ones run once more,
# one by one; Bazel has the results of the others.
run_tests "$@" || run_tests --local_test_jobs=1 "$@" || failed=1
./bazelw build --config=mpich "$@" //cli:meshift || exit 1
echo "$(mpirun.mpich --version | sed -n 's/ *Version: */MPICH /p'): tests, $((SECONDS - begin)) s"
for ranks in 2 4 8; do
  for kind in --conformance '--conformance --cross'; do
    begin=$SECONDS
    # shellcheck disable=SC2086
    output=$(timeout 600 mpirun.mpich -n "$ranks" bazel-bin/cli/meshift run --engine mpi $kind 2>&1)
    code=$?
    echo "$ranks ranks, $kind, $((SECONDS - begin)) s, cases, on all ranks, runs, wrong, ...: $(tail -n 1 <<< "$output")"
    # The last line says whether all cases are right.
    if ((code != 0)); then
      echo "exit code $code:"
      echo "$output"
      failed=1
    fi
  done
done
exit $failed
