#!/bin/bash
# The library never prints, never ends the process and installs no signal handler: its code has none of the calls. Comments are not code.
#
#   quiet_library_test.sh docs/design.md     # of the tree to look at
set -euo pipefail
readonly folders=(base mesh placement planner comm capi include)
readonly calls='std::(cerr|cout|clog|abort|terminate|exit|_Exit|quick_exit|signal|set_terminate)\b|\b(printf|fprintf|vprintf|puts|fputs|perror|sigaction|sigprocmask|_exit|abort|exit|_Exit)\(|fmt::print\('
# MpiSession::Leave ends a process whose MPI does not come back, where the program asks for that.
readonly allowed='^comm/mpi/mpi_session(_absent)?\.cc:[0-9]+:void MpiSession::Leave'

# Prints what should not be in a tree.
found_in() {
  (
    cd "$1"
    grep -rnE "$calls" "${folders[@]}" --include='*.cc' --include='*.h' --include='*.cu' --include='*.cuh' |
      grep -vE '_test\.(cc|cu):|^[^:]+:[0-9]+: *(//|\*)' | grep -vE "$allowed" || true
  )
}

found=$(found_in "$(dirname "$(dirname "$(readlink -f "$1")")")")
if [[ -n $found ]]; then
  echo "the library prints, ends the process or takes signals:"
  echo "$found"
  exit 1
fi

# Each kind must be found.
tree=$TEST_TMPDIR/tree
for folder in "${folders[@]}"; do mkdir -p "$tree/$folder"; done
planted=('std::cerr << error;' 'fprintf(stderr, "x");' 'fmt::print("x");' 'std::abort();' '  exit(1);' 'sigaction(SIGUSR1, &action, nullptr);')
for i in "${!planted[@]}"; do echo "${planted[i]}" > "$tree/comm/planted$i.cc"; done
echo '// std::cerr << error;' > "$tree/base/comment.h"
(($(found_in "$tree" | wc -l) == ${#planted[@]}))
