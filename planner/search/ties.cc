#include "planner/search/ties.h"

#include <string>
#include <string_view>

#include "base/checked_math.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/sharding.h"
#include "planner/graph/transitions.h"

namespace meshift {
namespace {

// "all_gather 0,2 R,S(0),R": the op, the problem's mesh dims by number, since names must not change
// a plan, and the placements after.
std::string TextOf(const Problem& problem, const Leg& leg) {
  std::string text(Name(leg.op));
  const DimMask dims = StepDims(problem, leg.op, leg.before, leg.after);
  std::string_view between = " ";
  for (int d = 0; d < problem.num_dims(); ++d) {
    if (!HasDim(dims, d)) continue;
    text.append(between).append(std::to_string(d));
    between = ",";
  }
  return text.append(" ").append(problem.ToSharding(leg.after).PlacementsText());
}

}  // namespace

bool Ties::IsBefore(absl::Span<const Leg> a, absl::Span<const Leg> b) {
  const int64_t bytes = SumOf(a);
  const int64_t other_bytes = SumOf(b);
  if (bytes != other_bytes) return bytes < other_bytes;
  if (a.size() != b.size()) return a.size() < b.size();
  for (size_t i = 0; i < a.size(); ++i) {
    const int order = TextOf(problem_, a[i]).compare(TextOf(problem_, b[i]));
    if (order != 0) return order < 0;
  }
  return false;
}

int64_t Ties::SumOf(absl::Span<const Leg> path) {
  int64_t bytes = 0;
  for (const Leg& leg : path) bytes = SaturatingAdd(bytes, TotalBytes(leg));
  return bytes;
}

int64_t Ties::TotalBytes(const Leg& leg) {
  if (!IsCollective(leg.op)) return 0;
  const auto [at, is_new] = counted_.try_emplace({leg.op, leg.before, leg.after});
  if (is_new) {
    const int64_t ranks = problem_.mesh().NumRanks();
    const bool has_blocks = IsReduction(leg.op) || leg.op == StepOp::kAllGather;
    at->second =
        has_blocks || ranks > kMaxRanks
            ? SaturatingMul(ranks, model_.Measure(leg.op, leg.before, leg.after).bytes_sent)
            : CountMessages(leg);
  }
  return at->second;
}

// Each rank receives the elements that it does not hold; in a permute, its whole box.
int64_t Ties::CountMessages(const Leg& leg) const {
  const Sharding before = problem_.ToSharding(leg.before);
  const Sharding after = problem_.ToSharding(leg.after);
  const DeviceMesh& mesh = problem_.mesh();
  int64_t bytes = 0;
  for (int64_t position = 0; position < mesh.NumRanks(); ++position) {
    const Coordinate at = *mesh.CoordinateOf(mesh.RankAt(position));
    const Box has = before.BoxAt(at);
    const Box wants = after.BoxAt(at);
    if (has == wants) continue;
    int64_t elements = wants.NumElements();
    if (elements == 0) continue;
    if (leg.op != StepOp::kPermute && !has.IsEmpty()) elements -= CommonElements(has, wants);
    bytes = SaturatingAdd(bytes, Bytes(before.dtype(), elements));
  }
  return bytes;
}

}  // namespace meshift
