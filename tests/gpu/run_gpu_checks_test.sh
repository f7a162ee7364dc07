#!/bin/bash
# The bundle's script with the bundle's programs: without a GPU, and on the stand-ins for the driver
# and NCCL.
set -u

bundle=$TEST_TMPDIR/bundle
mkdir -p "$bundle"
for program in kernel_check nccl_check nccl_probe run_gpu_checks.sh; do cp -L "tests/gpu/$program" "$bundle/"; done
export TMPDIR=$TEST_TMPDIR
failures=0

# expect <exit code> <text of the output> <arguments>
expect() {
  local code=$1 text=$2
  shift 2
  rm -rf "$TEST_TMPDIR/out"
  output=$(OUT=$TEST_TMPDIR/out "$bundle/run_gpu_checks.sh" "$@" 2>&1)
  local got=$?
  if ((got != code)) || [[ $output != *"$text"* ]]; then
    printf 'arguments %s: exit code %s, not %s, or no "%s" in:\n%s\n' "$*" "$got" "$code" "$text" "$output"
    failures=$((failures + 1))
  fi
}

# also <text>: expects it in the previous run's output.
also() {
  if [[ $output != *"$1"* ]]; then
    printf 'no "%s" in:\n%s\n' "$1" "$output"
    failures=$((failures + 1))
  fi
}

# A stage that does not end, with everything else.
mkdir "$TEST_TMPDIR/endless"
cp "$bundle/run_gpu_checks.sh" "$TEST_TMPDIR/endless/"
cat > "$TEST_TMPDIR/endless/nccl_check" << 'END'
#!/bin/bash
echo begun
sleep 1000
END
chmod +x "$TEST_TMPDIR/endless/nccl_check"
MESHIFT_NCCL_LIBRARY=/any "$TEST_TMPDIR/endless/run_gpu_checks.sh" --only ranks2_first --out "$TEST_TMPDIR/endless/out" > "$TEST_TMPDIR/endless/printed" 2>&1 &
endless=$!

MESHIFT_CUDA_LIBRARY=/nowhere/libcuda.so.1 expect 3 "no GPU to check: cannot load the CUDA driver library /nowhere/libcuda.so.1" --only kernels_first,ranks2
also "end ranks2: skipped: there is no GPU"
also "nothing was checked: there is no GPU"
expect 2 "unknown option --fast" --fast
expect 2 "--ranks wants a value" --ranks
expect 2 "--ranks wants numbers from 2 to 16, with commas between them, not '2,x'" --ranks 2,x
expect 2 "--only wants stages (facts kernels_first" --only kernels,fast
expect 2 "--minutes wants a number from 1 to 999, not '1000'" --minutes 1000
expect 2 "cannot make the folder /dev/null/results" --out /dev/null/results
for value in 0 -1 x 1.5 ''; do
  for option in --cases --copies --rounds --mib; do expect 2 "$option wants a number from 1 on, not '$value'" $option "$value"; done
  expect 2 "--minutes wants a number from 1 to 999, not '$value'" --minutes "$value"
done
# Through a link, and from a folder with a space in its name.
ln -s "$bundle/run_gpu_checks.sh" "$TEST_TMPDIR/link.sh"
mv "$bundle" "$TEST_TMPDIR/a bundle"
ln -s "$TEST_TMPDIR/a bundle" "$bundle"
output=$(cd "$TEST_TMPDIR" && CDPATH=.:/tmp MESHIFT_CUDA_LIBRARY=/nowhere/libcuda.so.1 bash link.sh --only kernels_first --out "an out" 2>&1)
also "no GPU to check"
[[ -f "$TEST_TMPDIR/an out/results.txt" && -f "$TEST_TMPDIR/an out/logs.tar.gz" ]] || also "results in a folder with a space"

export MESHIFT_CUDA_LIBRARY=$PWD/testing/fake_gpu/libfake_cuda.so
small=(--copies 3 --rounds 1 --mib 1 --ranks 2,4 --cases 4)
begin=$SECONDS
MESHIFT_NCCL_LIBRARY=$PWD/testing/fake_gpu/libfake_nccl.so expect 0 "all is right" "${small[@]}" --minutes 8
((SECONDS - begin < 480)) || also "an end within 8 minutes"
results=$(< "$TEST_TMPDIR/out/results.txt")
for stage in facts kernels_first ranks2_first ranks2 ranks2_4ctas invariant probe kernels ranks4; do
  [[ $results == *"end $stage: right, "* ]] || also "end $stage: right"
