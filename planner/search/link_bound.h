// Bounds from below the time on the links between domains, for topologies of several levels:
// links(s) of heuristic.h.
//
//   LinkBound links(problem, model, layouts);
//   links.LeastNs(state);      // no path from the state to the target takes less time on links
//
// Data for one rank may come over the fastest links. Data that no rank of a domain holds must come
// over the links between domains. So the bound examines sets of ranks that consist of whole
// domains: ranks that differ only in the innermost mesh dims. The items that such a set holds, and
// those that it needs, are products over tensor dims, as for boxes. The first set represents all
// sets of its size.
//
// Items are elements, or pairs of f4e2m1. Memory grows with the states asked for. The arguments of
// the constructor must outlive the bound. Internal to the search; not safe for concurrent use.
#ifndef MESHIFT_PLANNER_SEARCH_LINK_BOUND_H_
#define MESHIFT_PLANNER_SEARCH_LINK_BOUND_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "placement/cuts.h"
#include "planner/cost/cost.h"
#include "planner/graph/state.h"
#include "planner/search/layouts.h"

namespace meshift {

class LinkBound {
 public:
  // Whether the bound applies: two mesh dims or more, ranks in row-major order, more than one
  // domain, no ragged cut, and a tensor dim that may be cut. The caller must not use it if a mesh
  // dim is partial in the target alone.
  static bool Applies(const Problem& problem, const CostModel& model, const Layouts& layouts);

  // REQUIRES: Applies().
  LinkBound(const Problem& problem, const CostModel& model, Layouts& layouts);

  // Whether LeastNs() of some state may exceed the time of a single rank's items on its own link.
  bool MayExceedOwnLink() const;

  // A lower bound of the ns that the collectives of a path from the state to the target wait for
  // links. REQUIRES: nothing must still be reduced in the state.
  int64_t LeastNs(const State& state) {
    const auto [it, is_new] = known_.try_emplace(state.code(), 0);
    if (is_new) it->second = ComputeLeastNs(state);
    return it->second;
  }

 private:
  using List = CutTable::List;
  using Cuts = absl::InlinedVector<int, kMaxStateDims>;  // mesh dims, outermost first
  // Items that enter a set take ns = items * num / den, rounded down.
  struct Links {
    __int128 num = 0;
    __int128 den = 1;
  };
  // The union of some ranks' pieces of a tensor dim: `items` of the indices [0, end).
  struct Span {
    int64_t end = 0;
    int64_t items = 0;
  };
  // The first ranks of the mesh: on each mesh dim d, their coordinates are below
  // coordinate_limit[d].
  struct Ranks {
    std::array<int64_t, kMaxStateDims> coordinate_limit = {};
    Links links;
    int64_t parts = 1;                             // contributions, on dims that stay partial
    int64_t wanted = 0;                            // items that they hold together in the target
    std::array<Span, kMaxTensorRank> target = {};  // by list
  };

  void AddSets(int level);
  void AddSet(int level, int dim, int64_t run);
  Cuts CutsOf(List list) const;
  Span SpanOf(int i, const Cuts& cuts, const Ranks& ranks) const;
  int64_t ItemsOf(const Cuts& cuts, size_t i, int64_t length, const Ranks& ranks) const;
  // By set: the most items of tensor dim i that its ranks hold both under the list and in the
  // target.
  const int64_t* Kept(int i, List list);
  int64_t ComputeLeastNs(const State& state);
  int64_t LinksNs(const Ranks& set, int64_t items) const;

  const Problem& problem_;
  const CostModel& model_;
  Layouts& layouts_;
  int64_t uncut_ = 1;  // items along the tensor dims that are never cut
  std::vector<Ranks> sets_;
  std::vector<int> at_;  // index in kept_, by list of cuts and i; -1: not known
  std::vector<int64_t> kept_;
  absl::flat_hash_map<uint64_t, int64_t> known_;  // by code of the state
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_SEARCH_LINK_BOUND_H_
