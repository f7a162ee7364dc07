#!/bin/bash
# One of four ranks of `meshift run` is killed. All others end with an error that names the rank or
# the step, within the time-out plus one second, even inside MPI calls that do not return. Runs
# under mpi_test.sh.
#
#   killed_rank_test.sh MPIRUN MESHIFT LIBFAULT_SO
set -u
mpirun=$1 meshift=$2 library=$PWD/$3
limit_ms=21000
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# round FAULT PATTERN ARGUMENTS: a fault of testing/internal/mpi/fault_library.cc, the message of
# all survivors, the command line.
round() {
  local fault=$1 pattern=$2 name=$scratch/${1//:/_} begin end
  shift 2
  # A time-out of 100 s for hangs. mpirun itself fails, since a rank was killed. Each run gets its own TMPDIR, since two that start at once race to make the same folder in it.
  TMPDIR=$(mktemp -d "$TMPDIR/XXX") timeout 100 "$mpirun" --enable-recovery --output-filename "$name.ranks" -n 4 -x "LD_PRELOAD=$library" -x "MESHIFT_FAULT=$fault" -x "MESHIFT_FAULT_FILE=$name.killed" \
    "$meshift" "$@" --timeout 20 > "$name.out" 2>&1
  end=$(date +%s%3N)
  if [[ ! -e $name.killed ]]; then
    { echo "$fault: no rank was killed"; cat "$name.out"; } > "$name.wrong"
    return
  fi
  begin=$(date +%s%3N -r "$name.killed")
  echo "$fault: $((end - begin)) ms"
  if ((end - begin > limit_ms || $(grep -rlE "meshift: rank [0-9]: $pattern" "$name.ranks" | wc -l) != 3)); then
    { echo "$fault: the others end after $((end - begin)) ms, and say:"; cat "$name.out"; } > "$name.wrong"
  fi
}
reduction=(run --engine mpi --mesh a=2,b=2 --tensor 'f32[64,256]' --from P,P --to R,R)
hangs='.*(rank 3 is gone|has not come back from MPI for 20250 ms)'
round hang:3:90 "$hangs" "${reduction[@]}" --repeat 100 &
for messages in 1 40 77; do
  for rank in 0 1 2 3; do
    round "kill:$rank:$messages" "(.* )?rank $rank('s process)? is gone" "${reduction[@]}" --repeat 100
  done
done
round kill:1:3000 '(.* )?rank 1 is gone' run --engine mpi --conformance
wait
! cat "$scratch"/*.wrong 2> /dev/null
