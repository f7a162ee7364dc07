#!/bin/bash
# One of four ranks is killed, another one each time: the three others end with an error in time.
#
#   kill_test.sh TORCHRUN_SH KILL_WORKER       # MESHIFT_FAULT_ROUNDS: how often
set -u
rounds=${MESHIFT_FAULT_ROUNDS:-100}
longest=0
for ((round = 0; round < rounds; ++round)); do
  output=$("$1" 4 "$2" $((round % 4)) 2>&1)
  survivors=$(grep -c '^survivor ' <<< "$output")
  if ((survivors != 3)); then
    echo "round $round: $survivors survivors, not 3:"
    echo "$output"
    exit 1
  fi
  if ((round < 4)); then grep '^survivor ' <<< "$output"; fi
  took=$(sed -n 's/^survivor [0-9]*: \([0-9]*\) ms.*/\1/p' <<< "$output" | sort -n | tail -1)
  if ((took > longest)); then longest=$took; fi
done
echo "$rounds rounds, $longest ms at most"
