#!/bin/bash
# Runs its arguments, which begin with mpirun, as a test: also as root, and with more ranks than
# cores.
set -u
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
# Bazel gives a test one file in which it reports its end; several processes would overwrite it.
unset TEST_PREMATURE_EXIT_FILE
export HOME=${TEST_TMPDIR:-/tmp}
# Separate folders for Open MPI's files and shared memory: it names them by process ids, which are
# equal in parallel sandboxes. Short names, for its sockets.
TMPDIR=$(mktemp -d /tmp/mpi.XXXXXX)
shared=$(mktemp -d /dev/shm/mpi.XXXXXX || echo "$TMPDIR")
export TMPDIR OMPI_MCA_btl_vader_backing_directory=$shared OMPI_MCA_osc_sm_backing_directory=$shared
trap 'rm -rf "$TMPDIR" "$shared"' EXIT
if [[ ${!#} != leave ]]; then
  "$@"
  exit
fi
# Ranks leave without MPI_Finalize, so "mpirun -n N ..." does not report failures; each rank prints
# that it has passed. Shows the output at once, so that it is visible after a time-out, too.
output=$("$@" 2>&1 | tee >(cat >&2))
[[ $(grep -c '^rank [0-9]* has passed$' <<< "$output") == "$3" ]]
