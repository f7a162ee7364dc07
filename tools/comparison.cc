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
#include "tests/peer_cases.h"
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

Made by `./bazelw run //tools:comparison > docs/comparison.md`. The peers' plans were measured by
running them on a 2x2 mesh (`tests/data/README.md`): PyTorch 2.15.0 DTensor, *greedy* (its default)
and *graph* (its search), *flat* with flattened groups made by hand beforehand; and the programs
that JAX 0.10.2 compiles with *xla* and with Shardy's own planner. Meshift's are its default plans
for the same cases, proven by the verifier and run on the local engine.

Each row has the cases in which the peer was measured, and the figures of both sides for these
cases. The tensors are small, so with default costs Meshift sends more bytes to avoid the start of a
collective; *by bytes* are its plans with start-up costs near zero, as for large tensors.
*Collectives*: mean per plan. *Bytes*: the bytes that the worst rank sends divided by the bound (no
algorithm has a lower average: `docs/design.md`, "Lower bound"), as the geometric mean over the
cases in which bytes must move; *at most*: the worst case. *Wrong*: cases with wrong results. *Same
sum*: cases in which several groups compute the same sum, so that its copies may differ.

)";

// The sums of one side of a comparison.
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
  std::string ToString() const {
    return fmt::format("{:.2f} | {:.2f} | {:.1f} | {} | {}",
                       static_cast<double>(collectives) / static_cast<double>(cases),
                       std::exp(log_ratio / static_cast<double>(moving)), worst, wrong, duplicated);
  }
};

struct Row {
  Side peer;
  Side ours;
  Side by_bytes;            // for our plans too
  int64_t fewer_bytes = 0;  // cases in which we send fewer than the peer
  // Cases in which we send more, by the first that applies: the peer's plan has more collectives;
  // it computes a sum several times; neither.
  int64_t more_bytes_in_fewer = 0;
  int64_t more_bytes_in_one_sum = 0;
  int64_t more_bytes = 0;
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
      row.fewer_bytes += total.bytes_sent < peer.bytes_sent ? 1 : 0;
      if (total.bytes_sent <= peer.bytes_sent) continue;
      ++(total.collectives < peer.collectives ? row.more_bytes_in_fewer
         : peer.is_duplicated                 ? row.more_bytes_in_one_sum
                                              : row.more_bytes);
    }
  }
  fmt::print("{}", kHead);
  fmt::print(
      "| planner | cases | collectives | bytes : bound | at most | wrong | same sum |\n"
      "| --- | --- | --- | --- | --- | --- | --- |\n");
  for (const auto& [name, row] : rows) {
    fmt::print("| {} | {} | {} |\n", name, row.peer.cases, row.peer.ToString());
    fmt::print("| Meshift, same cases | {} | {} |\n", row.ours.cases, row.ours.ToString());
    fmt::print("| Meshift, by bytes | {} | {} |\n", row.by_bytes.cases, row.by_bytes.ToString());
  }
  fmt::print(
      "\nAmong the peers' correct plans: how many send more bytes than Meshift's, and how many "
      "send fewer:\n"
      "with more collectives, else with the same sum computed by several groups, else neither. The "
      "tensors\n"
      "are small: to start a collective costs more than the bytes.\n\n"
      "| planner | more | fewer, more collectives | fewer, same sum | fewer, neither |\n"
      "| --- | --- | --- | --- | --- |\n");
  for (const auto& [name, row] : rows) {
    fmt::print("| {} | {} | {} | {} | {} |\n", name, row.fewer_bytes, row.more_bytes_in_fewer,
               row.more_bytes_in_one_sum, row.more_bytes);
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
