#!/bin/bash
# The table of docs/c.md has each function of meshift/c.h but those that destroy a handle, and no other.
#
#   c_page_test.sh include/meshift/c.h docs/c.md
set -euo pipefail
functions=$(grep -oE '\bmeshift_[a-z_0-9]+\(' "$1" | tr -d '(' | grep -v '_destroy$' | sort -u)
table=$(sed -n '/^| theme /,/^$/p' "$2" | sed '1,2d' | grep -oE '`[a-z_0-9]+`' | tr -d '`' | sed 's/^/meshift_/' | sort)
diff <(echo "$functions") <(echo "$table")
wc -l <<< "$functions"
