#!/bin/bash
# Files written by NumPy are loaded, and saved files read by NumPy: numpy_test.sh MESHIFT SCRIPT.
set -euo pipefail

# Debian's Python, since ./bazelw installs NumPy for it; PATH may have another first.
exec /usr/bin/python3 "$2" "$1"
