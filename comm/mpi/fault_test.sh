#!/bin/bash
# Kills one of four ranks per round, between calls or within one; the other three must report an
# error in time. Runs under mpi_test.sh.
#
#   fault_test.sh MPIRUN MPIRUN_GOES_ON FAULT_TEST [bounded [hang]]
#
# third_party/mpi/mpi.bzl defines the first two arguments, fault_test.cc the last two.
# MESHIFT_FAULT_ROUNDS is the number of rounds; with testing/side_by_side.sh each part runs a share.
set -u
rounds=${MESHIFT_FAULT_ROUNDS:-100}
made=0
longest=0
for ((round = ${TEST_SHARD_INDEX:-0}; round < rounds; round += ${TEST_TOTAL_SHARDS:-1})); do
  # mpirun fails too, since a rank was killed.
  output=$(timeout 60 "$1" "$2" -n 4 "$3" kill "$round" "${@:4}" 2>&1)
  survivors=$(grep -c '^survivor: ' <<< "$output")
  if ((survivors != 3)); then
    echo "round $round: $survivors survivors, not 3:"
    echo "$output"
    exit 1
  fi
  if ((made == 0)); then grep '^survivor: ' <<< "$output"; fi
  took=$(sed -n 's/^survivor: \([0-9]*\) ms.*/\1/p' <<< "$output" | sort -n | tail -1)
  if ((took > longest)); then longest=$took; fi
  made=$((made + 1))
done
echo "$made rounds, $longest ms at most"
((made > 0))
