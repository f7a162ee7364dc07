#include "planner/together/plan_loads.h"

#include <iterator>
#include <utility>

#include "absl/status/status.h"
#include "base/checked_math.h"
#include "meshift/device_mesh.h"
#include "planner/together/link_loads.h"

namespace meshift {

absl::StatusOr<Links> LinksOf(absl::Span<const Plan> plans, const Topology& topology,
                              WorkBudget& budget) {
  constexpr int64_t kMostRanks = (int64_t{1} << 30) - 1;
  DistinctMeshes meshes;
  int64_t ranks = 0;
  for (const Plan& plan : plans) {
    for (const DeviceMesh& mesh : plan.meshes()) meshes.Add(mesh);
  }
  for (const DeviceMesh& mesh : meshes.list()) ranks = SaturatingAdd(ranks, mesh.NumRanks());
  if (!budget.Charge(Links::Work(meshes.list(), topology))) return budget.Refusal("counting");
  if (ranks > kMostRanks) {
    return absl::ResourceExhaustedError("links of 2^30 ranks or more are not counted");
  }
  return Links(meshes.list(), topology);
}

void PlanLoads::Add(size_t plan, int64_t count) {
  // Most of the work of a load stands for memory.
  constexpr int64_t kLoadWork = 16;
  constexpr int64_t kAddWork = 64;
  if (last_ != plan) {
    if (!budget_.Charge(LoadWork(plans_[plan]))) return;
    AddLoads(plans_[plan], links_, &list_);
    last_ = plan;
    last_loads_ = list_.Take(/*count=*/1);
  }
  if (!budget_.Charge(kAddWork) || !budget_.Charge(kLoadWork, std::ssize(last_loads_))) return;
  std::vector<LinkLoad> loads = last_loads_;
  for (LinkLoad& load : loads) load.bytes = SaturatingMul(load.bytes, count);
  sums_.Add(loads);
  added_.push_back(std::move(loads));
}

void PlanLoads::Clear() {
  for (const std::vector<LinkLoad>& loads : added_) sums_.Remove(loads);
  added_.clear();
}

}  // namespace meshift
