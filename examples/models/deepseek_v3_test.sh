#!/bin/bash
# The generated model file is the known one, byte for byte. $1: the file.
set -euo pipefail
echo "746ec6001b23737087aa574dbbfb8468b73ec8e6e436afa148979a31ce3ca9ac  $1" | sha256sum --check --strict
