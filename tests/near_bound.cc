#include "tests/near_bound.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "base/checked_math.h"
#include "meshift/device_mesh.h"
#include "meshift/planner.h"
#include "meshift/sharding.h"
#include "meshift/status.h"
#include "planner/cost/lower_bound.h"
#include "planner/graph/state.h"
#include "planner/plan/rank_bytes.h"
#include "testing/shardings.h"

namespace meshift {
namespace {

constexpr size_t kWorst = 10;

int CountPartial(const Sharding& sharding) {
  int count = 0;
  for (const Placement& placement : sharding.placements()) count += placement.IsPartial() ? 1 : 0;
  return count;
}

// Keeps the kWorst plans with the highest ratios, among equals the first ones.
void Keep(std::vector<NearPlan>* worst, const NearPlan& plan, double (NearPlan::*ratio)() const) {
  const double mine = (plan.*ratio)();
  if (mine <= 1) return;
  if (worst->size() == kWorst && ((*worst).back().*ratio)() >= mine) return;
  const auto at = std::upper_bound(
      worst->begin(), worst->end(), mine,
      [&](double value, const NearPlan& other) { return value > (other.*ratio)(); });
  worst->insert(at, plan);
  if (worst->size() > kWorst) worst->pop_back();
}

int64_t BytesOfAllRanks(const Plan& plan) {
  int64_t bytes = 0;
  for (size_t i = 0; i < plan.steps().size(); ++i) {
    for (const int64_t rank : plan.meshes()[0].Ranks()) {
      bytes += BytesSent(plan, static_cast<int>(i), rank);
    }
  }
  return bytes;
}

// Splits the time above the bound: starts of collectives after the first, bytes beyond the bound's,
// and the rest.
std::string WhyLonger(const Plan& plan, const Topology& topology) {
  const int64_t longer = plan.total().est_ns - plan.lower_bound().est_ns;
  const int64_t starts = std::max<int64_t>(plan.total().collectives - 1, 0) *
                         topology.constants().collective_latency_ns;
  const int64_t bytes = plan.total().bytes_sent - plan.lower_bound().bytes_sent;
  const int64_t bytes_ns =
      MulDivCeil(std::max<int64_t>(bytes, 0), 1000, topology.level(0).bandwidth_bytes_per_us);
  return fmt::format(
      "{} ns longer: {} ns to start further collectives, {} ns for {} B more by the worst rank, "
      "the "
      "rest for hops, messages and copies",
      longer, starts, bytes_ns, bytes);
}

// The boundaries of boxes along each tensor dim: a rank holds all or none of the elements between
// two.
std::vector<std::vector<int64_t>> CellBounds(const std::vector<Box>& boxes, const Shape& shape) {
  std::vector<std::vector<int64_t>> bounds;
  for (size_t k = 0; k < shape.size(); ++k) {
    std::set<int64_t> ends = {0, shape[k]};
    for (const Box& box : boxes) {
      ends.insert(box.offset[k]);
      ends.insert(box.offset[k] + box.size[k]);
    }
    bounds.emplace_back(ends.begin(), ends.end());
  }
  return bounds;
}

}  // namespace

int64_t LeastBytesAcross(const Sharding& from, const Sharding& to, const Topology& topology,
                         int level) {
  std::vector<Box> held;
  std::vector<Box> wanted;
  std::vector<int64_t> domains;
  for (int64_t position = 0; position < from.mesh().NumRanks(); ++position) {
    const Coordinate at = from.mesh().CoordinateAt(position);
    held.push_back(from.BoxAt(at));
    wanted.push_back(to.BoxAt(at));
    domains.push_back(topology.DomainOf(level - 1, from.mesh().RankAt(position)));
  }
  std::vector<Box> all = held;
  all.insert(all.end(), wanted.begin(), wanted.end());
  const std::vector<std::vector<int64_t>> bounds = CellBounds(all, from.shape());
  const std::set<int64_t> names(domains.begin(), domains.end());
  int64_t elements = 0;
  std::vector<size_t> cell(bounds.size(), 0);
  while (true) {
    Box box;
    for (size_t k = 0; k < bounds.size(); ++k) {
      box.offset.push_back(bounds[k][cell[k]]);
      box.size.push_back(bounds[k][cell[k] + 1] - bounds[k][cell[k]]);
    }
    for (const int64_t domain : names) {
      bool wants = false;
      bool has = false;
      for (size_t r = 0; r < domains.size(); ++r) {
        if (domains[r] != domain) continue;
        wants |= Contains(wanted[r], box);
        has |= Contains(held[r], box);
      }
      if (wants && !has) elements += box.NumElements();
    }
    size_t k = bounds.size();
    while (k > 0 && ++cell[k - 1] + 1 == bounds[k - 1].size()) cell[--k] = 0;
    if (k == 0) break;
  }
  return Bytes(from.dtype(), elements);
}

int64_t BytesAcross(const Plan& plan, const Topology& topology, int level) {
  int64_t bytes = 0;
  for (size_t i = 0; i < plan.steps().size(); ++i) {
    const Step& step = plan.steps()[i];
    if (!IsCollective(step.op)) continue;
    const Sharding& before = i == 0 ? plan.from() : plan.steps()[i - 1].after;
    const DeviceMesh& mesh = before.mesh();
    const auto domain = [&](int64_t rank) { return topology.DomainOf(level - 1, rank); };
    const bool rings = step.op == StepOp::kAllGather || step.op == StepOp::kReduceScatter ||
                       step.op == StepOp::kAllReduce;
    for (const std::vector<int64_t>& group : mesh.Groups(step.mesh_dims)) {
      if (rings) {
        // On a ring that goes through each domain once, a rank's bytes leave each domain.
        std::set<int64_t> domains;
        for (const int64_t rank : group) domains.insert(domain(rank));
        if (domains.size() > 1) {
          bytes += static_cast<int64_t>(domains.size()) *
                   BytesSent(plan, static_cast<int>(i), group.front());
        }
        continue;
      }
      for (const int64_t rank : group) {
        ForEachMessage(plan, static_cast<int>(i), rank, [&](int64_t to, int64_t message) {
          if (domain(to) != domain(rank)) bytes += message;
        });
      }
    }
  }
  return bytes;
}

absl::StatusOr<NearBound> MeasureNearBound(const NearBoundWorld& world) {
  MESHIFT_ASSIGN_OR_RETURN(const DeviceMesh mesh, DeviceMesh::Parse(world.mesh));
  const std::vector<Sharding> all =
      testkit::AllShardings(mesh, TensorType{world.dtype, world.shape}, ReduceOp::kSum);
  const Topology& topology = world.options.topology;
  const int slowest = topology.NumLevels() - 1;
  NearBound near;
  int64_t next = 0;
  for (const Sharding& from : all) {
    if (CountPartial(from) != world.partial_dims) continue;
    for (const Sharding& to : all) {
      if (CountPartial(to) != 0 || from == to) continue;
      if (next++ % world.fraction != 0) continue;
      // Small values may trade bytes for time: compare bytes of plans without that, and times with
      // it.
      PlannerOptions options = world.options;
      options.max_value = SaturatingMul(std::max(from.MaxLocalElements(), to.MaxLocalElements()),
                                        BitWidth(world.dtype) / 8);
      MESHIFT_ASSIGN_OR_RETURN(const Plan plan, MakePlan(from, to, options));
      MESHIFT_ASSIGN_OR_RETURN(const Plan quickest, MakePlan(from, to, world.options));
      MESHIFT_ASSIGN_OR_RETURN(const Problem problem, Problem::Create(from, to));
      NearPlan one;
      one.text = from.PlacementsText() + " -> " + to.PlacementsText();
      const int64_t largest = std::max(from.MaxLocalElements(), to.MaxLocalElements());
      bool is_larger = false;
      for (const Step& step : plan.steps()) {
        one.steps += (one.steps.empty() ? "" : "; ") + step.ToString();
        ++near.ops[std::string(Name(step.op))];
        is_larger |= step.after.MaxLocalElements() > largest;
      }
      one.bytes = BytesOfAllRanks(plan);
      one.least_bytes = LeastBytesMoved(problem);
      one.est_ns = quickest.total().est_ns;
      one.least_ns = plan.lower_bound().est_ns;
      one.why = WhyLonger(quickest, topology);
      if (slowest > 0 && world.partial_dims == 0) {
        one.slow_bytes = BytesAcross(plan, topology, slowest);
        one.least_slow_bytes = LeastBytesAcross(from, to, topology, slowest);
      }
      ++near.pairs;
      near.larger += is_larger ? 1 : 0;
      near.below += one.bytes < one.least_bytes || one.est_ns < one.least_ns ||
                            plan.total().bytes_sent < plan.lower_bound().bytes_sent ||
                            one.slow_bytes < one.least_slow_bytes
                        ? 1
                        : 0;
      near.bytes.Add(one.bytes, one.least_bytes);
      near.sent.Add(plan.total().bytes_sent, plan.lower_bound().bytes_sent);
      near.slow_bytes.Add(one.slow_bytes, one.least_slow_bytes);
      near.time.Add(one.est_ns, one.least_ns);
      Keep(&near.worst_bytes, one, &NearPlan::BytesRatio);
      Keep(&near.worst_slow_bytes, one, &NearPlan::SlowRatio);
      Keep(&near.worst_time, one, &NearPlan::TimeRatio);
    }
  }
  return near;
}

}  // namespace meshift
