// Which values may stand between two steps, as far as the number of their pieces goes.
//
//   if (!MayBeOnTheWay(problem, state)) continue;
#ifndef MESHIFT_PLANNER_SEARCH_ON_THE_WAY_H_
#define MESHIFT_PLANNER_SEARCH_ON_THE_WAY_H_

#include <cstdint>
#include <optional>

#include "planner/graph/state.h"

namespace meshift {

// On the way from source to target, a tensor dim is cut into more pieces than this only where they
// are all alike: then there is a closed form for what steps move, on meshes of any size.
inline constexpr int64_t kMaxUnlikePieces = 4096;

inline bool MayBeCutInto(const Problem& problem, int k, int64_t pieces) {
  return pieces <= kMaxUnlikePieces || problem.extent(k) % pieces == 0;
}

// A tensor dim, and the pieces that it is cut into.
struct Pieces {
  int tensor_dim = 0;
  int64_t count = 0;
};

// The first tensor dim of `state` that is cut into too many; never one that is cut as in the source
// or the target, so that what these hold can be reduced, cast and masked wherever it is.
inline std::optional<Pieces> TooManyPieces(const Problem& problem, const State& state) {
  if (problem.mesh().NumRanks() <= kMaxUnlikePieces) return std::nullopt;
  const CutLists cuts = problem.Cuts(state);
  for (int k = 0; k < problem.tensor_rank(); ++k) {
    int64_t pieces = 1;
    for (int i = 0; i < cuts.of[k].size; ++i) pieces *= problem.size(cuts.of[k][i]);
    if (MayBeCutInto(problem, k, pieces)) continue;
    const bool is_given =
        problem.source_cuts().of[k] == cuts.of[k] || problem.target_cuts().of[k] == cuts.of[k];
    if (!is_given) return Pieces{k, pieces};
  }
  return std::nullopt;
}

inline bool MayBeOnTheWay(const Problem& problem, const State& state) {
  return !TooManyPieces(problem, state).has_value();
}

}  // namespace meshift

#endif  // MESHIFT_PLANNER_SEARCH_ON_THE_WAY_H_
