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

void StartSums::Change(int64_t ns, int sign, Counts* counts) {
  const auto it = counts->try_emplace(ns, 0).first;
  it->second += sign;
  if (it->second == 0) counts->erase(it);
}

void StartSums::Change(const PlanStarts& starts, int sign) {
  for (const auto& [kind, group, ns] : starts) {
    if (kinds_.size() <= static_cast<size_t>(kind)) kinds_.resize(kind + 1);
    if (groups_.size() <= static_cast<size_t>(group)) groups_.resize(group + 1, 0);
    const int64_t before = Largest(kinds_[kind]);
    Change(ns, sign, &kinds_[kind]);
    const int64_t more = Largest(kinds_[kind]) - before;
    if (more == 0) continue;
    if (groups_[group] > 0) Change(groups_[group], -1, &of_groups_);
    groups_[group] += more;
    if (groups_[group] > 0) Change(groups_[group], 1, &of_groups_);
  }
}

}  // namespace meshift
