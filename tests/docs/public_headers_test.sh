#!/bin/bash
# Each header of include/meshift compiles alone, with every installed compiler, without RTTI and
# exceptions, and includes only other public headers, Abseil and the standard library. Prints the
# headers that each includes. c.h also compiles as C99 and C++17. torch.h needs libtorch, which
# throws exceptions; cmake/check_torch.sh compiles it if libtorch is installed.
#
#   public_headers_test.sh include/meshift/*.h
set -uo pipefail
include=$(dirname "$(dirname "$1")")
readonly include
failed=0

fail() {
  echo "FAILED: $*"
  failed=1
}

# Exceptions, by name: other headers that a header may include.
may_include() {
  case "$1 $2" in
    "dlpack.h dlpack/dlpack.h" | "mpi_engine.h mpi.h" | "testing.h gtest/"* | "testing.h gmock/"*) return 0 ;;
    "c.h stddef.h" | "c.h stdint.h") return 0 ;;
    "torch.h ATen/ATen.h" | "torch.h c10/"* | "torch.h torch/version.h") return 0 ;;
  esac
  return 1
}

for header in "$@"; do
  name=$(basename "$header")
  while read -r included; do
    case "$included" in
      '"meshift/'*.h'"')
        [[ -f $include/${included:1:-1} ]] || fail "$name includes $included, which is not public"
        ;;
      '"absl/'*) ;;
      '<'*[./]*'>') may_include "$name" "${included:1:-1}" || fail "$name includes $included" ;;
      '<'*'>') ;;
      *) fail "$name includes $included" ;;
    esac
  done < <(sed -nE 's/^ *# *include +(["<][^">]+[">]).*/\1/p' "$header")
  # Names that a user's program could also define.
  ! grep -nE '^#define ' "$header" | grep -vE '#define MESHIFT_' || fail "$name defines a macro of no name of its own"
done

# All of our headers that a header includes, directly or not.
brings() {
  local seen=" " todo="$1" next
  while [[ -n $todo ]]; do
    next=${todo%% *}
    todo=${todo#"$next"}
    todo=${todo# }
    [[ $seen != *" $next "* ]] || continue
    seen+="$next "
    todo+=" $(sed -nE 's/^#include "meshift\/([^"]+)".*/\1/p' "$include/meshift/$next" | tr '\n' ' ')"
    todo=$(tr -s ' ' <<< "${todo# }")
    todo=${todo% }
  done
  tr ' ' '\n' <<< "$seen" | sed '/^$/d' | sort
}
for header in "$@"; do
  name=$(basename "$header")
  mapfile -t ours < <(brings "$name")
  printf '%-20s %2d: %s\n' "$name" ${#ours[@]} "${ours[*]}"
  [[ $name != redistributor.h ]] || ((${#ours[@]} <= 14)) || fail "redistributor.h brings in ${#ours[@]} headers"
done

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cat > "$scratch/macros.cc" << 'END'
#include "meshift/status.h"
absl::StatusOr<int> One() { return 1; }
#define TWICE(a, b) MESHIFT_ASSIGN_OR_RETURN(a, One()); MESHIFT_ASSIGN_OR_RETURN(b, One())
absl::Status Sum() {
  MESHIFT_ASSIGN_OR_RETURN(int a, One()); MESHIFT_ASSIGN_OR_RETURN(int b, One());
  TWICE(int c, int d);
  return a + b + c + d == 4 ? absl::OkStatus() : absl::InternalError("not 4");
}
int main() { return Sum().ok() ? 0 : 1; }
END
compilers=0
for compiler in g++ clang++; do
  command -v "$compiler" > /dev/null || continue
  compilers=$((compilers + 1))
  compile() {
    "$compiler" -std=c++20 -fno-rtti -fno-exceptions -Wall -Wextra -Wpedantic -Werror -I"$include" -fsyntax-only "$@"
  }
  for header in "$@"; do
    [[ $(basename "$header") != torch.h ]] || continue
    printf '#include "meshift/%s"\n#include "meshift/%s"\n' "$(basename "$header")" "$(basename "$header")" > "$scratch/one.cc"
    compile "$scratch/one.cc" || fail "$(basename "$header") with $compiler"
  done
  compile "$scratch/macros.cc" || fail "macros with $compiler"
done
# Each installed C compiler, and C++17.
for compiler in gcc clang g++ clang++; do
  command -v "$compiler" > /dev/null || continue
  case "$compiler" in
    *++) language=c++ standard=c++17 ;;
    *) language=c standard=c99 ;;
  esac
  printf '#include "meshift/c.h"\n#include "meshift/c.h"\n' |
    "$compiler" -x "$language" -std="$standard" -Wall -Wextra -Wpedantic -Werror -I"$include" -fsyntax-only - ||
    fail "c.h as $standard with $compiler"
done
((compilers > 0)) || fail "there is no compiler"
(($# <= 34)) || fail "$# public headers"
# Only torch.h may include libtorch.
for header in "$@"; do
  [[ $(basename "$header") == torch.h ]] || ! brings "$(basename "$header")" | grep -qx torch.h || fail "$(basename "$header") brings in torch.h"
done
echo "$# headers, $compilers compilers; torch.h is left to cmake/check_torch.sh"
exit $failed
