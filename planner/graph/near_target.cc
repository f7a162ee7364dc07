// The states from which few steps lead to the target.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "planner/graph/cut_changes.h"
#include "planner/graph/transitions.h"

namespace meshift {

using transitions_internal::ForEachPlacing;
using transitions_internal::ForEachSubset;
using transitions_internal::ForEachSuffix;

namespace {

// Of a state that is kept in a list and a set: mostly its memory.
constexpr int64_t kKeepWork = 64;
constexpr int64_t kCompared = 16;  // states that are compared in one unit of work

DimMask Replicated(const Problem& problem, const State& state) {
  DimMask replicated = 0;
  for (int d = 0; d < problem.num_dims(); ++d) {
    if (state.IsReplicate(d)) replicated |= DimMask{1} << d;
  }
  return replicated;
}

}  // namespace

bool ExchangesLeadAnywhere(const Problem& problem) {
  constexpr int64_t kMostStates = 3000;
  const auto num_lists = static_cast<int64_t>(problem.candidate_dims().size());
  // Of k mesh dims out of n, every order of them, cut off by where the next tensor dim begins.
  int64_t states = 0;
  int64_t orders = 1;
  const int n = problem.num_dims();
  for (int k = 0; k <= n && states <= kMostStates; ++k) {
    states += orders;
    orders = orders * (n - k) * (k + num_lists) / (k + 1);
  }
  return states <= kMostStates;
}

FinishedStates LocallyFinished(const Problem& problem) {
  FinishedStates found = {problem.target()};
  absl::InlinedVector<bool, 8> sliced = {false};  // whether those before a slice to it were found
  const auto add = [&](const State& state, bool is_sliced = false) {
    if (!problem.Charge(kKeepWork + std::ssize(found) / kCompared)) return;
    if (std::find(found.begin(), found.end(), state) != found.end()) return;
    found.push_back(state);
    sliced.push_back(is_sliced);
  };
  for (size_t next = 0; next < found.size(); ++next) {
    const State state = found[next];
    const CutLists cuts = problem.Cuts(state);
    // Before a slice; two slices are one.
    if (!sliced[next]) {
      ForEachSuffix(problem, cuts, [&](const CutLists& kept, DimMask) {
        add(problem.WithCuts(state, kept), /*is_sliced=*/true);
      });
    }
    // Before a cast.
    if (state.stage() > 0) {
      const State before = state.AtStage(state.stage() - 1);
      if (problem.MayCast(before)) add(before);
    }
    // Before a mask of one mesh dim, from R or from an innermost cut.
    if (state.stage() + 1 < problem.num_stages()) continue;
    for (int d = 0; d < problem.num_dims(); ++d) {
      if (!state.IsPartial(d) || problem.source().IsPartial(d)) continue;
      State base = state;
      base.SetReplicate(d);
      add(base);
      if (state.op(d) == ReduceOp::kAvg) continue;
      ForEachPlacing(problem, cuts, DimMask{1} << d, /*towards_target=*/false,
                     [&](const CutLists& c) { add(problem.WithCuts(base, c)); });
    }
  }
  return found;
}

std::vector<State> NearTarget(const Problem& problem, bool towards_target) {
  const State& target = problem.target();
  const CutLists cuts = problem.Cuts(target);
  std::vector<State> near = {target};
  absl::flat_hash_set<State> seen = {target};
  const auto add = [&](const State& state) {
    if (problem.Charge(kKeepWork) && seen.insert(state).second) near.push_back(state);
  };
  // Before an all_gather.
  ForEachSubset(Replicated(problem, target), [&](DimMask dims) {
    ForEachPlacing(problem, cuts, dims, towards_target,
                   [&](const CutLists& c) { add(problem.WithCuts(target, c)); });
  });
  // Before a slice, an all_to_all or a permutation.
  ForEachSuffix(problem, cuts, [&](const CutLists& kept, DimMask dims) {
    add(problem.WithCuts(target, kept));
    ForEachPlacing(problem, kept, dims, towards_target,
                   [&](const CutLists& c) { add(problem.WithCuts(target, c)); });
  });
  for (const State& state : NearTargetInPartials(problem, towards_target)) add(state);
  return near;
}

std::vector<State> NearTargetInPartials(const Problem& problem, bool towards_target) {
  const State& target = problem.target();
  const CutLists cuts = problem.Cuts(target);
  const DimMask replicated = Replicated(problem, target);
  std::vector<State> near;
  const auto add = [&](const State& state) {
    // Each is compared with those before.
    if (!problem.Charge(kKeepWork + std::ssize(near) / kCompared)) return;
    if (std::find(near.begin(), near.end(), state) == near.end()) near.push_back(state);
  };
  // Before a reduction, whose result the target holds whole or scattered.
  DimMask reduced = 0;
  for (int d = 0; d < problem.num_dims(); ++d) {
    if (problem.source().IsPartial(d) && !target.IsPartial(d)) reduced |= DimMask{1} << d;
  }
  const auto with_partials = [&](State state, DimMask dims) {
    for (int d = 0; d < problem.num_dims(); ++d) {
      if (HasDim(dims, d)) state.SetPartial(d, problem.source().op(d));
    }
    add(state);
  };
  ForEachSubset(reduced & replicated, [&](DimMask dims) { with_partials(target, dims); });
  ForEachSuffix(problem, cuts, [&](const CutLists& kept, DimMask dims) {
    if ((dims & ~reduced) != 0) return;
    with_partials(problem.WithCuts(target, kept), dims);
  });
  // Before masks: any placement of the masked dims that a mask accepts.
  DimMask masked = 0;
  for (int d = 0; d < problem.num_dims(); ++d) {
    if (target.IsPartial(d) && !problem.source().IsPartial(d)) masked |= DimMask{1} << d;
  }
  ForEachSubset(masked, [&](DimMask dims) {
    State base = target;
    for (int d = 0; d < problem.num_dims(); ++d) {
      if (HasDim(dims, d)) base.SetReplicate(d);
    }
    add(base);
    for (int d = 0; d < problem.num_dims(); ++d) {
      if (HasDim(dims, d) && target.op(d) == ReduceOp::kAvg) return;
    }
    ForEachPlacing(problem, cuts, dims, towards_target,
                   [&](const CutLists& c) { add(problem.WithCuts(base, c)); });
  });
  return near;
}

}  // namespace meshift
