#include "planner/search/value_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "base/checked_math.h"
#include "placement/dtype.h"
#include "placement/sharding.h"
#include "planner/plan/quantity.h"

namespace meshift {

ValueRule::ValueRule(const Problem& problem)
    : problem_(problem),
      max_items_(std::max(problem.MaxItems(problem.source()), problem.MaxItems(problem.target()))),
      max_bytes_(problem.MaxValueBytes()),
      may_have_many_pieces_(problem.mesh().NumRanks() > kMaxUnlikePieces) {}

bool ValueRule::MayHold(const State& state, int64_t items) const {
  if (items > max_items_) return false;
  if (SaturatingMul(items, problem_.item_bytes(state.stage())) > max_bytes_) return false;
  if (may_have_many_pieces_ && TooManyPieces(state).tensor_dim >= 0) return false;
  return problem_.IsAligned(state);
}

ValueRule::Pieces ValueRule::TooManyPieces(const State& state) const {
  const CutLists cuts = problem_.Cuts(state);
  for (int k = 0; k < problem_.tensor_rank(); ++k) {
    int64_t pieces = 1;
    for (int i = 0; i < cuts.of[k].size; ++i) pieces *= problem_.size(cuts.of[k][i]);
    if (pieces <= kMaxUnlikePieces || problem_.extent(k) % pieces == 0) continue;
    const bool is_given =
        problem_.source_cuts().of[k] == cuts.of[k] || problem_.target_cuts().of[k] == cuts.of[k];
    if (!is_given) return {k, pieces};
  }
  return {};
}

std::string ValueRule::WhyNot(const State& state) const {
  const int64_t items = problem_.MaxItems(state);
  if (MayHold(state, items)) return "";
  const std::string value =
      fmt::format("{} on the way, in {},", problem_.ToSharding(state).PlacementsText(),
                  Name(problem_.dtype(state.stage())));
  const std::string bytes = ExactBytesText(problem_.MaxBytes(state));
  if (problem_.MaxBytes(state) > max_bytes_) {
    const int64_t of_ends =
        std::max(problem_.MaxBytes(problem_.source()), problem_.MaxBytes(problem_.target()));
    return fmt::format(
        "{} takes {}, more than the {} ({})", value, bytes,
        max_bytes_ > of_ends ? "source in the dtype of reductions" : "larger of source and target",
        ExactBytesText(max_bytes_));
  }
  if (items > max_items_) {
    // Too many items in bytes that are not: they were cast, and so are single elements.
    return fmt::format("{} has {} elements ({}), more than the larger of source and target ({})",
                       value, items, bytes, max_items_);
  }
  if (const Pieces pieces = TooManyPieces(state); may_have_many_pieces_ && pieces.tensor_dim >= 0) {
    return fmt::format(
        "{} ({}) cuts tensor dim {} into {} pieces, which are not alike and more than {}", value,
        bytes, pieces.tensor_dim, pieces.count, kMaxUnlikePieces);
  }
  return fmt::format("{} ({}) is cut inside a byte", value, bytes);
}

}  // namespace meshift
