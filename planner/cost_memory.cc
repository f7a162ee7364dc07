// The memory that steps need, and how a limit on it decides between ways to do one.
#include <cstdint>

#include "base/checked_math.h"
#include "planner/cost.h"
#include "planner/memory_limit.h"

namespace meshift {
namespace {

int64_t PieceBytes(const Traffic& traffic) {
  return SaturatingAdd(AlignedPiece(traffic.send_pack_bytes),
                       AlignedPiece(traffic.receive_pack_bytes));
}

}  // namespace

CostModel CostModel::WithMaxWorkspace(std::optional<int64_t> max_workspace) const {
  CostOptions options = options_;
  options.max_workspace = max_workspace;
  return CostModel(problem_, topology_, options);
}

int64_t CostModel::HeldBytes(const State& state) const {
  if (options_.from_source && state == problem_.source()) return 0;
  if (options_.to_target && state == problem_.target()) return 0;
  return AlignedPiece(problem_.MaxBytes(state));
}

int64_t CostModel::LeastHeldBytes() const {
  __int128 items = 1;
  for (int k = 0; k < problem_.tensor_rank(); ++k) items *= problem_.extent(k);
  const int64_t least = static_cast<int64_t>(items / problem_.mesh().NumRanks());
  return AlignedPiece(SaturatingMul(least, problem_.least_item_bytes()));
}

int64_t CostModel::WorkspaceBytes(const State& before, const State& after,
                                  const Traffic& traffic) const {
  return SaturatingAdd(SaturatingAdd(HeldBytes(before), HeldBytes(after)), PieceBytes(traffic));
}

const Traffic& CostModel::Choose(const State& before, const State& after, const Traffic& plain,
                                 const Traffic& other) const {
  const Traffic& cheaper = other.est_ns < plain.est_ns ? other : plain;
  if (!options_.max_workspace) return cheaper;
  const Traffic& costlier = &cheaper == &plain ? other : plain;
  if (Fits(before, after, cheaper) || PieceBytes(cheaper) <= PieceBytes(costlier)) return cheaper;
  return costlier;
}

}  // namespace meshift
