#!/bin/bash
# In each round one of four ranks is killed, is stopped, or makes no more calls; the other three must end with an error in time.
#
#   kill_test.sh TORCHRUN_SH KILL_WORKER [kill|stop|loop]       # MESHIFT_FAULT_ROUNDS: number of rounds, shared by the parts of testing/side_by_side.sh
set -u
how=${3:-kill}
case $how in
  kill) usual=100 ;;
  *) usual=8 ;;  # each takes some seconds
esac
rounds=${MESHIFT_FAULT_ROUNDS:-$usual}
made=0
longest=0
for ((round = ${TEST_SHARD_INDEX:-0}; round < rounds; round += ${TEST_TOTAL_SHARDS:-1})); do
  output=$("$1" 4 "$2" $((round % 4)) "$how" 2>&1)
  survivors=$(grep -c '^survivor ' <<< "$output")
  if ((survivors != 3)); then
    echo "round $round: $survivors survivors, not 3:"
    echo "$output"
    exit 1
  fi
  if ((made == 0)); then grep '^survivor ' <<< "$output"; fi
  took=$(sed -n 's/^survivor [0-9]*: \([0-9]*\) ms.*/\1/p' <<< "$output" | sort -n | tail -1)
  if ((took > longest)); then longest=$took; fi
  made=$((made + 1))
done
echo "$made rounds, $longest ms at most"
((made > 0))
