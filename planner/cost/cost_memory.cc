// Implements the limits of planner/cost/cost.h: the workspace of values and steps, in bytes on the
// worst rank, and the choice between two ways to do a step.
#include <algorithm>
#include <cstdint>

#include "base/checked_math.h"
#include "planner/cost/cost.h"
#include "planner/graph/state.h"
#include "planner/plan/workspace.h"

namespace meshift {

CostModel CostModel::WithMaxWorkspace(std::optional<int64_t> max_workspace) const {
  CostOptions options = options_;
  options.max_workspace = max_workspace;
  return CostModel(problem_, topology_, options);
}

CostModel CostModel::WithGroups(const DimSets& groups) const {
  CostOptions options = options_;
  options.groups = groups;
  return CostModel(problem_, topology_, options);
}

int64_t CostModel::HeldBytes(const State& state) const {
  if (options_.from_source && state == problem_.source()) return 0;
  if (options_.to_target && state == problem_.target()) return 0;
  return AlignedPiece(problem_.MaxBytes(state));
}

// For messages, by the rule of docs/plan_format.md, "Memory": if they are packed, the largest box
// without the largest part that a rank may keep.
int64_t CostModel::LeastWorkspaceBytes(StepOp op, const State& before, const State& after) const {
  if (op != StepOp::kAllToAll && op != StepOp::kExchange) {
    return WorkspaceBytes(op, before, after, 0, 0);
  }
  const CutLists cuts_before = problem_.Cuts(before);
  const CutLists cuts_after = problem_.Cuts(after);
  const int64_t item = problem_.item_bytes(before.stage());
  bool is_long = false;  // messages have more than one index along some dim before k
  bool sends = false;
  bool receives = false;
  int64_t part = item;
  for (int k = 0; k < problem_.tensor_rank(); ++k) {
    const MovedLengths& lengths = LengthsOf(k, cuts_before.of[k], cuts_after.of[k]);
    sends |= is_long && lengths.splits_before;
    receives |= is_long && lengths.splits_after;
    is_long |= lengths.longest > 1;
    part = SaturatingMul(part, lengths.longest);
  }
  const int64_t received =
      receives ? std::max<int64_t>(problem_.MaxBytes(after) - part, 0) : int64_t{0};
  // In an all_to_all every element goes to one member.
  const int64_t sent = sends && op == StepOp::kAllToAll
                           ? std::max<int64_t>(problem_.MaxBytes(before) - part, 0)
                           : int64_t{0};
  return WorkspaceBytes(op, before, after, sent, received);
}

int64_t CostModel::LeastHeldBytes() const {
  __int128 items = 1;
  for (int k = 0; k < problem_.tensor_rank(); ++k) items *= problem_.extent(k);
  const int64_t least = static_cast<int64_t>(items / problem_.mesh().NumRanks());
  return AlignedPiece(SaturatingMul(least, problem_.least_item_bytes()));
}

int64_t CostModel::WorkspaceBytes(StepOp op, const State& before, const State& after, int64_t send,
                                  int64_t receive) const {
  const bool first = options_.from_source && before == problem_.source();
  const int64_t pieces = PiecesBytes(send, receive, first ? 0 : options_.scratch_bytes);
  int64_t values = SaturatingAdd(HeldBytes(before), HeldBytes(after));
  if (first && options_.to_target && after == problem_.target() && op != StepOp::kAllReduce) {
    values = SaturatingAdd(values, options_.copied_bytes);
  }
  return SaturatingAdd(values, pieces);
}

int64_t CostModel::WorkspaceBytes(StepOp op, const State& before, const State& after,
                                  const Traffic& traffic) const {
  return WorkspaceBytes(op, before, after, traffic.send_pack_bytes, traffic.receive_pack_bytes);
}

const Traffic& CostModel::Choose(StepOp op, const State& before, const State& after,
                                 const Traffic& plain, const Traffic& other) const {
  const Traffic& cheaper = other.est_ns < plain.est_ns ? other : plain;
  if (!options_.max_workspace) return cheaper;
  const Traffic& costlier = &cheaper == &plain ? other : plain;
  const int64_t bytes = WorkspaceBytes(op, before, after, cheaper);
  const bool keeps =
      bytes <= *options_.max_workspace || bytes <= WorkspaceBytes(op, before, after, costlier);
  return keeps ? cheaper : costlier;
}

}  // namespace meshift
