#!/bin/bash
# The product's folders contain only the files that the product is built from, and tests (*_test.*).
# Files that only tests use are in testing/internal/.
#
#   product_files_test.sh product_files product_package_files docs/design.md     # labels: the built
#   files, and all files of their packages
set -euo pipefail
readonly folders=(base mesh placement planner comm capi cli)

# Lines "a//b:c" as paths "a/b/c".
paths() { sed -E 's|^//||; s|:|/|' "$1" | sort; }

# Prints the files that should not be in a tree, given the labels of built files and of all files in
# their packages.
strays() {
  local root=$1 built=$2 packaged=$3
  comm -13 <(paths "$built") <(paths "$packaged") | grep -vE '_test\.[a-z]+$|/BUILD$' | sed 's|$|: only tests depend on it|' || true
  (
    cd "$root"
    find "${folders[@]}" -name BUILD | sed 's|/BUILD$||' | sort |
      comm -23 - <(sed -E 's|^//(.*):.*|\1|' "$built" | sort -u) | sed 's|$|: nothing is built of this package|'
    # Headers that belong to a library by a pattern, but that only their own .cc file and tests
    # include.
    find "${folders[@]}" \( -name '*.h' -o -name '*.cc' -o -name '*.cu' \) -not -name '*_test.*' -exec grep -oE '^#include "[^"]+"' {} + |
      awk -F'[:"]' -v OFS=: '
        { own = $1; sub(/\.[a-z]+$/, ".h", own) }
        own != $3 { used[$3] = 1 }
        END { for (header in used) print header }' | sort | comm -13 - <(find "${folders[@]}" -name '*.h' | sort) |
      sed 's|$|: only tests include it|'
  )
}

built=$PWD/$1 packaged=$PWD/$2
found=$(strays "$(dirname "$(dirname "$(readlink -f "$3")")")" "$built" "$packaged")
if [[ -n $found ]]; then
  echo "what only tests use belongs in testing/internal/:"
  echo "$found"
  exit 1
fi
(($(grep -c '\.cc$' "$built") > 200 && $(grep -c '_test\.cc$' "$packaged") > 100))

# The test must find each kind of stray file.
tree=$TEST_TMPDIR/tree
for folder in "${folders[@]}"; do mkdir -p "$tree/$folder"; done
mkdir "$tree/comm/checks"
touch "$tree"/comm/BUILD "$tree"/comm/checks/BUILD "$tree"/comm/{a,b}.h
echo '#include "comm/a.h"' | tee "$tree/comm/b.cc" > "$tree/comm/a_test.cc"
echo '#include "comm/b.h"' | tee -a "$tree/comm/b.cc" > "$tree/comm/b_test.cc"
printf '//comm:%s\n' a.h b.h b.cc > "$TEST_TMPDIR/built"
printf '//comm:%s\n' BUILD a.h b.h b.cc a_test.cc b_test.cc help.cc > "$TEST_TMPDIR/packaged"
diff <(strays "$tree" "$TEST_TMPDIR/built" "$TEST_TMPDIR/packaged") - <<'END'
comm/help.cc: only tests depend on it
comm/checks: nothing is built of this package
comm/b.h: only tests include it
END
