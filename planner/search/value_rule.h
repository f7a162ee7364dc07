// Which values may stand between two steps.
//
//   const ValueRule rule(problem, /*max_value=*/std::nullopt);
//   if (!rule.MayHold(state)) return rule.WhyNot(state);
//
// A value that is much larger than source and target would take memory that nobody expects; one in
// thousands of pieces that are not alike would be priced rank by rank.
#ifndef MESHIFT_PLANNER_SEARCH_VALUE_RULE_H_
#define MESHIFT_PLANNER_SEARCH_VALUE_RULE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "planner/graph/state.h"

namespace meshift {

// A tensor dim is cut into more pieces than this only where they are all alike: then there is a
// closed form for what steps move, on meshes of any size.
inline constexpr int64_t kMaxUnlikePieces = 4096;
// So many bytes are no matter on any device.
inline constexpr int64_t kSmallValue = int64_t{4} << 20;

class ValueRule {
 public:
  // Keeps a reference to `problem`. `max_value`: bytes; none: a quarter more than the larger of
  // source and target (or, where the value is reduced in another dtype, of the source in that), so
  // that pieces of uneven cuts are not in the way, and kSmallValue in any case.
  ValueRule(const Problem& problem, std::optional<int64_t> max_value);

  // No larger than that, without a cut inside a byte, and not in more than kMaxUnlikePieces along a
  // tensor dim, unless source or target cut it so. Source and target themselves may be held.
  // `items`: of the largest box.
  bool MayHold(const State& state, int64_t items) const;
  bool MayHold(const State& state) const { return MayHold(state, problem_.MaxItems(state)); }
  // "R,R on the way, in f32, takes 64 MiB, more than a quarter beyond the larger of source and
  // target (32 MiB)", "...more than max_value (1 MiB)"; empty where it may be held.
  std::string WhyNot(const State& state) const;

 private:
  struct Pieces {
    int tensor_dim = -1;  // -1: none is cut into too many
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