done
for stage in memcheck racecheck mps; do also "end $stage: skipped: the driver is $MESHIFT_CUDA_LIBRARY"; done
for step in host capture abort killed windows bits bits_16_ctas; do also "probe | $step: right, "; done
for step in host_torch lent_blocking lent_nonblocking lent_split; do also "probe | $step: skipped: PyTorch does not run on $MESHIFT_CUDA_LIBRARY"; done
also "batch-invariant by NCCL's all-reduce"
# The file has the whole output, and the logs are in one archive.
[[ $output == "$results" ]] || also "$results"
[[ $(tar -tzf "$TEST_TMPDIR/out/logs.tar.gz" | grep -c '/rank[0-9].log$') -ge 15 ]] || also "logs of ranks in the archive"
[[ ! -e $TEST_TMPDIR/out/logs ]] || also "one archive, and no folder"

# The first library that is new enough is used; also that of an inactive Python installation.
site=lib/python3.12/site-packages/nvidia/nccl/lib
export MESHIFT_OPT=$TEST_TMPDIR/opt
mkdir "$TEST_TMPDIR/bin"
printf '#!/bin/sh\n' > "$TEST_TMPDIR/bin/ldconfig" # hides this machine's libraries
cp "$TEST_TMPDIR/bin/ldconfig" "$TEST_TMPDIR/bin/python3"
chmod +x "$TEST_TMPDIR"/bin/*
mkdir -p "$TEST_TMPDIR/old" "$MESHIFT_OPT/serving/.venv/$site" "$MESHIFT_OPT/conda/envs/$site"
cp -L testing/internal/nccl/libold_nccl.so "$TEST_TMPDIR/old/libnccl.so.2"
cp -L testing/fake_gpu/libfake_nccl.so "$MESHIFT_OPT/serving/.venv/$site/libnccl.so.2"
PATH=$TEST_TMPDIR/bin:$PATH LD_LIBRARY_PATH=$TEST_TMPDIR/old CUDA_HOME=/nowhere expect 0 "NCCL: $MESHIFT_OPT/serving/.venv/$site/libnccl.so.2" "${small[@]}" --only ranks2_first
mv "$MESHIFT_OPT/serving/.venv/$site/libnccl.so.2" "$MESHIFT_OPT/conda/envs/$site/"
PATH=$TEST_TMPDIR/bin:$PATH LD_LIBRARY_PATH=$TEST_TMPDIR/old CUDA_HOME=/nowhere expect 0 "NCCL: $MESHIFT_OPT/conda/envs/$site/libnccl.so.2" "${small[@]}" --only ranks2_first

MESHIFT_NCCL_LIBRARY=/nowhere/libnccl.so.2 expect 3 "not all could be checked; right: kernels_first; wrong: none; skipped: ranks2" "${small[@]}" --only kernels_first,ranks2
also "cannot check: cannot load the NCCL library /nowhere/libnccl.so.2"

# The check stops at the first number of ranks that fails.
export MESHIFT_NCCL_LIBRARY=$PWD/testing/fake_gpu/libfake_nccl.so
output=$(MESHIFT_FAKE_DELAY_US=50000 "$bundle/nccl_check" --ranks 2,4 --cases 100 --seconds 1 --slack 2)
also "     2  failed: rank 0: signal 9 (killed after the time limit)"
[[ $output != *"     4  "* ]] || also "no word of 4 ranks"

# A stage that fails.
mv "$bundle/nccl_check" "$bundle/good"
cat > "$bundle/nccl_check" << 'END'
#!/bin/bash
printf 'it\x1b[31m broke\n'
exit 1
END
chmod +x "$bundle/nccl_check"
expect 1 "end ranks2_first: wrong, " "${small[@]}" --only facts,ranks2_first,ranks2,ranks4
also "ranks2_first | it[31m broke"
also "end ranks4: skipped: ranks2_first was wrong"
also "something is wrong; right: facts; wrong: ranks2_first; skipped: ranks2 ranks4"
mv "$bundle/good" "$bundle/nccl_check"

# A stage that does not fit into the time is not begun.
expect 0 "end ranks2: skipped: it needs 60 s, and 5" "${small[@]}" --minutes 1 --only facts,ranks2
# A second run adds to the results and logs of the first.
first=$(< "$TEST_TMPDIR/out/results.txt")
"$bundle/run_gpu_checks.sh" --out "$TEST_TMPDIR/out" --only facts > /dev/null
[[ $(< "$TEST_TMPDIR/out/results.txt") == "$first"$'\n'"run 2: "* ]] || also "a second run behind the first"
for run in 1 2; do
  tar -tzf "$TEST_TMPDIR/out/logs.tar.gz" | grep -q "^logs/$run/facts/output" || also "logs of run $run"
done

wait $endless
(($? == 1)) || also "exit code 1 of a stage that does not end"
output=$(< "$TEST_TMPDIR/endless/printed")
also "ranks2_first | begun"
also "s: not ended within 40 s"
exit $((failures > 0))
