#include "meshift/planner_options.h"

#include <array>
#include <cstddef>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/status.h"

namespace meshift {

std::string_view Name(PlannerKind kind) { return kind == PlannerKind::kBest ? "best" : "per-dim"; }

absl::StatusOr<PlannerKind> ParsePlannerKind(std::string_view name) {
  if (name == "best") return PlannerKind::kBest;
  if (name == "per-dim") return PlannerKind::kPerDim;
  return InvalidArgument("'{}' is no planner; known are best, per-dim", name);
}

std::string_view Name(RaggedSizes sizes) {
  constexpr std::array<std::string_view, 3> kNames = {"cost", "max", "sum"};
  return kNames[static_cast<size_t>(sizes)];
}

absl::StatusOr<RaggedSizes> ParseRaggedSizes(std::string_view name) {
  for (const RaggedSizes sizes : {RaggedSizes::kCost, RaggedSizes::kMax, RaggedSizes::kSum}) {
    if (Name(sizes) == name) return sizes;
  }
  return InvalidArgument("'{}' is no choice of ragged sizes; known are cost, max, sum", name);
}

}  // namespace meshift
