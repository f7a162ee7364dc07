// The plans that one of several tensors may have, with their loads.
//
//   CandidateMaker maker(links, options, budget, kinds);
//   MESHIFT_ASSIGN_OR_RETURN(std::vector<Candidate> candidates, maker.Make(move, alone, {}));
//   MESHIFT_ASSIGN_OR_RETURN(Plan plan, maker.PlanOf(move, candidates[2]));
//
// 0: the plan for this tensor alone. Onto another mesh, where nothing is reduced or cast, also the
// crossing straight from source to target; and, if the source has replicas, straight crossings from
// one of them, which a local slice to At selects. Those are made as plans only when they are
// chosen. One thread at a time. Internal to planner/together.
#ifndef MESHIFT_PLANNER_TOGETHER_CANDIDATES_H_
#define MESHIFT_PLANNER_TOGETHER_CANDIDATES_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/work_budget.h"
#include "meshift/plan.h"
#include "meshift/planner.h"
#include "meshift/planner_options.h"
#include "planner/plan/crossing.h"
#include "planner/together/collective_starts.h"
#include "planner/together/links.h"

namespace meshift {

struct Candidate {
  std::vector<LinkLoad> loads;  // times the move's count; by level, then place
  int64_t sent = 0;             // the sum of the loads that are sent, without copies
  PlanStarts starts = {};
  std::optional<Plan> plan = std::nullopt;
  // Without a plan: the number of the replica that sends; -1: a crossing straight from the source.
  int64_t replica = -1;
  bool refused = false;  // its plan breaks a limit
};

// Which replicas are tried.
struct Sources {
  int64_t most = 64;
  bool alone = false;  // none: make only candidate 0
  int64_t turn = 0;    // if there are more replicas than `most`, moves of other turns try others
};

class CandidateMaker {
 public:
  // Keeps references to all arguments.
  CandidateMaker(const Links& links, const PlannerOptions& options, WorkBudget& budget,
                 CollectiveKinds& kinds)
      : links_(links), options_(options), budget_(budget), kinds_(kinds), list_(links) {}

  // `alone`: the plan of the tensor alone. RESOURCE_EXHAUSTED: the budget is exhausted. REQUIRES:
  // the links are those of the move's meshes and others. The copies of a candidate without a plan
  // are estimated; the rest is that of its plan.
  absl::StatusOr<std::vector<Candidate>> Make(const TensorMove& move, Plan alone,
                                              const Sources& sources);
  // The plan of a candidate of the move. Errors as CrossDirectly
  // (planner/inter_mesh/direct_crossing.h): the candidate breaks a limit.
  absl::StatusOr<Plan> PlanOf(const TensorMove& move, const Candidate& candidate);
  // Gives the candidate its plan, and the loads of that.
  void SetPlan(const TensorMove& move, Plan plan, Candidate* candidate);

 private:
  Candidate Finish(const TensorMove& move);  // takes the loads of list_
  int64_t CopiesNs(const Crossing& crossing, const Sharding& from, const Sharding& to) const;
  void AddCopies(int64_t ns, absl::Span<const int32_t> ranks, int direction);
  void AddReplicas(const TensorMove& move, const Sources& sources,
                   std::vector<Candidate>* candidates);

  const Links& links_;
  const PlannerOptions& options_;
  WorkBudget& budget_;
  CollectiveKinds& kinds_;
  LoadList list_;
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_TOGETHER_CANDIDATES_H_
