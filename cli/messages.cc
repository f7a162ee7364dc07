#include "cli/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/checked_math.h"
#include "base/status.h"
#include "meshift/device_mesh.h"
#include "meshift/plan.h"
#include "meshift/sharding.h"
#include "meshift/topology.h"
#include "planner/plan/crossing.h"

namespace meshift::cli {
namespace {

// The mesh dims of size > 1 that cut `tensor_dim`, outermost first.
std::vector<int> RealCuts(const Sharding& sharding, int tensor_dim) {
  std::vector<int> cuts;
  for (const int d : sharding.CutsOf(tensor_dim)) {
    if (sharding.mesh().dim(d).size > 1) cuts.push_back(d);
  }
  return cuts;
}

// The mesh dims that a permute moves: per tensor dim, those after the common prefix of both cut
// lists, paired.
struct MovingCuts {
  std::vector<int> before;
  std::vector<int> after;
};

MovingCuts MovingCutsOf(const Sharding& before, const Sharding& after) {
  MovingCuts moving;
  for (int t = 0; t < static_cast<int>(before.shape().size()); ++t) {
    const std::vector<int> old_cuts = RealCuts(before, t);
    const std::vector<int> new_cuts = RealCuts(after, t);
    size_t common = 0;
    while (common < std::min(old_cuts.size(), new_cuts.size()) &&
           old_cuts[common] == new_cuts[common]) {
      ++common;
    }
    moving.before.insert(moving.before.end(), old_cuts.begin() + common, old_cuts.end());
    moving.after.insert(moving.after.end(), new_cuts.begin() + common, new_cuts.end());
  }
  return moving;
}

// The dims of `a` that are not in `b`, by size, then mesh order.
std::vector<int> OnlyIn(const std::vector<int>& a, const std::vector<int>& b,
                        const DeviceMesh& mesh) {
  std::vector<int> dims;
  for (const int d : a) {
    if (std::find(b.begin(), b.end(), d) == b.end()) dims.push_back(d);
  }
  std::sort(dims.begin(), dims.end(), [&](int x, int y) {
    return mesh.dim(x).size != mesh.dim(y).size ? mesh.dim(x).size < mesh.dim(y).size : x < y;
  });
  return dims;
}

// The position from which the rank at `coordinate` takes its box.
int64_t PermuteSource(const MovingCuts& moving, const Coordinate& coordinate,
                      const DeviceMesh& mesh) {
  Coordinate source = coordinate;
  const size_t pairs = std::min(moving.before.size(), moving.after.size());
  for (size_t i = 0; i < pairs; ++i) source[moving.before[i]] = coordinate[moving.after[i]];
  const std::vector<int> gone = OnlyIn(moving.before, moving.after, mesh);
  const std::vector<int> come = OnlyIn(moving.after, moving.before, mesh);
  for (size_t i = 0; i < std::min(gone.size(), come.size()); ++i) {
    source[come[i]] = coordinate[gone[i]];
  }
  return mesh.PositionAt(source);
}

// The message from the rank at `from` to rank `target`, with the box that both hold.
RankMessage MessageOf(const Sharding& before, const Coordinate& from, int64_t target, Box box) {
  const DeviceMesh& mesh = before.mesh();
  RankMessage message{mesh.RankAt(from), target, std::move(box), {}};
  for (int d = 0; d < mesh.NumDims(); ++d) {
    if (before.placement(d).IsPartial() && mesh.dim(d).size > 1) {
      message.contribution.emplace_back(mesh.dim(d).name, from[d]);
    }
  }
  return message;
}

std::vector<RankMessage> CrossingMessages(const Plan& plan, const Sharding& before,
                                          const Sharding& after) {
  const Crossing crossing = Crossing::Of(before, after, plan.options().topology);
  std::vector<RankMessage> messages;
  for (const CrossingMessage& message : crossing.messages()) {
    messages.push_back(MessageOf(before, *before.mesh().CoordinateOf(message.sender),
                                 message.receiver, crossing.PartOf(message)));
  }
  return messages;
}

const Sharding& Before(const Plan& plan, int number) {
  return number == 0 ? plan.from() : plan.steps()[number - 1].after;
}

// The group's dims that cut the tensor: a receiver's sources differ from it only in these.
std::vector<int> SourceDims(const Step& step, const Sharding& before) {
  std::vector<int> dims;
  for (const int d : step.mesh_dims) {
    if (before.placement(d).IsShard() || before.placement(d).IsAt()) dims.push_back(d);
  }
  return dims;
}

}  // namespace

std::string RankMessage::ContributionText() const {
  std::string text;
  for (const auto& [name, index] : contribution) {
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", name, index);
  }
  return text.empty() ? "-" : text;
}

std::vector<RankMessage> MessagesOf(const Plan& plan, int number) {
  const Step& step = plan.steps()[number];
  if (!IsCollective(step.op) || IsReduction(step.op)) return {};
  const Sharding& before = Before(plan, number);
  const Sharding& after = step.after;
  if (IsCrossing(step)) return CrossingMessages(plan, before, after);
  const DeviceMesh& mesh = after.mesh();

  const std::vector<int> source_dims = SourceDims(step, before);
  const bool is_permute = step.op == StepOp::kPermute;
  const MovingCuts moving = is_permute ? MovingCutsOf(before, after) : MovingCuts();

  std::vector<RankMessage> messages;
  const auto add = [&](int64_t source, int64_t target) {
    if (source == target) return;
    const Coordinate from = mesh.CoordinateAt(source);
    const Box box = Intersect(before.BoxAt(from), after.BoxAt(mesh.CoordinateAt(target)));
    if (box.IsEmpty()) return;
    messages.push_back(MessageOf(before, from, mesh.RankAt(target), box));
  };
  for (int64_t target = 0; target < mesh.NumRanks(); ++target) {
    if (is_permute) {
      add(PermuteSource(moving, mesh.CoordinateAt(target), mesh), target);
      continue;
    }
    for (const int64_t rank : mesh.GroupOf(source_dims, mesh.RankAt(target))) {
      add(*mesh.PositionOf(rank), target);
    }
  }
  return messages;
}

absl::Status CheckMessages(const Plan& plan) {
  int64_t pairs = 0;
  for (int i = 0; i < static_cast<int>(plan.steps().size()); ++i) {
    const Step& step = plan.steps()[i];
    if (!IsCollective(step.op) || IsReduction(step.op)) continue;
    const Sharding& before = Before(plan, i);
    int64_t of_step = step.after.mesh().NumRanks();
    if (IsCrossing(step)) {
      of_step = Crossing::CountMessages(before, step.after);
    } else if (step.op != StepOp::kPermute) {
      for (const int d : SourceDims(step, before)) {
        of_step = SaturatingMul(of_step, step.after.mesh().dim(d).size);
      }
    }
    pairs = SaturatingAdd(pairs, of_step);
  }
  if (pairs <= kMaxListedPairs) return absl::OkStatus();
  return InvalidArgument(
      "the plan has {} pairs of a sender and a receiver; at most {} can be listed", pairs,
      kMaxListedPairs);
}

}  // namespace meshift::cli
