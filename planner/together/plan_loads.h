// Counts, from plans alone, the busiest link and the most copies of several tensors, by the formula
// of together.h.
//
//   MESHIFT_ASSIGN_OR_RETURN(const Links links, LinksOf(plans, topology, budget));
//   PlanLoads loads(plans, links, budget);
//   for (size_t i = 0; i < plans.size(); ++i) loads.Add(i, counts[i]);
//   loads.Busiest().ns;
//
// When the budget is exhausted, results are unspecified. One thread at a time. Internal to the
// planner and the CLI.
#ifndef MESHIFT_PLANNER_TOGETHER_PLAN_LOADS_H_
#define MESHIFT_PLANNER_TOGETHER_PLAN_LOADS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/work_budget.h"
#include "meshift/plan.h"
#include "meshift/topology.h"
#include "planner/together/link_sums.h"
#include "planner/together/links.h"

namespace meshift {

// The links of the meshes of all plans; keeps a reference to `topology`. RESOURCE_EXHAUSTED: the
// budget, or 2^30 ranks or more.
absl::StatusOr<Links> LinksOf(absl::Span<const Plan> plans, const Topology& topology,
                              WorkBudget& budget);

class PlanLoads {
 public:
  // Keeps references to all arguments. REQUIRES: the verifier accepts the plans, and the links are
  // those of their meshes and others.
  PlanLoads(absl::Span<const Plan> plans, const Links& links, WorkBudget& budget)
      : plans_(plans), links_(links), budget_(budget), list_(links), sums_(links) {}

  // Adds the loads of `count` tensors that have plans[plan].
  void Add(size_t plan, int64_t count);
  // The busiest link of all that was added; its time alone; the most local copies of a rank.
  LinkTime Busiest() const { return sums_.Busiest(); }
  int64_t BusiestNs() const { return sums_.LinksNs(); }
  int64_t CopiesNs() const { return sums_.CopiesNs(); }
  // Forgets all loads.
  void Clear();

 private:
  const absl::Span<const Plan> plans_;
  const Links& links_;
  WorkBudget& budget_;
  LoadList list_;
  LinkSums sums_;
  std::optional<size_t> last_;  // the plan of last_loads_
  std::vector<LinkLoad> last_loads_;
  std::vector<std::vector<LinkLoad>> added_;
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_TOGETHER_PLAN_LOADS_H_
