#!/bin/bash
# One rank of four has an error. All ranks print it with the rank's number and end with its exit
# code, at most 2 s later than a run without errors. No rule of the stand-in libraries is broken.
# Runs under mpi_test.sh if mpirun starts the ranks.
#
#   who_knows_test.sh ENGINE MESHIFT LAUNCHER [ARGUMENT...]      # "mpirun -n 4", "torchrun.sh 4"
set -u
engine=$1 meshift=$2
shift 2
launcher=("$@")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0
# The command of each rank: BAD on rank BAD_RANK, GOOD on the others; both are shell code.
cat > "$scratch/rank.sh" << 'END'
rank=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-$RANK}}
[[ $rank == "$BAD_RANK" ]] && eval "$BAD"
eval "$GOOD"
END
export GOOD BAD BAD_RANK MESHIFT=$meshift
# Sets output, code, and the time of the last output, since mpirun takes up to two seconds more to
# end.
run() {
  local begin=${EPOCHREALTIME/./}
  output=$(
    set -o pipefail
    timeout 100 "${launcher[@]}" bash "$scratch/rank.sh" 2>&1 | while IFS= read -r line; do
      [[ $line != meshift:* && $line != wrong* ]] || echo "$(((${EPOCHREALTIME/./} - begin) / 1000))" > "$scratch/ms"
      echo "$line"
    done
  )
  code=$?
  ms=$(< "$scratch/ms")
}
# expect WHAT EXIT_CODE MESSAGE BAD: all ranks print the message where one does BAD, the first rank
# or a later one (or those of bad_ranks). A run that is right but late is tried twice more, since
# the machine itself can stand still for seconds.
expect() {
  local what=$1 exit_code=$2 message
  BAD=$4
  for BAD_RANK in ${bad_ranks:-2 0}; do
    message=${3//@/$BAD_RANK}
    for _ in 1 2 3; do
      run
      echo "$what, rank $BAD_RANK: $ms ms"
      ((ms > good_ms + 2000)) || break
    done
    if ((code != exit_code || ms > good_ms + 2000)) || [[ $(grep -cF -- "meshift: $message" <<< "$output") != 4 ]] || grep -qE 'broken rule|FAKE' <<< "$output"; then
      echo "exit code $code after $ms ms, not $exit_code within $good_ms ms and 2 s, or not on 4 ranks: $message"
      echo "$output"
      failed=1
    fi
  done
}
problem="--engine $engine --mesh d=4 --tensor 'f32[64]' --from P --to R"
for mesh in 4 2; do
  "$meshift" plan --mesh d=$mesh --tensor 'f32[64]' --from P --to R --format json > "$scratch/$mesh.json"
done
sed 's/"bytes_sent": *[0-9]*/"bytes_sent": 1/' "$scratch/4.json" > "$scratch/wrong.json"
echo '{"format"' > "$scratch/cut.json"

GOOD="exec \$MESHIFT run $problem"
BAD_RANK=-1
good_ms=0
for _ in 1 2; do
  run
  ((code == 0)) || { echo "nothing is wrong, and it fails with $code:"; echo "$output"; exit 1; }
  good_ms=$((ms > good_ms ? ms : good_ms))
done
echo "nothing wrong: $good_ms ms"

expect 'a bad option' 2 'rank @: --repeat: '"'x'"' is not a number' "$GOOD --repeat x"
expect 'no such option' 2 'rank @: The following argument was not expected: --bogus' "$GOOD --bogus"
expect 'no such verb' 2 'rank @: unknown command '\''rum'\''' "${GOOD/run/rum}"
expect 'options that exclude each other' 2 'rank @: --seed and --load exclude each other' "$GOOD --seed 1 --load /tmp"
expect 'a placement that is none' 2 'rank @: --to: placements "X"' "${GOOD/--to R/--to X}"
expect 'another mesh' 2 'rank 0 was asked to run --mesh d=' "${GOOD/d=4/d=2}"
expect 'another number of runs' 2 'rank 0 was asked to run' "$GOOD --repeat 2"
expect 'another verb' 2 'rank 0 was asked to ' "exec \$MESHIFT calibrate --engine $engine"
expect 'no topology' 3 'rank @: /nowhere.json: cannot be read: No such file' "$GOOD --topology /nowhere.json"
bad_ranks=0 expect 'a full disk' 1 'rank 0: the output cannot be written' "$GOOD > /dev/full"

GOOD="exec \$MESHIFT run --engine $engine --plan $scratch/4.json"
expect 'no file' 3 'rank @: /nowhere: cannot be read: No such file' "${GOOD/$scratch\/4.json//nowhere}"
expect 'another plan' 2 'rank 0 has plan ' "${GOOD/4.json/2.json}"
expect 'a plan that is refused' 1 'rank @: wrong: step 0: bytes: bytes_sent is 1' "${GOOD/4.json/wrong.json}"
expect 'a plan that is none' 3 "rank @: $scratch/cut.json: " "${GOOD/4.json/cut.json}"

GOOD="exec \$MESHIFT run $problem --save $scratch/saved"
BAD_RANK=-1
run
GOOD="exec \$MESHIFT run $problem --load $scratch/saved"
expect 'no folder' 3 'rank @: /nowhere/source.rank0000@.npy: cannot be read: No such file' "exec \$MESHIFT run $problem --load /nowhere"
# Once the engine has started, a rank needs 640 MB of address space for this.
GOOD="exec \$MESHIFT run --engine $engine --mesh d=4 --tensor 'f32[40000000]' --from 'S(0)' --to 'R'"
BAD_RANK=-1
run
good_ms=$ms
if [[ $engine == nccl ]]; then
  expect 'too little memory of the device' 1 'rank @' "export MESHIFT_FAKE_MEMORY_MIB=8; $GOOD"
fi
expect 'too little memory' 1 'rank @' "ulimit -v 700000; $GOOD"
exit $failed
