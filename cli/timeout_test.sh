#!/bin/bash
# Ranks that wait for a rank that is missing or stopped report it after the time-out of the command,
# and name the time-out. Runs under mpi_test.sh.
#
#   timeout_test.sh MPIRUN MESHIFT
set -u
mpirun=$1 meshift=$2
problem="--mesh d=3 --tensor f32[12] --from P --to R"
# expect WHAT COUNT MESSAGE COMMAND...: COUNT ranks print the message, after 2 s and before 5.
expect() {
  local what=$1 count=$2 message=$3 begin ms output
  shift 3
  begin=$(date +%s%3N)
  output=$(timeout 30 "$@" 2>&1)
  ms=$(($(date +%s%3N) - begin))
  echo "$what: $ms ms"
  if ((ms < 2000 || ms > 9000)) || [[ $(grep -cE -- "^meshift: $message; --timeout is 2 s$" <<< "$output") != "$count" ]]; then
    echo "after $ms ms, not 2 s and a little more, or not by $count ranks: $message"
    echo "$output"
    exit 1
  fi
}
port=$((15000 + RANDOM % 15000))
for given in "--timeout 2" ""; do
  # shellcheck disable=SC2086
  expect "rank 1 of 2 does not come, as torchrun starts them ($given)" 1 'rank 0: exchange 0: ranks [{]1[}] have sent nothing within 2000 ms' \
    env MESHIFT_TIMEOUT_S=2 RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$meshift" run --engine nccl $problem $given
done
# Somebody else answers where the hub should be.
python3 -c '
import socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    server.accept()[0].sendall(b"SSH-2.0-OpenSSH_9.2\r\n")' $((port + 1)) &
stranger=$!
trap 'kill $stranger' EXIT
sleep 1
expect "an SSH server is at the hub's port" 1 'no hub accepted this rank: port [0-9]+ of 127.0.0.1: the process that answers rank 1 is not a hub of this version: .*' \
  env RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((port + 1)) "$meshift" run --engine nccl $problem --timeout 2
# shellcheck disable=SC2016
expect "a rank does not come, of mpirun's" 2 'not all ranks of the job have joined' \
  "$mpirun" -n 2 "$meshift" run --engine mpi $problem --timeout 2 : -n 1 bash -c 'sleep 4'
