#!/bin/bash
# Fails, and prints the file, if it is not empty.
if [[ -s "$1" ]]; then
  echo "These should not be there:"
  cat "$1"
  exit 1
fi
