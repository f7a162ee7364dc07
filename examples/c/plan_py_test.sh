#!/bin/bash
# plan.py runs on the shared library, which exports the functions of meshift/c.h and nothing else.
#
#   plan_py_test.sh plan.py libmeshift_c.so
set -euo pipefail
python3 "$1" "$2"
others=$(nm -D --defined-only "$2" | awk '{ print $NF }' | grep -v '^meshift_' || true)
if [[ -n $others ]]; then
  echo "it also exports $others"
  exit 1
fi
echo "$(nm -D --defined-only "$2" | grep -c ' T meshift_') functions are exported"
