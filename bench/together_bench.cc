// Planning the tensors of an update together, against two other ways (planner/together/together.h):
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
#include <utility>
#include <vector>

#include "base/text_table.h"
#include "base/work_budget.h"
#include "cli/io.h"
#include "cli/model_plan.h"
#include "cli/model_traffic.h"
#include "cli/problem.h"
#include "cli/text.h"
#include "meshift/placement.h"
#include "meshift/sharding.h"
#include "planner/inter_mesh/direct_crossing.h"
#include "planner/together/links.h"
#include "planner/together/plan_loads.h"

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

// Plans, and how many tensors have each.
struct Plans {
  std::vector<Plan> plans;
  std::vector<int64_t> counts;

  void Add(Plan plan, int64_t count) {
    plans.push_back(std::move(plan));
    counts.push_back(count);
  }
  int64_t BusiestNs() const {
    WorkBudget budget(INT64_MAX);
    const Links links = LinksOf(plans, plans[0].options().topology, budget).value();
    PlanLoads loads(plans, links, budget);
    for (size_t i = 0; i < plans.size(); ++i) loads.Add(i, counts[i]);
    return loads.BusiestNs();
  }
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
  Plans all;
  int64_t turn = 0;
  for (const ModelRow& row : alone.rows) {
    const Sharding& from = row.plan.from();
    const Sharding& to = row.plan.to();
    if (from.mesh() == to.mesh() || from.HasPartial() || from.dtype() != to.dtype()) {
      all.Add(row.plan, row.count);
      continue;
    }
    const std::vector<Sharding> replicas = ReplicasOf(from);
    const auto n = static_cast<int64_t>(replicas.size());
    for (int64_t i = 0; i < std::min(n, row.count); ++i) {
      WorkBudget budget(options.max_work);
      const int64_t count = row.count / n + (i < row.count % n ? 1 : 0);
      all.Add(CrossDirectly(from, to, options, budget, &replicas[(turn + i) % n]).value(), count);
    }
    turn += row.count;
  }
  return all.BusiestNs();
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
    const absl::StatusOr<ModelPlan> together = PlanModel(flags, io, {.together = true});
    if (!together.ok()) return Fail(io, together.status());
    TrafficOf(*together);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    const absl::StatusOr<ModelPlan> alone = PlanModel(flags, io);
    if (!alone.ok()) return Fail(io, alone.status());
    Plans apart;
    for (const ModelRow& row : alone->rows) apart.Add(row.plan, row.count);
    table.AddRow({c.rules, c.mesh, c.to_mesh, TimeText(together->together->busiest_ns),
                  TimeText(together->together->bound_ns), TimeText(apart.BusiestNs()),
                  TimeText(RoundRobinNs(*alone)), fmt::format("{:.1f}", seconds.count())});
  }
  fmt::print("{}", table.ToString());
  return 0;
}

}  // namespace
}  // namespace meshift::cli

int main() { return meshift::cli::RunAll(); }
