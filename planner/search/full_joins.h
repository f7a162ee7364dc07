// Steps between states in which every mesh dim cuts. Internal to the search.
//
//   FullJoins joins(problem, model, bounds, space);
//   const FullJoins::Joins last = joins.To(goal);
//   joins.LeastNs(from, goal, last);      // no such steps, two or more, take less before any byte
//
// In such a step some mesh dims make way for each other; along a tensor dim, pieces are doubled as
// often as their sizes say of those that leave it, less those that come. The step makes of f pieces
// one, at every rank: by f - 1 messages, in a group of all these mesh dims, and the rank at the
// first coordinates copies what it keeps. Where f is 1, that is a permute, of two mesh dims at
// least.
//
// REQUIRES: all pieces are alike, and mesh dims are powers of two. What it is made of must outlive
// it. Not safe for concurrent use.
#ifndef MESHIFT_PLANNER_SEARCH_FULL_JOINS_H_
#define MESHIFT_PLANNER_SEARCH_FULL_JOINS_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "planner/cost/cost.h"
#include "planner/graph/state.h"
#include "planner/search/search_space.h"
#include "planner/search/step_bounds.h"

namespace meshift {

class FullJoins {
 public:
  // What a step takes before any byte that makes one of 2^doublings pieces, by messages; of those
  // that do, the fastest.
  struct Join {
    int doublings = 0;
    int64_t ns = 0;
  };
  using Joins = std::vector<Join>;  // ascending doublings

  FullJoins(const Problem& problem, const CostModel& model, const StepBounds& bounds,
            SearchSpace& space);

  // To these lists, of which some innermost cuts are new: what they make of each tensor dim's
  // pieces is known then.
  Joins To(const Lists& lists);
  // Two steps or more: the last, one of `last`, and what others double besides.
  int64_t LeastNs(const Lists& from, const Lists& to, const Joins& last);

 private:
  class List;
  static constexpr int kMaxDoublings = 32;  // there are no more ranks

  void JoinUpTo(int doublings);

  const CostModel& model_;
  const StepBounds& bounds_;
  SearchSpace& space_;
  // By mesh dims: a bit for each number of doublings that a cut by some of them makes.
  absl::InlinedVector<uint64_t, 16> cuts_of_;
  Joins any_;  // between any states
  // As far as it was asked for: the least time of steps that double pieces so often, or more often.
  std::array<int64_t, kMaxDoublings + 1> joined_ns_;
  int num_joined_ = 0;
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_SEARCH_FULL_JOINS_H_
