#!/bin/bash
# The kernels' PTX has a version that a driver of CUDA 12.4 compiles: 8.4 at most.
#
#   ptx_version_test.sh kernels_image.ptx
set -u
version=$(sed -n 's/^\.version \([0-9]*\.[0-9]*\)$/\1/p' "$1")
echo "PTX $version"
[[ -n $version && $(printf '%s\n8.4\n' "$version" | sort -V | tail -n 1) == 8.4 ]]
