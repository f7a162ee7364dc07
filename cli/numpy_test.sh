#!/bin/bash
# A round trip with NumPy on the other side: numpy_test.sh MESHIFT SCRIPT.
set -euo pipefail

# Debian's, whose NumPy ./bazelw installs: another Python may come first on PATH.
exec /usr/bin/python3 "$2" "$1"
