#!/bin/bash
# The cost of a submission on rank 0 of 4, by submission_calls ($1), counted by valgrind:
# instructions, and cache lines and pages of code and data that are accessed. Per call, from 60
# calls against 30, with the caches swept before each.
set -eu
if ! command -v valgrind > /dev/null; then
  echo "submission_lines: valgrind is missing; Debian's package valgrind has it" >&2
  exit 1
fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
# For $3 calls of kind $2, with lines of $4 bytes: instructions and misses of the last cache, by
# code, reads and writes. The first caches are tiny, so that each line is missed once per call.
counts() {
  mpirun -n 1 valgrind --tool=callgrind --callgrind-out-file="${out:-/dev/null}" --cache-sim=yes \
    --I1=$((2 * $4)),1,"$4" --D1=$((2 * $4)),1,"$4" --LL=1048576,16,"$4" \
    --toggle-collect='meshift::run_internal::RedistributorImpl::Redistribute(meshift::Redistribution const&)' \
    "$1" "$2" "$3" : -n 3 "$1" "$2" "$3" 2>&1 | sed -n 's/.*Collected : //p' | cut -d' ' -f 1,7-9
}
# Per call: instructions, lines of code, lines of data.
per_call() {
  local few many
  read -r -a few < <(counts "$1" "$2" 30 "$3")
  read -r -a many < <(counts "$1" "$2" 60 "$3")
  echo $(((many[0] - few[0]) / 30)) $(((many[1] - few[1]) / 30)) \
    $(((many[2] + many[3] - few[2] - few[3]) / 30))
}
printf '%-8s %12s %12s %12s %12s %12s\n' '' instructions 'code lines' 'data lines' 'code pages' 'data pages'
for kind in reduce gather rows pack unpack; do
  read -r -a lines < <(per_call "$1" $kind 64)
  read -r -a pages < <(per_call "$1" $kind 4096)
  printf '%-8s %12d %12d %12d %12d %12d\n' $kind "${lines[@]}" "${pages[@]:1}"
done
