#!/bin/bash
# Every C++ block of a page appears unchanged in one of these files.
#
#   shown_code_test.sh page.md file.cc...
set -euo pipefail
readonly page=$1
shift
code=$(cat "$@")
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
      printf 'not in %s:\n%s' "$*" "$block"
      exit 1
    fi
  elif ((inside)); then
    block+=$line$'\n'
  fi
done < "$page"
echo "$blocks blocks of $page are in $*"
((blocks > 0))
