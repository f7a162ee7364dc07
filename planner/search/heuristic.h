// h(s): a time that no path from state s to the target goes below.
//
//   Heuristic heuristic(problem, model, rules, successors);
//   heuristic.LeastNs(view);
//
// Notation: c(s, t) is the price of a step from s to t; alpha the start of a collective, lambda the
// least latency of a hop, T(b) the time of b bytes of a worst rank over its own link (CostModel).
//
//   h(s) = 0                                    s is the target
//          min(f, alpha + lambda)               local steps alone may lead to the target (f: the
//                                               least that the last of them copies)
//          k alpha + max(k, ceil(log2 |A|)) lambda + max(T(lack), T(average), links)    else
//
// A(s): mesh dims that the target's values must come across: those that are yet to be reduced, and
//   those that cut a tensor dim which they do not cut in the target. |A| is the product of their
//   sizes; k = 1, or the number of groups that cover A, where only some groups are allowed.
// lack(s): items of the target that some sample rank does not hold (cut_table.h); 0 where something
//   is yet to be reduced, of which nobody holds a value.
// average(s) = floor(E C max(g - 1 + n - r, 0) / R): E elements, of which C classes stay apart
//   (dims that stay partial), on R ranks. g contributions to each are yet to be added; n ranks of a
//   class want an element, and r hold it: 1 where g > 1, for the one that will have the sum, else
//   the product of the sizes of the replicated mesh dims.
// links(s): what must come into sets of whole domains (link_bound.h), where g = 1.
// Where a mesh dim is partial in the target alone, only what is yet to be reduced counts: a mask
//   makes a value of nothing.
//
// Lemma. h(s) <= c(s, t) + h(t) for every step, so that h is consistent and, with h(target) = 0,
// no more than the least rest of a path.
//   Let s be not finished, and the step a collective over the mesh dims G. Its price is at least
//   alpha + max(1, ceil(log2 |G|)) lambda + T(m), where m is what its worst rank gets. Values come
//   across a mesh dim only by a group over it, so A(s) is within the union of G and A(t), and
//   ceil(log2) of a product is at most the sum of those of its factors. So it is enough that m is
//   at least what each of lack and average falls by: T(a + b) <= T(a) + T(b), and m is a whole
//   number. lack: no sample lacks less by more than it gets. average: the worst rank gets no less
//   than the average, which is in messages per element over R.
//     A reduction of g1 of g1 g2 contributions takes g2 (g1 - 1). The last one, whose result is
//     scattered among r groups that do the same, takes (g - 1) r, no less than g - 1 + r - 1; an
//     all_reduce takes 2 (g - 1) r, no less than g - 1 + g r - 1. Any other step takes as many as
//     holders become more.
//   A slice or a cast lets no rank hold more, adds no value, and takes no dim out of A. A mask
//   makes g larger, and may take a dim out of the cuts, but then it is yet to be reduced. Let s be
//   finished. A path of local steps copies f at last; any other has a collective.
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
  int64_t LeastStartNs() const { return StartsNs(0); }
  // A(s).
  DimMask Across(const View& view) const {
    return (successors_.masks_target() ? 0 : layouts_.Across(view.lists)) | view.reducible;
  }

 private:
  int64_t LeastNs(const State& state, DimMask reducible, const CutTable::Samples& wanted,
                  DimMask across, int64_t enough_ns);
  int64_t StartsNs(DimMask across) const;
  int64_t AverageItems(const State& state, DimMask reducible) const;
  void CountGroups();

  const Problem& problem_;
  const CostModel& model_;
  const Successors& successors_;
  Layouts& layouts_;
  std::unique_ptr<LinkBound> links_;  // null where it has nothing to say
  int64_t hop_ns_ = 0;
  int64_t least_finish_ns_ = 0;
  int64_t elements_ = 1;  // E C
  int64_t holders_ = 1;   // n
  // Of groups that the model allows, those that cover these mesh dims, at least. Empty: it allows
  // all groups.
  std::vector<int> groups_;
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_SEARCH_HEURISTIC_H_
