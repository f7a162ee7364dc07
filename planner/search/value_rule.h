// Decides whether a plan may hold an intermediate value between two steps: the value rule.
//
//   const ValueRule rule(problem, /*max_value=*/std::nullopt);
//   if (!rule.MayHold(state)) return rule.WhyNot(state);
//
// A value much larger than source and target would take memory that the caller does not expect. A
// value in thousands of pieces of unequal size would have to be priced rank by rank. The rule
// limits one value; planner/plan/memory_limit.h limits all of a run. Sizes are in bytes on one
// rank.
#ifndef MESHIFT_PLANNER_SEARCH_VALUE_RULE_H_
#define MESHIFT_PLANNER_SEARCH_VALUE_RULE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "planner/graph/state.h"

namespace meshift {

// The most pieces of a tensor dim if their sizes are unequal. With equal sizes the bytes that steps
// move have a closed form on meshes of any size.
inline constexpr int64_t kMaxUnlikePieces = 4096;
// Values of up to this many bytes are always within the default limit.
inline constexpr int64_t kSmallValue = int64_t{4} << 20;

// The limit of one value, in bytes: `max_value`, or by default the larger of kSmallValue and 1.25
// times `larger`, the bytes of the larger of source and target. The quarter leaves room for uneven
// cuts.
int64_t ValueLimit(int64_t larger, std::optional<int64_t> max_value);

class ValueRule {
 public:
  // Keeps a reference to `problem`. The limit is ValueLimit(problem.MaxValueBytes(), max_value): if
  // the value is reduced in another dtype, the source counts in that dtype.
  ValueRule(const Problem& problem, std::optional<int64_t> max_value);

  // Whether the value is within the limit, has no cut inside a byte, and has at most
  // kMaxUnlikePieces unequal pieces along each tensor dim, unless source or target cut it in the
  // same way. Always true for source and target. `items`: of the largest box.
  bool MayHold(const State& state, int64_t items) const;
  bool MayHold(const State& state) const { return MayHold(state, problem_.MaxItems(state)); }
  // Empty if MayHold(); otherwise the broken rule, as in "the intermediate value R,R in f32 takes
  // 64 MiB, more than 1.25 times the larger of source and target (32 MiB)".
  std::string WhyNot(const State& state) const;

 private:
  struct Pieces {
    int tensor_dim = -1;  // -1: no tensor dim has too many
    int64_t count = 0;
  };
  Pieces TooManyPieces(const State& state) const;

  const Problem& problem_;
  const std::optional<int64_t> max_value_;
  int64_t max_bytes_ = 0;
  bool may_have_many_pieces_ = false;
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_SEARCH_VALUE_RULE_H_
