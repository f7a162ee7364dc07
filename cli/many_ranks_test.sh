#!/bin/bash
# `meshift run` whose ranks together have more bytes than the control channel could pass at once.
# Rank 0 checks all of them; it may take memory for all tensors, once as sources and once as
# targets, and 150 MiB. Runs under mpi_test.sh.
#
#   many_ranks_test.sh MPIRUN MESHIFT RANKS MESH_RANKS ELEMENTS
#   testing/internal/mpi/mpi_test.sh cli/many_ranks_test.sh mpirun bazel-bin/cli/meshift 40 40 2097152      # 8 MiB on each of 40 ranks; 30 s on two cores
set -u
mpirun=$1 meshift=$2 ranks=$3 mesh=$4 elements=$5
run=("$meshift" run --engine mpi --mesh "a=$mesh" --tensor "f32[$elements]" --from P --to R)
with_peak='
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:])
print("peak", resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024, "MiB")
sys.exit(code)'
begin=$(date +%s%3N)
output=$(timeout 150 "$mpirun" -n 1 /usr/bin/python3 -c "$with_peak" "${run[@]}" : -n $((ranks - 1)) "${run[@]}" 2>&1)
code=$?
# With many ranks, Open MPI 4.1's mpirun sometimes does not end after all ranks have: only their
# output counts then.
((code != 124)) || { echo 'mpirun has not ended'; code=0; }
peak=$(sed -n 's/^peak \([0-9]*\) MiB$/\1/p' <<< "$output")
limit=$((2 * mesh * elements * 4 / 1048576 + 150))
echo "$ranks ranks, of which $mesh have $elements elements: $(($(date +%s%3N) - begin)) ms, rank 0 had $peak of $limit MiB"
if ((code != 0 || ${peak:-limit+1} > limit)) || ! grep -qx 'wrong 0' <<< "$output"; then
  echo "exit code $code:"
  echo "$output"
  exit 1
fi
