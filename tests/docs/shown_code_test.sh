#!/bin/bash
# Every block of C++ that a page shows stands in a file, as it is.
#
#   shown_code_test.sh page.md file.cc
set -euo pipefail
readonly page=$1 file=$2
code=$(< "$file")
blocks=0
block=
inside=0
while IFS= read -r line; do
  if [[ $line == '```cpp' ]]; then
    inside=1
    block=
  elif [[ $line == '```' && $inside == 1 ]]; then
    inside=0
    blocks=$((blocks + 1))
    if [[ $code != *"$block"* ]]; then
      printf 'not in %s:\n%s' "$file" "$block"
      exit 1
    fi
  elif ((inside)); then
    block+=$line$'\n'
  fi
done < "$page"
echo "$blocks blocks of $page are in $file"
((blocks > 0))
