#include "planner/together/collective_starts.h"

#include <algorithm>
#include <cstddef>

#include "base/checked_math.h"
#include "planner/cost/cost.h"

namespace meshift {

CollectiveStart CollectiveKinds::Of(const DeviceMesh& mesh, const DimSet& mesh_dims, StepOp op) {
  const auto [group, is_new] = groups_[mesh].try_emplace(mesh_dims, num_groups_);
  if (is_new) ++num_groups_;
  const auto kind =
      kinds_.try_emplace({group->second, op}, static_cast<int32_t>(kinds_.size())).first;
  return {.kind = kind->second, .group = group->second};
}

PlanStarts StartsOf(const Plan& plan, const Topology& topology, CollectiveKinds* kinds) {
  PlanStarts starts;
  for (int i = 0; i < static_cast<int>(plan.steps().size()); ++i) {
    const Step& step = plan.steps()[i];
    if (!step.group_size || IsCrossing(step)) continue;
    starts.push_back(kinds->Of(step.after.mesh(), step.mesh_dims, step.op));
    starts.back().ns = TimePartsOf(plan, i, topology).starts_ns;
  }
  return starts;
}

void StartSums::Add(const PlanStarts& starts) {
  for (const CollectiveStart& start : starts) {
    const auto kind = static_cast<size_t>(start.kind);
    if (kinds_.size() <= kind) kinds_.resize(kind + 1);
    kinds_[kind].group = start.group;
    ++kinds_[kind].counts[start.ns];
  }
}

void StartSums::Remove(const PlanStarts& starts) {
  for (const CollectiveStart& start : starts) {
    std::map<int64_t, int64_t>& counts = kinds_[static_cast<size_t>(start.kind)].counts;
    if (--counts[start.ns] == 0) counts.erase(start.ns);
  }
}

int64_t StartSums::MostWith(const PlanStarts& starts) const {
  absl::InlinedVector<int64_t, 16> of_kind(kinds_.size(), 0);
  absl::InlinedVector<int64_t, 16> of_group;
  for (size_t kind = 0; kind < kinds_.size(); ++kind) {
    if (!kinds_[kind].counts.empty()) of_kind[kind] = kinds_[kind].counts.rbegin()->first;
  }
  const auto add = [&](int32_t group, int64_t ns) {
    const auto index = static_cast<size_t>(group);
    if (of_group.size() <= index) of_group.resize(index + 1, 0);
    of_group[index] = SaturatingAdd(of_group[index], ns);
  };
  for (const CollectiveStart& start : starts) {
    const auto kind = static_cast<size_t>(start.kind);
    if (of_kind.size() <= kind) of_kind.resize(kind + 1, 0);
    const int64_t more = std::max<int64_t>(start.ns - of_kind[kind], 0);
    of_kind[kind] += more;
    add(start.group, more);
  }
  for (const Kind& kind : kinds_) {
    if (!kind.counts.empty()) add(kind.group, kind.counts.rbegin()->first);
  }
  return of_group.empty() ? 0 : *std::max_element(of_group.begin(), of_group.end());
}

}  // namespace meshift
