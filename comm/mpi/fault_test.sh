#!/bin/bash
# One of four ranks is killed, another one each time, before a call or within one: the three others end with an error in time. Runs under mpi_test.sh.
#
#   fault_test.sh MPIRUN MPIRUN_GOES_ON FAULT_TEST [bounded [hang]]      # as third_party/mpi/mpi.bzl and fault_test.cc say
#
# MESHIFT_FAULT_ROUNDS: how often; of testing/side_by_side.sh each part makes its own.
set -u
rounds=${MESHIFT_FAULT_ROUNDS:-100}
made=0
longest=0
for ((round = ${TEST_SHARD_INDEX:-0}; round < rounds; round += ${TEST_TOTAL_SHARDS:-1})); do
  # mpirun itself fails, since a rank was killed.
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
