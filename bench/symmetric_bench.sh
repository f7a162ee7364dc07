#!/bin/bash
# Instructions of one call, by symmetric_calls ($1): 2,000 calls against 1,000, counted by valgrind.
# A second program that makes the calls of `off`, for example one without the feature, is measured
# too if given.
set -eu
if ! command -v valgrind > /dev/null; then
  echo "symmetric_bench: valgrind is missing; Debian's package valgrind has it" >&2
  exit 1
fi
instructions() {
  valgrind --tool=callgrind --callgrind-out-file=/dev/null "$@" 2>&1 | sed -n 's/.*Collected : \([0-9]*\).*/\1/p'
}
per_call() {
  local few many
  few=$(instructions "$1" "$2" 1000)
  many=$(instructions "$1" "$2" 2000)
  echo $(((many - few) / 1000))
}
for mode in off hit miss; do
  printf '%-22s %6d instructions per call\n' "$mode" "$(per_call "$1" $mode)"
done
if [ $# -gt 1 ]; then printf '%-22s %6d instructions per call\n' 'off, the other program' "$(per_call "$2" off)"; fi
