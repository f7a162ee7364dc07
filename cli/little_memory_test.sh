#!/bin/bash
# A command that runs out of memory or of threads ends with one line on stderr and exit code 1,
# wherever that happens.
#
#   little_memory_test.sh MESHIFT
set -u
meshift=$1
failed=0
ended=0
lines_ended=0
# A line of some MB whose values take some hundred MB, and a short line.
lines=$TEST_TMPDIR/lines
{ printf '{"id":1,"x":[{}'; printf ',{}%.0s' {1..2000000}; printf ']}\n{"id":2,"mesh":{"dims":[["a",2]],"ranks":null},"tensor":"f32[8]","from":"S(0)","to":"R"}\n'; } > "$lines"
# Limits on address space in KiB, from just enough for help to too little for the last of these.
for limit in 20000 40000 60000 100000 200000 400000; do
  (ulimit -v "$limit" && "$meshift" --help > /dev/null 2>&1) || continue
  while read -r command; do
    output=$(ulimit -v "$limit"; exec 2> "$TEST_TMPDIR/err"; $meshift $command)
    code=$?
    error=$(< "$TEST_TMPDIR/err")
    if ((code == 0)) && [[ -z $error ]]; then continue; fi
    if ((code == 1)) && [[ $error == 'meshift: '* && $error != *$'\n'* && -z $output ]]; then
      ((++ended))
      continue
    fi
    echo "ulimit -v $limit; meshift $command: exit code $code, stdout '${output:0:200}', stderr '${error:0:200}'"
    failed=1
  done << 'END'
plan --mesh a=2,b=2 --tensor f32[8,6] --from P,R --to R,R
run --mesh a=2,b=2 --tensor f32[8,6] --from P,R --to R,R
run --mesh a=4 --tensor f32[100000,1000] --from S(0) --to R
run --mesh a=40,b=5 --tensor f32[1000,1000] --from P,P --to R,R
run --conformance --cases 20
shards --mesh a=300000 --tensor f32[8] --placements R
END
done
# A line that is too large for memory is answered with an error, and the next one with its plan.
for ((limit = 60000; limit <= 240000; limit += 20000)); do
  mapfile -t answers < <(ulimit -v "$limit"; "$meshift" plan --batch "$lines" 2> "$TEST_TMPDIR/err")
  if ((${#answers[@]} == 0)) && [[ $(< "$TEST_TMPDIR/err") == 'meshift: '* ]]; then continue; fi
  if ((${#answers[@]} != 2)) || [[ ${answers[0]} != '{"id":'*'"error"'* || ${answers[1]} != '{"id":2,"format"'* ]]; then
    echo "ulimit -v $limit; a batch: '${answers[*]:0:400}', stderr '$(head -c 200 "$TEST_TMPDIR/err")'"
    failed=1
  fi
  [[ ${answers[0]} != *'out of memory'* ]] || ((++lines_ended))
done
echo "$ended commands and $lines_ended lines ran out of something"
# Otherwise nothing was tested.
((failed == 0 && ended > 0 && lines_ended > 0))
