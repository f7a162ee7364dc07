#!/bin/bash
# plan.py runs on the shared library, and all shared libraries export the functions of meshift/c.h and nothing else.
#
#   plan_py_test.sh plan.py libmeshift_c.so ANOTHER.so...
set -euo pipefail
python3 "$1" "$2"
shift
for library in "$@"; do
  others=$(nm -D --defined-only "$library" | awk '{ print $NF }' | grep -v '^meshift_' || true)
  if [[ -n $others ]]; then
    echo "$library also exports $others"
    exit 1
  fi
  echo "$(basename "$library") exports $(nm -D --defined-only "$library" | grep -c ' T meshift_') functions"
done
