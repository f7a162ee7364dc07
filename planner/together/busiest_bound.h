// A lower bound of the time of the busiest link, for any plans of several tensors.
//
//   BusiestBound bound(links, options, budget);
//   for (const TensorMove& move : moves) bound.Add(move);
//   bound.Ns();     // no plans of these moves have a busiest link below this
//
// The lemma of docs/design.md, "Lower bound", for X = each rank, X = the ranks of each domain, and
// X = the ranks of each mesh: in(X) and out(X), in bytes of the narrowest dtype that a plan may
// send, are summed over the moves. A mesh sums in(X) of the moves to it and out(X) of those from
// it. All bytes pass X's links of the levels that lead out of X, so they take at least bytes / sum
// of these links' bandwidths. A move whose target is partial counts 0. With pairs of boxes beyond a
// fixed number, a domain counts 0 for the move. One thread at a time. Internal to planner/together.
#ifndef MESHIFT_PLANNER_TOGETHER_BUSIEST_BOUND_H_
#define MESHIFT_PLANNER_TOGETHER_BUSIEST_BOUND_H_

#include <cstdint>
#include <vector>

#include "base/work_budget.h"
#include "meshift/device_mesh.h"
#include "meshift/planner.h"
#include "meshift/planner_options.h"
#include "planner/together/links.h"

namespace meshift {

class BusiestBound {
 public:
  // Keeps references to all arguments.
  BusiestBound(const Links& links, const PlannerOptions& options, WorkBudget& budget);

  // REQUIRES: the links are those of the move's meshes and others. Charges its work; when the
  // budget is exhausted, the bound is unspecified. O(ranks * log(ranks)) time.
  void Add(const TensorMove& move);
  int64_t Ns() const;

 private:
  struct Flow {
    __int128 in = 0;  // bytes
    __int128 out = 0;
  };
  struct OfMesh {
    DeviceMesh mesh;
    std::vector<bool> has;  // whether a rank is in the mesh, by index
    int level = 0;  // the lowest at which one of its ranks shares a domain with another rank
    Flow flow = {};
  };
  OfMesh& Of(const DeviceMesh& mesh);

  const Links& links_;
  const PlannerOptions& options_;
  WorkBudget& budget_;
  std::vector<Flow> of_rank_;                 // by index
  std::vector<std::vector<Flow>> of_domain_;  // by level, without the last; then domain
  std::vector<OfMesh> of_mesh_;
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_TOGETHER_BUSIEST_BOUND_H_
