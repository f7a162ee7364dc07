#!/bin/bash
# The bundle's script on the stand-ins, killed in each stage that they support: ended stages are on
# file, no other stage claims to have ended, no process continues, and another run adds the missing
# stages.
set -u

bundle=$TEST_TMPDIR/bundle
mkdir -p "$bundle"
for program in kernel_check nccl_check nccl_probe run_gpu_checks.sh; do cp -L "tests/gpu/$program" "$bundle/"; done
export TMPDIR=$TEST_TMPDIR MESHIFT_CUDA_LIBRARY=$PWD/testing/fake_gpu/libfake_cuda.so MESHIFT_NCCL_LIBRARY=$PWD/testing/fake_gpu/libfake_nccl.so
small=(--copies 3 --rounds 1 --mib 1 --ranks 2,4 --cases 10 --minutes 8)
failures=0

fail() {
  echo "$1" >&2
  failures=$((failures + 1))
}

# Every process of the bundle, by its id.
of_bundle() {
  local folder
  for folder in /proc/[0-9]*; do
    [[ $(readlink "$folder/exe" 2> /dev/null) == "$bundle"/* ]] && echo "${folder#/proc/}"
  done
}

# await <seconds> <command...>
await() {
  local until=$((SECONDS + $1))
  shift
  while ! "$@"; do
    ((SECONDS < until)) || return 1
    sleep 0.02
  done
}

begun() { grep -q "^begin $1$" "$results" 2> /dev/null; }
said() { grep -q "^$1 | " "$results" 2> /dev/null; }
alone() { [[ -z $(of_bundle) ]]; }

# Whether the lines of a run are right: each stage begins once and ends at most once, after all its
# output; only the last may be unfinished. Prints the ended stages.
check_results() {
  awk -v where="$1" '
    function bad(text) { print where ": " text ": " $0 > "/dev/stderr"; wrong = 1 }
    /^run [0-9]+: / || /^NCCL: / { next }
    /^begin / { if (stage != "") bad("begins before " stage " has ended"); stage = $2; next }
    /^end [a-z0-9_]+: (right, [0-9]+ s|wrong, [0-9]+ s: .*|skipped: .*|cut off by a signal)$/ {
      name = $2; sub(":", "", name)
      if (name != stage) bad("ends, but " stage " runs")
      stage = ""; print name; next
    }
    / \| / { if ($1 != stage) bad("is said while " stage " runs"); next }
    { bad("is no line of results") }
    END { exit wrong }' "$results"
}

for stage in facts kernels_first ranks2_first ranks2 ranks2_4ctas invariant probe kernels ranks4; do
  out=$TEST_TMPDIR/$stage results=$TEST_TMPDIR/$stage/results.txt
  only=$stage
  [[ $stage != facts ]] && only=facts,$stage
  # In a separate session, since a kill may not reach the run's children.
  setsid "$bundle/run_gpu_checks.sh" "${small[@]}" --only "$only" --out "$out" > "$TEST_TMPDIR/$stage.printed" 2>&1 &
  script=$!
  await 60 begun "$stage" || fail "$stage has not begun"
  # In the middle of the stage.
  [[ $stage == facts || $stage == ranks* || $stage == invariant ]] || await 60 said "$stage" || fail "$stage has said nothing"
  kill -KILL $script
  wait $script 2> /dev/null
  await 10 alone || fail "$stage: still running: $(of_bundle | tr '\n' ' ')"
  ended=$(check_results "$stage" | tr '\n' ' ') || failures=$((failures + 1))
  if [[ $stage != facts ]]; then
    [[ $ended == "facts " || $ended == "facts $stage " ]] || fail "$stage: ended are $ended"
    tar -tzf "$out/logs.tar.gz" | grep -q '^logs/1/facts/output$' || fail "$stage: no logs of facts"
  fi
  [[ $ended == *"$stage "* ]] && echo "$stage had ended before it was killed"
done

# The second run makes only the missing stages.
out=$TEST_TMPDIR/ranks2 results=$TEST_TMPDIR/ranks2/results.txt
"$bundle/run_gpu_checks.sh" "${small[@]}" --only ranks2 --out "$out" > "$TEST_TMPDIR/second.printed" 2>&1 || fail "the second run: $(tail -3 "$TEST_TMPDIR/second.printed")"
grep -q '^end ranks2: right, ' "$results" || fail "the second run: $(tail -3 "$results")"
for log in 1/facts/output 2/ranks2/output 2/ranks2/2/rank0.log; do
  tar -tzf "$out/logs.tar.gz" | grep -q "^logs/$log$" || fail "no $log in the archive after the second run"
done

# A signal that the script can handle.
out=$TEST_TMPDIR/term results=$TEST_TMPDIR/term/results.txt
"$bundle/run_gpu_checks.sh" "${small[@]}" --only facts,probe --out "$out" > /dev/null 2>&1 &
script=$!
await 60 said probe || fail "no probe to end"
kill -TERM $script
wait $script
((code = $?))
((code == 1)) || fail "exit code $code after SIGTERM"
grep -q '^end probe: cut off by a signal$' "$results" || fail "SIGTERM: $(tail -2 "$results")"
tar -tzf "$out/logs.tar.gz" | grep -q '^logs/1/probe/output$' || fail "SIGTERM: no logs of the stage"
await 10 alone || fail "after SIGTERM still running: $(of_bundle | tr '\n' ' ')"
exit $((failures > 0))
