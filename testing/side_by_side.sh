#!/bin/bash
# Runs the parts of a test in parallel, for tests that mostly wait. Bazel runs shards in parallel
# too, but at most one per core.
#
#   side_by_side.sh PARTS COMMAND [ARGUMENT]...
#
# Each part runs the command with Bazel's and googletest's variables for the shard number. Prints
# the output of the parts in their order; passes if all parts pass.
set -u
parts=$1
shift
# These files exist once; parts would overwrite each other's.
unset TEST_PREMATURE_EXIT_FILE TEST_SHARD_STATUS_FILE XML_OUTPUT_FILE
outputs=$(mktemp -d)
# Also print the outputs if the test runs out of time.
trap 'tail -n +1 "$outputs"/*; rm -rf "$outputs"' EXIT
trap 'exit 1' TERM INT
pids=()
for ((part = 0; part < parts; ++part)); do
  TEST_TOTAL_SHARDS=$parts TEST_SHARD_INDEX=$part GTEST_TOTAL_SHARDS=$parts GTEST_SHARD_INDEX=$part \
    "$@" > "$outputs/part_$(printf '%03d' "$part")" 2>&1 &
  pids+=($!)
done
failed=0
for ((part = 0; part < parts; ++part)); do
  wait "${pids[part]}"
  status=$?
  if ((status != 0)); then
    echo "part $part fails: $status"
    failed=1
  fi
done
exit "$failed"
