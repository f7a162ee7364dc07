#include "comm/program/coalesce.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "absl/container/flat_hash_map.h"
#include "base/checked_math.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"
#include "meshift/sharding.h"
#include "planner/plan/crossing.h"

namespace meshift {
namespace {

// The call that a step is lowered to. Only the three regular collectives have calls of their own;
// all others are exchanges of messages.
StepOp CallOf(StepOp op) {
  return op == StepOp::kAllReduce || op == StepOp::kReduceScatter || op == StepOp::kAllGather
             ? op
             : StepOp::kExchange;
}

}  // namespace

CoalesceTraits CoalesceTraitsOf(const Plan& plan, int64_t max_bytes) {
  CoalesceTraits traits;
  auto text = std::back_inserter(traits.calls);
  const bool may_reduce = plan.asked() <= Reproducibility::kReplicas;
  DType dtype = plan.from().dtype();
  int mesh = 0;  // before the step
  for (size_t i = 0; i < plan.steps().size(); ++i) {
    const Step& step = plan.steps()[i];
    // A tensor without elements needs no calls.
    if (IsCollective(step.op) && NumElements(step.after.shape()) > 0) {
      traits.steps.push_back(static_cast<int>(i));
      // A rank that reduces a crossing receives all contributions in one call.
      const Sharding& before = i == 0 ? plan.from() : plan.steps()[i - 1].after;
      const int64_t copies = IsReduction(step.op) || !step.reduce_op ? 1 : ContributionsOf(before);
      traits.bytes = std::max({traits.bytes, step.bytes_in, SaturatingMul(copies, step.bytes_out)});
      // An ordered reduction has several calls.
      const bool ordered = IsReduction(step.op) && step.reduce_order == ReduceOrder::kAscending;
      traits.alone |=
          step.bytes_sent > max_bytes || ordered || (IsReduction(step.op) && !may_reduce);
      fmt::format_to(text, "{}{{{}}}", Name(CallOf(step.op)), fmt::join(step.mesh_dims, ","));
      if (step.mesh > 0) fmt::format_to(text, "{}{}", step.mesh == mesh ? "@" : "->", step.mesh);
      if (IsReduction(step.op)) {
        fmt::format_to(text, "{} {} {}", Name(dtype), Name(step.reduce_op.value_or(ReduceOp::kSum)),
                       step.divisor.value_or(1));
      }
    }
    dtype = step.after.dtype();
    mesh = step.mesh;
  }
  for (const DeviceMesh& m : plan.meshes()) {
    if (!traits.steps.empty()) fmt::format_to(text, " on {}", m.ToString());
  }
  return traits;
}

int64_t DefaultCoalesceBytes(const Topology& topology) {
  return MulDivCeil(topology.constants().collective_latency_ns,
                    topology.level(0).bandwidth_bytes_per_us, 1000);
}

std::vector<std::vector<int>> Coalesce(absl::Span<const CoalesceTraits* const> plans,
                                       int64_t max_total) {
  struct Open {
    size_t run = 0;
    int64_t bytes = 0;
  };
  std::vector<std::vector<int>> runs;
  absl::flat_hash_map<std::string, Open> open;
  for (size_t i = 0; i < plans.size(); ++i) {
    const CoalesceTraits& plan = *plans[i];
    const auto index = static_cast<int>(i);
    if (plan.alone) {
      runs.push_back({index});
      continue;
    }
    const auto [it, is_new] = open.try_emplace(plan.calls);
    Open& last = it->second;
    if (is_new || SaturatingAdd(last.bytes, plan.bytes) > max_total) {
      last = {.run = runs.size(), .bytes = 0};
      runs.emplace_back();
    }
    runs[last.run].push_back(index);
    last.bytes = SaturatingAdd(last.bytes, plan.bytes);
  }
  return runs;
}

}  // namespace meshift
