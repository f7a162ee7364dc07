#!/bin/bash
# A round trip with NumPy on the other side: numpy_test.sh MESHIFT SCRIPT.
set -euo pipefail

if ! reason=$(python3 -c 'import numpy' 2>&1); then
  echo "SKIPPED: python3 has no NumPy (Debian's package: python3-numpy): ${reason##*$'\n'}"
  exit 0
fi
exec python3 "$2" "$1"
