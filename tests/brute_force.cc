#include "tests/brute_force.h"

#include <fmt/format.h>

#include <functional>
#include <optional>
#include <queue>

#include "base/checked_math.h"
#include "base/status.h"
#include "base/status_macros.h"
#include "planner/cost.h"
#include "planner/edges.h"
#include "planner/reduction_choice.h"

namespace meshift {
namespace {

struct Reached {
  PlanCost cost;
  State before;
  StepOp op = StepOp::kSlice;
  bool settled = false;
};

}  // namespace

std::string PlanCost::ToString() const {
  return fmt::format("{} ns, {} B, {} steps", est_ns, bytes_sent, steps);
}

PlanCost CostOf(const Plan& plan) {
  return {plan.total().est_ns, plan.total().bytes_sent, static_cast<int64_t>(plan.steps().size())};
}

absl::StatusOr<BestPath> BruteForce::Find(const Sharding& from, const Sharding& to,
                                          const PlannerOptions& options) {
  MESHIFT_ASSIGN_OR_RETURN(const Problem problem, Problem::Create(from, to, options.reduce_dtype));
  MESHIFT_ASSIGN_OR_RETURN(const ReductionChoice choice, ChooseReductions(problem, options));
  CostOptions sizes{.ordered = choice.ordered};
  if (options.ragged_sizes == RaggedSizes::kMax) sizes.ragged = StepSizes::kPadded;
  if (options.ragged_sizes == RaggedSizes::kSum) sizes.ragged = StepSizes::kExact;
  const CostModel model(problem, options.topology, sizes);
  std::string key = fmt::format("{} {} {}", from.mesh().ToString(), from.tensor().ToString(),
                                options.topology.ToString());
  for (int i = 0; i < problem.num_stages(); ++i) key += fmt::format(" {}", Name(problem.dtype(i)));
  if (key != measured_for_) {
    measured_.clear();
    measured_for_ = std::move(key);
  }
  const Edges edges(problem, model, choice.rules);

  absl::flat_hash_map<State, Reached> reached;
  using Entry = std::pair<PlanCost, State>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> open;
  reached[problem.source()] = {};
  open.push({{}, problem.source()});
  while (!open.empty()) {
    const auto [cost, state] = open.top();
    open.pop();
    Reached& at = reached[state];
    if (at.settled) continue;
    at.settled = true;
    if (state == problem.target()) break;
    edges.ForEach(state, [&, cost = cost, state = state](StepOp op, DimMask, const State& next) {
      if (!edges.MayHold(next)) return;
      const auto [measured, is_new] = measured_.try_emplace(EdgeKey{op, state, next});
      if (is_new) {
        const Traffic traffic = model.Measure(op, state, next);
        measured->second = {traffic.est_ns, traffic.bytes_sent};
      }
      const PlanCost then{SaturatingAdd(cost.est_ns, measured->second.first),
                          SaturatingAdd(cost.bytes_sent, measured->second.second), cost.steps + 1};
      const auto [there, first] = reached.try_emplace(next);
      if (!first && there->second.cost <= then) return;
      there->second = {then, state, op, false};
      open.push({then, next});
    });
  }
  const auto found = reached.find(problem.target());
  if (found == reached.end() || !found->second.settled) {
    return Internal("no path from {} to {}", from.ToString(), to.ToString());
  }
  BestPath best{found->second.cost, "", static_cast<int64_t>(reached.size())};
  for (State state = problem.target(); !(state == problem.source());
       state = reached[state].before) {
    best.text = fmt::format("{} -> {}{}{}", Name(reached[state].op),
                            problem.ToSharding(state).PlacementsText(),
                            best.text.empty() ? "" : "; ", best.text);
  }
  return best;
}

}  // namespace meshift
