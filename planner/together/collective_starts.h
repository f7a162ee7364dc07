// The starts of the collectives of several plans, by group. The collectives of a list that match
// are merged (comm/program/merge_programs.h), so those of one kind start once.
//
//   CollectiveKinds kinds;
//   StartSums sums;
//   sums.Add(StartsOf(plan, topology, &kinds));
//   sums.Most();       // S of together.h
//
// Times are in ns, those of TimePartsOf (planner/cost/cost.h). No errors. One thread at a time.
// Internal to planner/together and the CLI.
#ifndef MESHIFT_PLANNER_TOGETHER_COLLECTIVE_STARTS_H_
#define MESHIFT_PLANNER_TOGETHER_COLLECTIVE_STARTS_H_

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "meshift/device_mesh.h"
#include "meshift/plan.h"
#include "meshift/planner_options.h"
#include "meshift/topology.h"
#include "placement/op_table.h"

namespace meshift {

// The start of one collective of a plan.
struct CollectiveStart {
  int32_t kind = 0;   // its op, on its group
  int32_t group = 0;  // those of a mesh along some of its dims
  int64_t ns = 0;
};
using PlanStarts = absl::InlinedVector<CollectiveStart, 2>;

// Numbers kinds and groups from 0 on.
class CollectiveKinds {
 public:
  CollectiveStart Of(const DeviceMesh& mesh, const DimSet& mesh_dims, StepOp op);

 private:
  absl::flat_hash_map<DeviceMesh, std::map<DimSet, int32_t>> groups_;
  std::map<std::pair<int32_t, StepOp>, int32_t> kinds_;  // by group and op
  int32_t num_groups_ = 0;
};

// The starts of a plan's collectives, a step each; without crossings. REQUIRES: the verifier
// accepts `plan`.
PlanStarts StartsOf(const Plan& plan, const Topology& topology, CollectiveKinds* kinds);

class StartSums {
 public:
  void Add(const PlanStarts& starts) { Change(starts, 1); }
  // REQUIRES: they were added.
  void Remove(const PlanStarts& starts) { Change(starts, -1); }
  // The most starts of one group; with these too.
  int64_t Most() const { return Largest(of_groups_); }
  int64_t MostWith(const PlanStarts& starts) {
    Add(starts);
    const int64_t most = Most();
    Remove(starts);
    return most;
  }

 private:
  // How often each time occurs.
  using Counts = std::map<int64_t, int64_t>;
  static int64_t Largest(const Counts& counts) {
    return counts.empty() ? 0 : counts.rbegin()->first;
  }
  static void Change(int64_t ns, int sign, Counts* counts);
  void Change(const PlanStarts& starts, int sign);

  std::vector<Counts> kinds_;    // a kind starts once, and takes the longest
  std::vector<int64_t> groups_;  // the sums of their kinds
  Counts of_groups_;             // those of groups_
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_TOGETHER_COLLECTIVE_STARTS_H_
