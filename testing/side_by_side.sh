#!/bin/bash
# Runs the parts of a test side by side: for tests that mostly wait. Bazel runs its shards so too, but no more than there are cores.
#
#   side_by_side.sh PARTS COMMAND [ARGUMENT]...
#
# Each part is the command with the variables by which a shard knows its number, also googletest's. Says what the parts say, in their order;
# passes where all parts do.
set -u
parts=$1
shift
# There is one of each, which parts would take from each other.
unset TEST_PREMATURE_EXIT_FILE TEST_SHARD_STATUS_FILE XML_OUTPUT_FILE
outputs=$(mktemp -d)
# Also where the test is stopped for time.
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
