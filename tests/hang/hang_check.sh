#!/bin/bash
# In each round one rank of a job stops taking part (tests/hang/hang_worker.cc). Counts the rounds
# in which all other ranks end in time and `meshift dump` names the rank and the call.
#
#   hang_check.sh mpi MESHIFT HANG_WORKER MPIRUN [RANKS=4] [ROUNDS=25] [FAULT...]
#   hang_check.sh nccl MESHIFT HANG_WORKER TORCHRUN_SH [RANKS=4] [ROUNDS=25] [FAULT...]     # the stand-in, by MESHIFT_..._LIBRARY
#
# FAULT: stopped never loop kernel (in time: the time-out of 1 s and 2 s), error exit (within 1 s);
# default: all.
set -u
engine=$1 meshift=$2 worker=$3 launcher=$4 ranks=${5:-4} rounds=${6:-25}
shift $(($# < 6 ? $# : 6))
faults=("$@")
((${#faults[@]} > 0)) || faults=(stopped never loop kernel error exit)
readonly timeout_ms=1000
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
unset TEST_PREMATURE_EXIT_FILE
work=$(mktemp -d /tmp/hang.XXXXXX)
shared=$(mktemp -d /dev/shm/hang.XXXXXX)
export HOME=$work TMPDIR=$work OMPI_MCA_btl_vader_backing_directory=$shared OMPI_MCA_osc_sm_backing_directory=$shared
job=
# The job's processes have their own process group.
end_job() {
  [[ -z $job ]] || { kill -KILL -- "-$job"; wait "$job"; } 2> /dev/null
  job=
}
trap 'end_job; rm -rf "$work" "$shared"' EXIT

# Runs one round; prints errors.
try() {
  local fault=$1 culprit=$2 folder=$work/round limit_ms=$((timeout_ms + 2000)) i
  [[ $fault != error && $fault != exit ]] || limit_ms=1000
  rm -rf "$folder" "$shared"/*
  mkdir "$folder"
  local start=("$launcher" -n "$ranks")
  [[ $engine == mpi ]] && start+=(--mca orte_enable_recovery 1 --enable-recovery) || start=("$launcher" "$ranks")
  set -m
  "${start[@]}" "$worker" "$engine" "$fault" "$culprit" "$timeout_ms" "$folder" > "$folder/log" 2>&1 &
  job=$!
  set +m
  for ((i = 0; i < 600; ++i)); do
    (($(find "$folder" -name 'ended.*' ! -name '*.new' | wc -l) == ranks - 1)) && break
    sleep 0.1
  done
  end_job
  local rank ms call message
  for ((rank = 0; rank < ranks; ++rank)); do
    ((rank == culprit)) && continue
    if ! read -r ms call message 2> /dev/null < "$folder/ended.$rank"; then
      echo "rank $rank was not ended"
      tail -n 5 "$folder/log"
      return 1
    fi
    if ((ms > longest)); then longest=$ms; fi
    if ((ms > limit_ms)); then
      echo "rank $rank was ended after $ms ms: $message"
      return 1
    fi
    if [[ $message == OK* ]]; then
      echo "rank $rank was told of no error"
      return 1
    fi
  done
  [[ $fault != error && $fault != exit ]] || return 0
  "$meshift" dump "$folder" > "$folder/report" 2>&1
  if ! grep -q "^call $call of the redistributor of ranks 0-$((ranks - 1)) #0:" "$folder/report" ||
    ! grep -qE "(LATE|NO RECORD|HELD): ranks? $culprit( |:|$)" "$folder/report"; then
    echo "the report does not name rank $culprit and call $call:"
    cat "$folder/report"
    return 1
  fi
}

code=0
for fault in "${faults[@]}"; do
  passed=0 longest=0
  for ((round = 0; round < rounds; ++round)); do
    if wrong=$(try "$fault" $((round % ranks)); echo "#$longest"); then :; fi
    longest=${wrong##*#}
    wrong=${wrong%#*}
    if [[ -z $wrong ]]; then passed=$((passed + 1)); else printf '%s, round %d: %s\n' "$fault" "$round" "$wrong"; fi
  done
  echo "$engine, $ranks ranks, $fault: $passed of $rounds; $longest ms at most"
  ((passed == rounds)) || code=1
done
exit $code
