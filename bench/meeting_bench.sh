#!/bin/bash
# How ranks meet in hard cases: many ranks, few descriptors, ports in the kernel's own range, a rank
# of an earlier attempt.
#
#   meeting_bench.sh PROGRAM [short]      # short: a tenth of the ranks and of the waiting
#
# Prints a line per case; fails if a case fails. Takes two minutes; the short form twenty seconds.
set -u
program=$1 short=${2:-}
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
failed=0
note() { echo "$1"; [[ $1 == ok* ]] || failed=1; }

# The soft limit of descriptors is below the number of ranks.
clients=1100
if out=$(ulimit -Sn 1024 && "$program" crowd $clients 150 2>&1); then note "ok: soft limit 1024: $out"; else note "FAILED: soft limit 1024: $out"; fi
# The error names a limit that cannot be raised.
if out=$(ulimit -n 1024 && "$program" crowd $clients 150 2>&1); then
  note "FAILED: 1,100 clients have met with 1,024 descriptors: $out"
elif [[ $out == *"the limit is 1024 (soft), 1024 (hard)"* ]]; then
  note "ok: hard limit 1024: $(grep -m 1 limit <<< "$out")"
else
  note "FAILED: hard limit 1024: $out"
fi

clients=8000 most_mib=200
# Each within 3 s and 200 MiB, for 8,000 clients. A hub that takes a byte per pair of clients for
# each byte of a part would need 92 MiB for 800 clients.
[[ -z $short ]] || { clients=800 most_mib=48; }
if ! out=$("$program" crowd $clients 150 2>&1); then
  note "FAILED: $clients clients: $out"
elif ! [[ $out =~ ([0-9.]+)\ s,\ ([0-9]+)\ MiB ]]; then
  note "FAILED: $clients clients: there is no figure in '$out'"
elif awk -v s="${BASH_REMATCH[1]}" -v mib="${BASH_REMATCH[2]}" -v most="$most_mib" 'BEGIN {exit !(s <= 3 && mib <= most)}'; then
  note "ok: $out"
else
  note "FAILED: $clients clients, more than 3 s or $most_mib MiB: $out"
fi

# Jobs whose ranks dial even ports of the kernel's own range long before a process listens there.
jobs=10 ranks=8 late=15000
[[ -z $short ]] || { jobs=4 late=1500; }
read -r first last < /proc/sys/net/ipv4/ip_local_port_range
pids=()
for ((job = 0; job < jobs; ++job)); do
  port=$((first + (first % 2) + 2 * (RANDOM * 32768 + RANDOM) % (last - first - 2)))
  port=$((port > last ? first + 2 * job : port))
  for ((rank = 0; rank < ranks; ++rank)); do
    RANK=$rank WORLD_SIZE=$ranks LOCAL_RANK=$rank MASTER_ADDR=127.0.0.1 MASTER_PORT=$port TORCHELASTIC_RUN_ID=job$job \
      "$program" rank $((rank == 0 ? late : 0)) > "$logs/$job.$rank" 2>&1 &
    pids+=($!)
  done
done
met=0
for pid in "${pids[@]}"; do wait "$pid" && ((++met)); done
if ((met == jobs * ranks)); then
  note "ok: $jobs jobs of $ranks ranks on even ports of the kernel's range, rank 0 $late ms late: $met ranks have met"
else
  note "FAILED: $met of $((jobs * ranks)) ranks have met: $(grep -h meeting_bench "$logs"/* | head -n 3)"
fi

# A rank that an earlier attempt has left must not take a place of the new one.
port=$((20000 + RANDOM % 5000))
start() { # attempt, rank, milliseconds late, seconds that it waits
  RANK=$2 WORLD_SIZE=2 LOCAL_RANK=$2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port TORCHELASTIC_RUN_ID=none TORCHELASTIC_RESTART_COUNT=$1 \
    MEETING_SECONDS=$4 "$program" rank "$3"
}
start 0 1 0 2 > "$logs/stale" 2>&1 &
stale=$!
start 1 0 0 30 > "$logs/zero" 2>&1 &
zero=$!
start 1 1 4000 30 > "$logs/one" 2>&1 &
one=$!
if wait $stale; then note "FAILED: a stale rank has met the new attempt"; fi
if wait $zero && wait $one && grep -q "it belongs to another job" "$logs/stale"; then
  note "ok: a stale rank is refused: $(grep -oh 'the hub refuses.*' "$logs/stale")"
else
  note "FAILED: a stale rank: $(cat "$logs/stale" "$logs/zero" "$logs/one")"
fi

# Through torchrun's own store, if torchrun is installed (TORCHRUN names it).
torchrun=${TORCHRUN:-$(command -v torchrun)}
if [[ -z $torchrun ]]; then
  echo "skipped: there is no torchrun"
else
  for options in --standalone --rdzv-backend=static\ --master-port=$((15000 + RANDOM % 5000)); do
    # shellcheck disable=SC2086 # several options
    out=$(MESHIFT_SECRET=$RANDOM timeout 120 "$torchrun" $options --nproc-per-node 4 --no-python "$program" rank 0 2>&1)
    if [[ $(grep -c 'has met 4 ranks' <<< "$out") == 4 ]]; then note "ok: torchrun $options"; else note "FAILED: torchrun $options: $out"; fi
  done
fi
exit $failed
