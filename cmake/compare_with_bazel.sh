#!/bin/bash
# Compares the sources of CMake's libraries with Bazel's: prints "< FILE" if only Bazel has it, ">
# FILE" if only CMake.
#
#   cmake/compare_with_bazel.sh
set -euo pipefail
cd "$(dirname "$0")/.."

# The .cc files of a Bazel target and its dependencies, without third_party.
sources_of() {
  ./bazelw query --noshow_progress --curses=no --color=no "kind('source file', $1) - deps(//third_party/...)" 2> /dev/null |
    sed -nE 's|^//([^:]*):(.*\.cc)$|\1/\2|p' | sort
}

lists=$(cmake -P cmake/sources.cmake 2>&1)
failed=0
# Arguments: the name of a library, CMake's lists of sources, Bazel's targets.
compare() {
  local name=$1 cmake bazel
  cmake=$(awk -v lists=" $2 " 'index(lists, " " $1 " ") {print $2}' <<< "$lists" | sort)
  bazel=$(sources_of "$3")
  if [[ -z $bazel || $cmake != "$bazel" ]]; then
    echo "$name differs:"
    diff <(echo "$bazel") <(echo "$cmake") || true
    failed=1
  else
    echo "$name: $(wc -l <<< "$bazel") sources in both"
  fi
}
# Without a toolkit, or without MPI, both builds leave out the same files.
readonly core="//:meshift_nccl + //:meshift_c_nccl"
all=$(sources_of "deps($core + //:meshift_mpi)")
cuda=CUDA_SOURCES mpi=MPI_SOURCES
grep -qx comm/nccl/nccl_engine.cc <<< "$all" || cuda=CUDA_ABSENT_SOURCES
grep -qx comm/mpi/mpi_engine.cc <<< "$all" || mpi=MPI_ABSENT_SOURCES
compare meshift "SOURCES $cuda" "deps($core)"
compare meshift_mpi "$mpi" "deps(//:meshift_mpi + //:meshift_c_mpi) - deps($core)"
compare meshift_testing TESTING_SOURCES "deps(//:meshift_testing) - deps(//:meshift)"
if [[ $cuda == CUDA_SOURCES ]]; then
  readonly stand_ins="//testing/fake_gpu:libfake_cuda.so + //testing/fake_gpu:libfake_nccl.so"
  compare "the stand-ins" "STAND_IN_SOURCES FAKE_CUDA_SOURCES FAKE_NCCL_SOURCES" "deps($stand_ins) - deps($core)"
fi
compare "the command" COMMAND_SOURCES "deps(//cli:meshift) - deps(//:meshift_mpi + //:meshift_nccl + //:meshift_testing)"
exit "$failed"
