#!/bin/bash
# One of four ranks is killed, another one each time, before a call or within one: the three others end with an error in time. Runs under mpi_test.sh.
#
#   fault_test.sh MPIRUN FAULT_TEST       # MESHIFT_FAULT_ROUNDS: how often
set -u
rounds=${MESHIFT_FAULT_ROUNDS:-8}
for ((round = 0; round < rounds; ++round)); do
  # mpirun itself fails, since a rank was killed.
  output=$(timeout 60 "$1" --enable-recovery -n 4 "$2" kill "$round" 2>&1)
  survivors=$(grep -c '^survivor: ' <<< "$output")
  if ((survivors != 3)); then
    echo "round $round: $survivors survivors, not 3:"
    echo "$output"
    exit 1
  fi
  if ((round == 0)); then grep '^survivor: ' <<< "$output"; fi
done
echo "$rounds rounds"
