#include "planner/search/value_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "base/checked_math.h"
#include "meshift/dtype.h"
#include "meshift/sharding.h"
#include "planner/plan/quantity.h"

namespace meshift {

int64_t ValueLimit(int64_t larger, std::optional<int64_t> max_value) {
  return max_value.value_or(std::max(SaturatingAdd(larger, larger / 4), kSmallValue));
}

ValueRule::ValueRule(const Problem& problem, std::optional<int64_t> max_value)
    : problem_(problem), max_value_(max_value) {
  // If the number of ranks divides the extent, all pieces are equal.
  const int64_t ranks = problem.mesh().NumRanks();
  for (const int k : problem.candidate_dims()) {
    may_have_many_pieces_ |= ranks > kMaxUnlikePieces && problem.extent(k) % ranks != 0;
  }
  max_bytes_ = ValueLimit(problem.MaxValueBytes(), max_value);
}

bool ValueRule::MayHold(const State& state, int64_t items) const {
  if (state == problem_.target() || state == problem_.source()) return true;
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
  if (!problem_.IsAligned(state)) return "an intermediate value is cut inside a byte";
  const std::string value =
      fmt::format("the intermediate value {} in {}", problem_.ToSharding(state).PlacementsText(),
                  Name(problem_.dtype(state.stage())));
  const std::string bytes = ExactBytesText(problem_.MaxBytes(state));
  if (problem_.MaxBytes(state) > max_bytes_) {
    const int64_t larger = problem_.MaxValueBytes();
    const int64_t of_ends =
        std::max(problem_.MaxBytes(problem_.source()), problem_.MaxBytes(problem_.target()));
    if (max_value_) {
      return fmt::format("{} takes {}, more than max_value ({})", value, bytes,
                         ExactBytesText(max_bytes_));
    }
    if (max_bytes_ == kSmallValue) {
      return fmt::format(
          "{} takes {}, more than {}, the default of max_value for a small source and target",
          value, bytes, ExactBytesText(max_bytes_));
    }
    return fmt::format(
        "{} takes {}, more than 1.25 times the {} ({})", value, bytes,
        larger > of_ends ? "source in the reduce dtype" : "larger of source and target",
        ExactBytesText(larger));
  }
  const Pieces pieces = TooManyPieces(state);
  return fmt::format("{} ({}) cuts tensor dim {} into {} pieces of unequal size; the limit is {}",
                     value, bytes, pieces.tensor_dim, pieces.count, kMaxUnlikePieces);
}

}  // namespace meshift
