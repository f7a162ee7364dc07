#include "planner/search/edges.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "placement/dtype.h"
#include "placement/sharding.h"
#include "planner/plan/quantity.h"
#include "planner/search/on_the_way.h"

namespace meshift {
namespace {

bool ArePartialAlike(const Problem& problem, const State& a, const State& b) {
  for (int d = 0; d < problem.num_dims(); ++d) {
    if (a.IsPartial(d) != b.IsPartial(d)) return false;
    if (a.IsPartial(d) && a.op(d) != b.op(d)) return false;
  }
  return true;
}

}  // namespace

Edges::Edges(const Problem& problem, const CostModel& model, const TransitionRules& rules)
    : problem_(problem),
      model_(model),
      rules_(rules),
      anywhere_(ExchangesLeadAnywhere(problem)),
      max_items_(std::max(problem.MaxItems(problem.source()), problem.MaxItems(problem.target()))),
      max_bytes_(problem.MaxValueBytes()) {
  const FinishedStates finished = LocallyFinished(problem);
  finished_ = {finished.begin(), finished.end()};
  absl::flat_hash_set<State> seen;
  const auto add = [&](const State& state) {
    const State end = state.AtStage(problem.target().stage());
    if (seen.insert(end).second) ends_.push_back(end);
  };
  if (anywhere_) return;
  for (const State& state : NearTarget(problem, rules.towards_target)) add(state);
  for (const State& state : finished) add(state);
}

bool Edges::MayHold(const State& state) const {
  return problem_.MaxItems(state) <= max_items_ && problem_.MaxBytes(state) <= max_bytes_ &&
         problem_.IsAligned(state) && MayBeOnTheWay(problem_, state);
}

std::string Edges::WhyNotHeld(const State& state) const {
  if (MayHold(state)) return "";
  const std::string value =
      fmt::format("{} on the way, in {},", problem_.ToSharding(state).PlacementsText(),
                  Name(problem_.dtype(state.stage())));
  const std::string bytes = ExactBytesText(problem_.MaxBytes(state));
  if (problem_.MaxBytes(state) > max_bytes_) {
    const int64_t of_ends =
        std::max(problem_.MaxBytes(problem_.source()), problem_.MaxBytes(problem_.target()));
    return fmt::format(
        "{} takes {}, more than the {} ({})", value, bytes,
        max_bytes_ > of_ends ? "source in the dtype of reductions" : "larger of source and target",
        ExactBytesText(max_bytes_));
  }
  if (problem_.MaxItems(state) > max_items_) {
    // Too many items in bytes that are not: they were cast, and so are single elements.
    return fmt::format("{} has {} elements ({}), more than the larger of source and target ({})",
                       value, problem_.MaxItems(state), bytes, max_items_);
  }
  if (const std::optional<Pieces> pieces = TooManyPieces(problem_, state)) {
    return fmt::format(
        "{} ({}) cuts tensor dim {} into {} pieces, which are not alike and more than {}", value,
        bytes, pieces->tensor_dim, pieces->count, kMaxUnlikePieces);
  }
  return fmt::format("{} ({}) is cut inside a byte", value, bytes);
}

void Edges::ForEach(const State& state, const TransitionFn& emit) const {
  ForEachExchange(state,
                  [&](DimMask dims, const State& next) { emit(StepOp::kExchange, dims, next); });
  ForEachTransition(problem_, state, rules_, [&](StepOp op, DimMask dims, const State& next) {
    if (op == StepOp::kExchange && model_.IsChosenGather(state, next)) return;
    emit(op, dims, next);
  });
}

void Edges::ForEachToTarget(const State& state, absl::FunctionRef<void(StepOp op)> emit) const {
  const State& target = problem_.target();
  if (const std::optional<StepOp> op = CollectiveBetween(problem_, state, target, rules_)) {
    if (*op != StepOp::kExchange) emit(*op);
    if (ArePartialAlike(problem_, state, target) && !model_.IsChosenGather(state, target)) {
      emit(StepOp::kExchange);
    }
  }
  if (finished_.contains(state)) {
    ForEachLocalTransition(problem_, state, rules_, [&](StepOp op, DimMask, const State& next) {
      if (next == target) emit(op);
    });
  }
}

void Edges::ForEachExchange(const State& state,
                            absl::FunctionRef<void(DimMask dims, const State& next)> emit) const {
  const auto emit_to = [&](DimMask dims, const State& next) {
    if (!model_.IsChosenGather(state, next)) emit(dims, next);
  };
  if (anywhere_) return meshift::ForEachExchange(problem_, state, emit_to);
  for (const State& end : ends_) {
    const State next = end.AtStage(state.stage());
    if (!ArePartialAlike(problem_, state, next)) continue;
    if (!CollectiveBetween(problem_, state, next, rules_)) continue;
    emit_to(MovingDims(problem_, state, next), next);
  }
}

}  // namespace meshift
