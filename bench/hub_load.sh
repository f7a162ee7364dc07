#!/bin/bash
# A job of 4 ranks whose hub is attacked by strangers, and the same job while they attack another
# hub: results stay right, rank 0's memory does not grow, and the first takes at most 1.2 times as
# long as the second.
#
#   hub_load.sh PROGRAM [short]      # short: 1,000 redistributions once, and no comparison of times, which are the machine's
#
# HUB_LOAD_ALWAYS=always has the ranks agree through the hub in every call; the default is as usual, in the first ones.
set -u
program=$1 short=${2:-}
calls=20000 idle=2000 pairs=7
[[ -z $short ]] || { calls=1000 idle=300 pairs=1; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
command -v mpirun > /dev/null || { echo "skipped: there is no mpirun"; exit 0; }
folder=$(mktemp -d)
pids=()
end() {
  for pid in "${pids[@]}"; do kill "$pid" 2> /dev/null; done
  rm -rf "$folder"
}
trap end EXIT

# Runs the job once. $1: the attacked hub, job or other; $2: wait, for the last false rank. Sets
# seconds and grown.
run() {
  local target=$folder/$1.$RANDOM out
  if [[ $1 == other ]]; then
    "$program" hub "$target" &
    pids+=($!)
    out=$folder/unattacked
  else
    out=$target
  fi
  "$program" attack "$target" $idle > "$folder/attack" 2>&1 &
  pids+=($!)
  timeout 300 mpirun -n 4 "$program" job "$out" $calls ${HUB_LOAD_ALWAYS:-} ${2:-} > "$folder/job" 2>&1
  local code=$?
  for pid in "${pids[@]}"; do kill "$pid" 2> /dev/null; done
  wait "${pids[@]}" 2> /dev/null
  pids=()
  rm -f "$folder/unattacked"
  echo "$1: $(grep redistributions "$folder/job" || tail -n 3 "$folder/job"); $(cat "$folder/attack")"
  if ((code != 0)); then
    echo "FAILED: the job ends with $code"
    cat "$folder/job"
    exit 1
  fi
  if grep -q FAILED "$folder/attack" || { [[ ${2:-} == wait ]] && ! grep -q dropped "$folder/attack"; }; then
    echo "FAILED: a false rank was not dropped for its frame"
    exit 1
  fi
  seconds=$(sed -n 's/.* in \([0-9.]*\) s;.*/\1/p' "$folder/job")
  grown=$(sed -n 's/.*has grown by \([0-9]*\) KiB.*/\1/p' "$folder/job")
}

own=() others=()
for ((pair = 0; pair < pairs; ++pair)); do
  if ((pair == 0)); then run job wait; else run job; fi
  own+=("$seconds")
  if ((grown > 16 * 1024)); then
    echo "FAILED: rank 0 has grown by $grown KiB, more than 16 MiB"
    exit 1
  fi
  [[ -n $short ]] && exit 0
  run other
  others+=("$seconds")
done
# The median of the arguments.
middle() { printf '%s\n' "$@" | sort -n | sed -n "$((($# + 1) / 2))p"; }
awk -v own="$(middle "${own[@]}")" -v other="$(middle "${others[@]}")" 'BEGIN {
  printf "%s s with strangers at its hub, %s s with the same strangers at another: %.2f times\n", own, other, own / other
  exit own / other > 1.2
}' || { echo "FAILED: more than 1.2 times"; exit 1; }
