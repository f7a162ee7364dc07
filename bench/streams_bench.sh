#!/bin/bash
# Runs streams_bench ($1) on the local engine, and on 4 processes if mpirun is installed.
set -eu
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
"$1" local
if command -v mpirun > /dev/null; then mpirun -n 4 "$1" mpi; fi
