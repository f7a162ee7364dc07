#!/bin/bash
# Runs execute_bench ($1) on 2 and 4 ranks of this machine; other arguments are sizes in bytes and
# names of operations.
set -eu
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
for ranks in 2 4; do
  mpirun -n "$ranks" "$@"
done
