// h(s): a time that no path from state s to the target goes below.
//
//   Heuristic heuristic(problem, model, rules, successors);
//   heuristic.LeastNs(view);
//
// Notation: c(s, t) is the price of a step from s to t; alpha the least start of a collective, its
// hops left aside; phi(i) the least that a collective takes for its start and i items, of the least
// size that the value has (casts), over a worst rank's own link (CostModel::LeastCollectiveNs;
// LeastReductionNs where something is yet to be reduced). phi is concave, and phi(0) = alpha. A
// state is finished where local steps alone may lead to the target (Successors::IsFinished).
//
//   h(s) = 0                                              s is the target
//          min(f, C({}))                                  finished
//          C(A) - alpha + phi(max(lack, average, links))  else
//
// f: what the last local step copies at least; half of the target where there are casts.
// A(s): mesh dims that the target's values must come across: those that are yet to be reduced, and
//   those that cut a tensor dim which they do not cut in the target.
// C(A): of groups over mesh dims that have all of A among them, one at least, the sum of alpha and
//   a group's least hops (GroupTimes::LeastLatencyNs), where it is least. Only allowed groups.
// lack(s): items of the target that some sample rank does not hold (cut_table.h); 0 where something
//   is yet to be reduced, of which nobody holds a value.
// average(s) = floor(E C max(p - 1 + n - r, 0) / R): E elements on R ranks; C is the product of the
//   sizes of the mesh dims that are partial throughout, n of those that are replicated in the
//   target, p of those that are yet to be reduced. r is 1 where p > 1, for the one that will have
//   the sum, else the product of the sizes of the mesh dims replicated in s.
// links(s): what must come into sets of whole domains (link_bound.h); 0 where p > 1.
// Where a mesh dim is partial in the target alone, lack, average and links count as 0, and A has
// only what is yet to be reduced: a mask makes a value of nothing.
//
// Lemma. h(s) <= c(s, t) + h(t) for every step, so that h is consistent and, with h(target) = 0,
// no more than the least rest of a path.
//   Let s be not finished, and the step a collective over the mesh dims G. Its price is at least
//   the least hops of G and phi(m), where m is what its worst rank gets; step_bounds.h has that for
//   each kind, and step_bounds_test.cc shows it. Values come across a mesh dim only by a group over
//   it, so A(s) is within the union of G and A(t), and C(A(s)) <= alpha + hops(G) + C(A(t)). And
//   phi(a + b) + alpha <= phi(a) + phi(b), since phi is concave. So it is enough that m is at least
//   what each of lack, average and links falls by. lack: no sample lacks less by more than it gets.
//   average: the worst rank gets no less than the average, which is in messages per element over R.
//     A reduction of p1 of p1 p2 contributions takes p2 (p1 - 1). The last one, whose result is
//     scattered among r groups that do the same, takes (p - 1) r, no less than p - 1 + r - 1; an
//     all_reduce takes 2 (p - 1) r, no less than p - 1 + p r - 1. Any other step takes as many as
//     holders become more.
//   links: as average, of what comes into a set of domains.
//   If t is finished, every rank has what it wants of the target: A, lack, average and links are 0.
//   A slice or a cast lets no rank hold more, adds no value, and takes no dim out of A. A mask is
//   made only where something is yet to be reduced, or for the target: it makes p larger, and may
//   take a dim out of the cuts, but then it is yet to be reduced.
//   Let s be finished. A step to the target copies f at least; one to a finished state changes
//   nothing; to any other, h(t) >= C({}).
#ifndef MESHIFT_PLANNER_SEARCH_HEURISTIC_H_
#define MESHIFT_PLANNER_SEARCH_HEURISTIC_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "planner/cost/cost.h"
#include "planner/graph/state.h"
#include "planner/search/layouts.h"
#include "planner/search/link_bound.h"
#include "planner/search/successors.h"

namespace meshift {

// Keeps references to all that it is made of. Not safe for concurrent use.
class Heuristic {
 public:
  Heuristic(const Problem& problem, const CostModel& model, Successors& successors);

  // ns. Of more than `enough_ns` need not be said how much more.
  int64_t LeastNs(const Successor& next, int64_t enough_ns = INT64_MAX) {
    return LeastNs(next.state, next.reducible, next.product.wanted, next.product.across, enough_ns);
  }
  int64_t LeastNs(const View& view) {
    return LeastNs(view.state, view.reducible, layouts_.Wanted(view.lists),
                   layouts_.Across(view.lists), INT64_MAX);
  }
  // Of the start of a collective.
  int64_t LeastStartNs() const { return starts_ns_[0]; }
  // A(s).
  DimMask Across(const View& view) const {
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
  std::unique_ptr<LinkBound> links_;  // null where it has nothing to say
  int64_t least_finish_ns_ = 0;
  int64_t elements_ = 1;            // E C
  int64_t holders_ = 1;             // n
  std::vector<int64_t> starts_ns_;  // C(A), by A
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_SEARCH_HEURISTIC_H_
