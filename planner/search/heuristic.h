// The heuristic h(s): a lower bound of the time of any path from state s to the target.
//
//   Heuristic heuristic(problem, model, successors);
//   heuristic.LeastNs(successors.layouts().Decode(problem.source()));    // ns
//
// Notation
//   c(s, t)  The price of the step from s to t.
//   phi(i)   A lower bound of the time in which a collective brings i items to one rank over the
//            rank's own link, without hops: CostModel::LeastCollectiveNs, or LeastReductionNs while
//            a reduction remains. An item counts with its size in the narrowest dtype of the value,
//            and is an element or, for f4e2m1, two. phi is concave.
//   alpha    phi(0): the least start time of a collective.
//   hops(G)  GroupTimes::LeastLatencyNs of the groups over the mesh dims G.
//   finished A state from which local steps alone may lead to the target
//            (Successors::IsFinished). In some problems all states count as finished.
//
//   h(s) = 0                                                 if s is the target
//          min(f, C({}))                                     if s is finished
//          C(A) - alpha + phi(max(deficit, average, links))  otherwise
//
//   f        The least copy time of the last local step. With casts, that of half the target.
//   A(s)     Mesh dims that data must cross: those that must still be reduced, those that cut a
//            tensor dim which they do not cut in the target, and those of owner cuts (cut_table.h).
//            Cuts do not count if one is ragged or a target box may be empty (CutTable::Across).
//   C(A)     The minimum over all sets of allowed groups (one group or more) whose mesh dims
//            together contain A: the sum of alpha and hops over the groups.
//   deficit(s)  The largest number of target items that a sample rank (cut_table.h) does not hold.
//            0 while a reduction remains, since then no rank holds a value.
//   average(s) = floor(E k max(p - 1 + n - r, 0) / R), for E items on R ranks. Products of mesh
//            dim sizes: k over the dims that stay partial, n over those replicated in the target,
//            p over those that must still be reduced. r is 1 if p > 1 (one rank will hold the sum),
//            otherwise the product over the dims replicated in s.
//
//   links(s) The time that the links between domains need at least (domain_bound.h), as the items
//            that take as long on a rank's own link.
//
// If a mesh dim is partial in the target alone, deficit, average and links count as 0, and A has
// only the mesh dims that must still be reduced: a mask makes contributions without any transfer.
//
// Lemma (consistency). h(s) <= c(s, t) + h(t) for every step. With h(target) = 0, h is admissible.
//   Case 1: s is not finished, and the step is a collective over the mesh dims G. Let m be the
//   items that its worst rank receives. Its price is at least phi(m) plus the least hops of G;
//   step_bounds.h has this bound for each kind of step, and step_bounds_test.cc tests it.
//     Data crosses a mesh dim only in a group over it, so A(s) is in the union of G and A(t), and
//     C(A(s)) <= alpha + hops(G) + C(A(t)). Since phi is concave, phi(a + b) + alpha <= phi(a) +
//     phi(b). It remains to show that deficit, average and links each decrease by at most m:
//     deficit: the deficit of a sample decreases by at most the items that it receives.
//     average: the worst rank receives at least the mean over ranks. Count messages per element. A
//       reduction of p1 out of p1 p2 contributions takes p2 (p1 - 1). The last reduction, if its
//       result is scattered among r groups that do the same, takes (p - 1) r >= p - 1 + r - 1; if
//       it is an all_reduce, 2 (p - 1) r >= p - 1 + p r - 1. Any other step takes one per new
//       holder.
//     links: domain_bound.cc, with m as the items that take as long as the step's own.
//     If t is finished, every rank holds its part of the target, so A is empty, and deficit,
//     average and links are 0.
//   Case 2: s is not finished, and the step is local. After a slice or a cast no rank holds more,
//   no value is added, and no dim leaves A: owner cuts stay owner cuts, and other cuts stay where
//   they are. A mask is made only while a reduction remains, or for the target. It increases p; a
//   dim that it takes from the cuts must then be reduced.
//   Case 3: s is finished. A step to the target takes at least f. A step to a finished state leaves
//   h as it is. For any other step h(t) >= C({}). If all states are finished, this is the only
//   case.
#ifndef MESHIFT_PLANNER_SEARCH_HEURISTIC_H_
#define MESHIFT_PLANNER_SEARCH_HEURISTIC_H_

#include <cstdint>
#include <vector>

#include "planner/cost/cost.h"
#include "planner/graph/state.h"
#include "planner/search/domain_bound.h"
#include "planner/search/layouts.h"
#include "planner/search/successors.h"

namespace meshift {

// The arguments must outlive the heuristic. All results are in ns. Internal to the planner; not
// safe for concurrent use.
class Heuristic {
 public:
  Heuristic(const Problem& problem, const CostModel& model, Successors& successors);

  // h in ns. A result above `enough_ns` may be any lower bound above it.
  int64_t LeastNs(const Successor& next, int64_t enough_ns = INT64_MAX) {
    return LeastNs(next.state, next.reducible, next.product.wanted, next.product.across, enough_ns);
  }
  int64_t LeastNs(const DecodedState& view) {
    return LeastNs(view.state, view.reducible, layouts_.Wanted(view.lists),
                   layouts_.Across(view.lists), INT64_MAX);
  }
  // C({}): the least start time of a collective, with hops.
  int64_t LeastStartNs() const { return starts_ns_[0]; }
  // A(s).
  DimMask Across(const DecodedState& view) const {
    return (successors_.masks_target() ? 0 : layouts_.Across(view.lists)) | view.reducible;
  }

 private:
  int64_t LeastNs(const State& state, DimMask reducible, const CutTable::Samples& wanted,
                  DimMask across, int64_t enough_ns);
  int64_t AverageItems(const State& state, DimMask reducible) const;
  void CoverDims();

  const Problem& problem_;
  const CostModel& model_;
  const Successors& successors_;
  Layouts& layouts_;
  DomainBound domains_;
  int64_t least_finish_ns_ = 0;
  int64_t elements_ = 1;            // E k
  int64_t holders_ = 1;             // n
  std::vector<int64_t> starts_ns_;  // C(A), by A
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_SEARCH_HEURISTIC_H_
