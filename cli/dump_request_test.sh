#!/bin/bash
# The records of `meshift run` (MESHIFT_DUMP): all ranks write one when a rank gets SIGUSR1, and the
# job continues; and they write one on an error, when a rank is stopped. Runs under mpi_test.sh.
#
#   dump_request_test.sh MPIRUN MESHIFT
set -u
mpirun=$1 meshift=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export MESHIFT_DUMP=$scratch/dump
fail() {
  echo "$1"
  cat "$scratch/log"
  exit 1
}
# Waits until the command $1 succeeds, at most 60 s.
await() {
  for ((i = 0; i < 600; ++i)); do
    eval "$1" && return 0
    sleep 0.1
  done
  fail "in vain: $1"
}
records() { find "$MESHIFT_DUMP" -name 'meshift-*-rank0000[01].json' 2> /dev/null | wc -l; }

# shellcheck disable=SC2016
"$mpirun" -n 2 bash -c 'echo $$ > "$0/pid.${OMPI_COMM_WORLD_RANK:-$PMI_RANK}"; exec "$@"' "$scratch" \
  "$meshift" run --engine mpi --mesh a=2 --tensor 'f32[8]' --from P --to R --timeout 3 --repeat 100000000 > "$scratch/log" 2>&1 &
job=$!
await '[[ -s $scratch/pid.0 && -s $scratch/pid.1 && -d $MESHIFT_DUMP ]]'
# The signal handler is installed soon after the folder is made.
sleep 1
kill -USR1 "$(< "$scratch/pid.1")" || fail "rank 1 has ended"
await '(($(records) == 2))'
"$meshift" dump "$MESHIFT_DUMP" > "$scratch/report" || fail "no report"
grep -q '^records of 2 of 2 ranks$' "$scratch/report" && grep -q '^no rank had failed$' "$scratch/report" || fail "$(< "$scratch/report")"

# The job has continued since then. It also continues if a FIFO replaces the file that the signal
# touches.
rm "$MESHIFT_DUMP"/*.json "$MESHIFT_DUMP/now"
mkfifo "$MESHIFT_DUMP/now"
await '(($(records) == 2))'
rm "$MESHIFT_DUMP"/*.json
kill -USR1 "$(< "$scratch/pid.0")" || fail "rank 0 has ended"
sleep 1
grep -q 'State:.*[RS]' "/proc/$(< "$scratch/pid.0")/status" || fail "rank 0 has ended"
rm -f "$MESHIFT_DUMP"/*.json
kill -STOP "$(< "$scratch/pid.1")" || fail "rank 1 has ended"
await '(($(records) == 1))'
"$meshift" dump "$MESHIFT_DUMP" > "$scratch/report" || fail "no report"
kill -KILL "$(< "$scratch/pid.1")"
wait "$job" && fail "the job did not fail"
cat "$scratch/report"
# It may have been stopped within a call or between two.
grep -q '^records of 1 of 2 ranks; none of rank 1$' "$scratch/report" && grep -q '^first error: rank 0, .*DEADLINE_EXCEEDED' "$scratch/report"
