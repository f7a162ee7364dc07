// Prints a table that compares Meshift's plans with the measured plans of other planners
// (tests/data/README.md):
//
//   ./bazelw run //tools:comparison > docs/comparison.md
#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshift/planner.h"
#include "meshift/status.h"
#include "meshift/topology.h"
#include "meshift/verifier.h"
#include "tests/other_planners_cases.h"
#include "tests/plan_runner.h"

namespace meshift {
namespace {

// A topology in which bytes dominate the cost, as for large tensors.
Topology BytesAlone() {
  const TopologyConstants constants{.collective_latency_ns = 100,
                                    .message_latency_ns = 0,
                                    .copy_latency_ns = 0,
                                    .copy_bandwidth_bytes_per_us = 1000000};
  return Topology::Create({{"wire", 0, 1, 0}}, constants).value();
}

constexpr const char* kHead =
    R"(# Comparison with the plans of other planners

`./bazelw run //tools:comparison > docs/comparison.md` makes this page. The peers' plans were
measured on a 2x2 mesh ([tests/data](../tests/data/README.md)): PyTorch 2.15.0 DTensor's *greedy*
planner (its default) and *graph* search, *flat* with flattened groups made by hand; JAX 0.10.2 by
*xla* and by *shardy*. Meshift's plans are proven, and run on the local engine.

A cell has the peer's figure, Meshift's for the same cases, and Meshift's *by bytes*: where starts
cost next to nothing, as for large tensors. *Collectives*: mean of a plan. *Bytes*: geometric mean
of the worst rank's bytes over the [lower bound](design.md#lower-bound). *Wrong*: cases with wrong
data. *Same sum*: cases in which several groups compute one sum, so that its copies may differ.
*More*, *fewer*: the peer's right plans that send more or fewer bytes than Meshift's. The tensors
are small: a start costs more than the bytes.

)";

// One side of a comparison.
struct Side {
  int64_t cases = 0;
  int64_t collectives = 0;
  int64_t moving = 0;
  double log_ratio = 0;
  double worst = 0;
  int64_t wrong = 0;
  int64_t duplicated = 0;

  void Add(int64_t of_collectives, int64_t bytes, int64_t bound, bool is_wrong, bool duplicates) {
    ++cases;
    collectives += of_collectives;
    wrong += is_wrong ? 1 : 0;
    duplicated += duplicates ? 1 : 0;
    if (bound == 0) return;
    ++moving;
    // A plan that sends nothing although bytes must move is wrong.
    const double ratio =
        static_cast<double>(bytes > bound ? bytes : bound) / static_cast<double>(bound);
    log_ratio += std::log(ratio);
    worst = ratio > worst ? ratio : worst;
  }
  double mean_collectives() const {
    return static_cast<double>(collectives) / static_cast<double>(cases);
  }
  double mean_ratio() const { return std::exp(log_ratio / static_cast<double>(moving)); }
};

struct Row {
  Side peer;
  Side ours;
  Side by_bytes;  // ours too
  int64_t peer_sends_more = 0;
  int64_t peer_sends_fewer = 0;
};

// The result of proving and running one of our plans.
struct Judged {
  Plan plan;
  bool is_right = false;

  void AddTo(Side* side, int64_t bound) const {
    side->Add(plan.total().collectives, plan.total().bytes_sent, bound, !is_right,
              plan.kept() < Reproducibility::kReplicas);
  }
};

absl::StatusOr<Judged> PlanAndRun(const PeerCase& one, const PlannerOptions& options,
                                  PlanRunner& runner) {
  MESHIFT_ASSIGN_OR_RETURN(Plan plan, MakePlan(one.from, one.to, options));
  MESHIFT_ASSIGN_OR_RETURN(const RunOutcome outcome, runner.Run(plan));
  const bool is_right = Verify(plan).ok() && outcome.ok();
  return Judged{std::move(plan), is_right};
}

absl::Status PrintComparison() {
  absl::StatusOr<std::vector<PeerCase>> cases = ReadPeerCases("tests/data/live_2x2.json");
  if (!cases.ok()) return cases.status();
  std::map<std::string, Row> rows;
  std::map<std::string, std::unique_ptr<PlanRunner>> runners;
  for (const PeerCase& one : *cases) {
    std::unique_ptr<PlanRunner>& runner = runners[one.from.mesh().ToString()];
    if (runner == nullptr) runner = std::make_unique<PlanRunner>(one.from.mesh());
    absl::StatusOr<Judged> plan = PlanAndRun(one, {}, *runner);
    if (!plan.ok()) return plan.status();
    absl::StatusOr<Judged> by_bytes = PlanAndRun(one, {.topology = BytesAlone()}, *runner);
    if (!by_bytes.ok()) return by_bytes.status();
    const int64_t bound = plan->plan.lower_bound().bytes_sent;
    const PlanTotals& total = plan->plan.total();
    for (const auto& [name, peer] : one.peers) {
      Row& row = rows[name];
      row.peer.Add(peer.collectives, peer.bytes_sent, bound, peer.is_wrong, peer.is_duplicated);
      plan->AddTo(&row.ours, bound);
      by_bytes->AddTo(&row.by_bytes, bound);
      if (peer.is_wrong) continue;
      row.peer_sends_more += peer.bytes_sent > total.bytes_sent ? 1 : 0;
      row.peer_sends_fewer += peer.bytes_sent < total.bytes_sent ? 1 : 0;
    }
  }
  fmt::print("{}", kHead);
  fmt::print(
      "| planner | cases | collectives | bytes : bound | at most | wrong | same sum | more | fewer "
      "|\n|---|---|---|---|---|---|---|---|---|\n");
  for (const auto& [name, row] : rows) {
    const Side& peer = row.peer;
    const Side& ours = row.ours;
    const Side& by_bytes = row.by_bytes;
    fmt::print("| {} | {} | {:.2f}, {:.2f}, {:.2f} | {:.2f}, {:.2f}, {:.2f} ", name, peer.cases,
               peer.mean_collectives(), ours.mean_collectives(), by_bytes.mean_collectives(),
               peer.mean_ratio(), ours.mean_ratio(), by_bytes.mean_ratio());
    fmt::print("| {:.1f}, {:.1f}, {:.1f} | {}, {}, {} | {}, {}, {} | {} | {} |\n", peer.worst,
               ours.worst, by_bytes.worst, peer.wrong, ours.wrong, by_bytes.wrong, peer.duplicated,
               ours.duplicated, by_bytes.duplicated, row.peer_sends_more, row.peer_sends_fewer);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace meshift

int main() {
  const absl::Status status = meshift::PrintComparison();
  if (status.ok()) return 0;
  fmt::print(stderr, "{}\n", status.ToString());
  return 1;
}
