#!/bin/bash
# The records of `meshift run` (MESHIFT_DUMP): of all ranks when one gets SIGUSR1, after which the job goes on; and on an error. Runs under
# mpi_test.sh.
#
#   dump_request_test.sh MPIRUN MESHIFT
set -u
mpirun=$1 meshift=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export MESHIFT_DUMP=$scratch/dump
# Waits until $1, at most 20 s.
await() {
  for ((i = 0; i < 200; ++i)); do
    eval "$1" && return 0
    sleep 0.1
  done
  echo "in vain: $1"
  cat "$scratch/log"
  exit 1
}
records() { find "$MESHIFT_DUMP" -name 'meshift-*-rank0000[01].json' 2> /dev/null | wc -l; }
# A job of two ranks that ends when the file `end` is there, or by an error.
start() {
  rm -rf "$scratch"/pid.* "$MESHIFT_DUMP"
  # shellcheck disable=SC2016
  "$mpirun" -n 2 bash -c 'echo $$ > "$0/pid.$OMPI_COMM_WORLD_RANK"; exec "$@"' "$scratch" \
    "$meshift" run --engine mpi --mesh a=2 --tensor 'f32[8]' --from P --to R --timeout 3 --repeat "$1" > "$scratch/log" 2>&1 &
  job=$!
  await '[[ -s $scratch/pid.0 && -s $scratch/pid.1 && -d $MESHIFT_DUMP ]]'
}

start 10000
sleep 0.5
kill -USR1 "$(< "$scratch/pid.1")"
await '(($(records) == 2))'
wait "$job" || { echo "the job did not go on"; cat "$scratch/log"; exit 1; }
"$meshift" dump "$MESHIFT_DUMP" > "$scratch/report" || exit 1
head -n 2 "$scratch/report"
grep -q '^records of 2 of 2 ranks$' "$scratch/report" && grep -q '^no rank had failed$' "$scratch/report" || exit 1

start 100000000
sleep 0.5
kill -STOP "$(< "$scratch/pid.1")"
await '(($(records) == 1))'
"$meshift" dump "$MESHIFT_DUMP" > "$scratch/report" || exit 1
kill -KILL "$(< "$scratch/pid.1")"
wait "$job" && { echo "the job did not fail"; exit 1; }
cat "$scratch/report"
# Whether it was stopped within a call or between two.
grep -q '^records of 1 of 2 ranks; none of rank 1$' "$scratch/report" && grep -q '^first error: rank 0, .*DEADLINE_EXCEEDED' "$scratch/report"
