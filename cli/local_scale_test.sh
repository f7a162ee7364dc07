#!/bin/bash
# `meshift run` on the local engine takes time and memory in proportion to ranks: eight times as
# many must not take 64 times as long. Measures processor time, which does not depend on other
# processes.
#
#   local_scale_test.sh MESHIFT
set -u
meshift=$1
# Prints the processor time in ms and the memory in MiB that a command takes.
measure='
import resource, subprocess, sys
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
print(int(1000 * (usage.ru_utime + usage.ru_stime)), usage.ru_maxrss // 1024)'
failed=0
# expect MESH_OF_N FROM TO: compares N = 5,000 with N = 40,000.
expect() {
  local few_ms few_mib many_ms many_mib
  read -r few_ms few_mib < <(/usr/bin/python3 -c "$measure" "$meshift" run --mesh "${1//N/5000}" --tensor 'f32[8]' --from "$2" --to "$3")
  read -r many_ms many_mib < <(/usr/bin/python3 -c "$measure" "$meshift" run --mesh "${1//N/40000}" --tensor 'f32[8]' --from "$2" --to "$3")
  echo "$1 $2 -> $3: $few_ms ms and $few_mib MiB, $many_ms ms and $many_mib MiB"
  if ((${many_ms:-1000000} > 20 * few_ms || many_mib > 12 * few_mib)); then
    echo "that is more than in proportion to ranks"
    failed=1
  fi
}
expect 'a=N' P R
expect 'a=N' R 'S(0)'
expect 'a=N,b=8' 'R,P' 'R,R'
expect 'b=N@1-N' P R
exit $failed
