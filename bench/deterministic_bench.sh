#!/bin/bash
# Runs deterministic_bench ($1): bytes, then times on 4 and 8 ranks of this machine.
set -eu
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
"$1" bytes
for ranks in 4 8; do
  mpirun -n "$ranks" "$1" times
done
