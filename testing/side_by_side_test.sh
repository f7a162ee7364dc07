#!/bin/bash
# side_by_side.sh ($1) gives each part its number, prints the parts' output in order, and passes
# only if all parts pass.
set -u
fail() {
  echo "$1"
  exit 1
}
# shellcheck disable=SC2016 # the parts expand it
output=$("$1" 3 bash -c 'sleep 0.$((3 - TEST_SHARD_INDEX)); echo "$TEST_SHARD_INDEX $GTEST_SHARD_INDEX of $TEST_TOTAL_SHARDS $GTEST_TOTAL_SHARDS"') ||
  fail "fails though all parts pass"
[[ $(grep ' of ' <<< "$output") == $'0 0 of 3 3\n1 1 of 3 3\n2 2 of 3 3' ]] || fail "$output"
# shellcheck disable=SC2016 # the parts expand it
output=$("$1" 3 bash -c 'echo "I am $TEST_SHARD_INDEX"; exit $((TEST_SHARD_INDEX == 1 ? 5 : 0))') && fail "passes though a part fails"
[[ $output == *"part 1 fails: 5"* && $output == *"I am 0"* && $output == *"I am 2"* ]] || fail "$output"
"$1" 2 /nowhere/no_such_command > /dev/null && fail "passes though there is no such command"
exit 0
