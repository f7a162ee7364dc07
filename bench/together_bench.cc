// What planning the tensors of an update together gains (planner/together/together.h):
//
//   ./bazelw run -c opt //bench:together_bench
//
// Whole models, from a trainer's mesh to a server's, by the rules of examples/models. A row per
// model: the time of the busiest link by three ways to plan, and its lower bound:
//
// - together: MakePlans.
// - alone: each tensor has the plan that it has alone.
// - round robin: each tensor goes straight to the server, from the next of its source's replicas
//   (tensors that are reduced or cast: as alone).
//
// Then the seconds that MakePlans took, with reading the model, the groups and the totals.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "base/checked_math.h"
#include "base/text_table.h"
#include "base/work_budget.h"
#include "cli/io.h"
#include "cli/model_plan.h"
#include "cli/model_traffic.h"
#include "cli/problem.h"
#include "cli/text.h"
#include "meshift/placement.h"
#include "meshift/sharding.h"
#include "meshift/topology.h"
#include "planner/inter_mesh/cross_many_owners.h"
#include "planner/together/link_loads.h"

namespace meshift::cli {
namespace {

struct Case {
  const char* model;
  const char* rules;
  const char* mesh;
  const char* to_mesh;
};
constexpr Case kCases[] = {
    {"deepseek-v3", "deepseek-v3.train-to-serve", "ep=64,fsdp=32", "dp=32,tp=8@2048-2303"},
    {"deepseek-v3", "deepseek-v3.train-to-serve", "ep=64,fsdp=4", "dp=8,tp=8@256-319"},
    {"deepseek-v3", "deepseek-v3.two-owners", "ep=64,fsdp=32", "dp=32,tp=8@2048-2303"},
    {"llama3.1-405b", "llama3.1-405b.train-to-serve", "fsdp=16,tp=8", "rep=4,tp=8@128-159"},
};

// Bytes by link.
class Loads {
 public:
  explicit Loads(const Topology& topology) : topology_(topology) {}

  void Add(const Plan& plan, int64_t count) {
    ForEachLoad(
        plan, topology_,
        [&](int64_t rank, int level, const LinkBytes& bytes) {
          bytes_[{rank, level, false}] += count * bytes.sent;
          bytes_[{rank, level, true}] += count * bytes.received;
        },
        [](int64_t, int64_t) {});
  }
  int64_t BusiestNs() const {
    int64_t ns = 0;
    for (const auto& [link, bytes] : bytes_) {
      const int64_t bandwidth = topology_.level(std::get<1>(link)).bandwidth_bytes_per_us;
      ns = std::max(ns, MulDivCeil(bytes, 1000, bandwidth));
    }
    return ns;
  }

 private:
  const Topology& topology_;
  std::map<std::tuple<int64_t, int, bool>, int64_t> bytes_;  // rank, level, received
};

// The parts of `from` in which one coordinate of each replicated mesh dim holds data.
std::vector<Sharding> ReplicasOf(const Sharding& from) {
  std::vector<Sharding> replicas = {from};
  for (int d = 0; d < from.mesh().NumDims(); ++d) {
    const Placement& p = from.placement(d);
    if (from.mesh().dim(d).size == 1 || !(p.IsReplicate() || p.IsAt())) continue;
    std::vector<Sharding> more;
    for (const Sharding& replica : replicas) {
      for (int64_t i = 0; i < from.mesh().dim(d).size; ++i) {
        if (p.IsAt() && !p.Holds(i)) continue;
        std::vector<Placement> placements(replica.placements().begin(), replica.placements().end());
        placements[d] = Placement::At({i});
        more.push_back(replica.WithPlacements(std::move(placements)).value());
      }
    }
    replicas = std::move(more);
  }
  return replicas;
}

int64_t RoundRobinNs(const ModelPlan& alone) {
  const PlannerOptions& options = alone.rows[0].plan.options();
  Loads loads(options.topology);
  int64_t turn = 0;
  for (const ModelRow& row : alone.rows) {
    const Sharding& from = row.plan.from();
    const Sharding& to = row.plan.to();
    if (from.mesh() == to.mesh() || from.HasPartial() || from.dtype() != to.dtype()) {
      loads.Add(row.plan, row.count);
      continue;
    }
    const std::vector<Sharding> replicas = ReplicasOf(from);
    const auto n = static_cast<int64_t>(replicas.size());
    for (int64_t i = 0; i < std::min(n, row.count); ++i) {
      WorkBudget budget(options.max_work);
      const int64_t count = row.count / n + (i < row.count % n ? 1 : 0);
      loads.Add(CrossDirectly(from, to, options, budget, &replicas[(turn + i) % n]).value(), count);
    }
    turn += row.count;
  }
  return loads.BusiestNs();
}

int RunAll() {
  Io io{std::cin, std::cout, std::cerr};
  constexpr auto kLeft = TextTable::Align::kLeft;
  constexpr auto kRight = TextTable::Align::kRight;
  TextTable table({{"rules", kLeft},
                   {"from", kLeft},
                   {"to", kLeft},
                   {"together", kRight},
                   {"bound", kRight},
                   {"alone", kRight},
                   {"round robin", kRight},
                   {"planned in, s", kRight}});
  for (const Case& c : kCases) {
    ProblemFlags flags;
    flags.model = fmt::format("examples/models/{}.json", c.model);
    flags.rules = fmt::format("examples/models/{}.json", c.rules);
    flags.mesh = c.mesh;
    flags.to_mesh = c.to_mesh;
    flags.topology = "nvlink=8";
    const auto begin = std::chrono::steady_clock::now();
    const absl::StatusOr<ModelPlan> together = PlanModel(flags, io, /*together=*/true);
    if (!together.ok()) return Fail(io, together.status());
    TrafficOf(*together);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    const absl::StatusOr<ModelPlan> alone = PlanModel(flags, io);
    if (!alone.ok()) return Fail(io, alone.status());
    Loads loads(alone->rows[0].plan.options().topology);
    for (const ModelRow& row : alone->rows) loads.Add(row.plan, row.count);
    table.AddRow({c.rules, c.mesh, c.to_mesh, TimeText(together->together->busiest_ns),
                  TimeText(together->together->bound_ns), TimeText(loads.BusiestNs()),
                  TimeText(RoundRobinNs(*alone)), fmt::format("{:.1f}", seconds.count())});
  }
  fmt::print("{}", table.ToString());
  return 0;
}

}  // namespace
}  // namespace meshift::cli

int main() { return meshift::cli::RunAll(); }
