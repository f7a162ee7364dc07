// Bounds from below the time on the links between domains: links(s) of heuristic.h.
//
//   DomainBound domains(problem, model, layouts);
//   domains.LeastNs(state, /*reducible=*/0);    // ns on links at full speed
//
// Ranks of one domain may copy from each other over fast links. Items that none of them holds must
// enter over the links of the level above. A domain is a box of mesh coordinates, and each mesh dim
// cuts one tensor dim. So the items that its ranks hold together are a product over tensor dims,
// and so are those that they need.
//
// A few sample domains give a lower bound for all: those at the first or last coordinates of the
// mesh dims outside. Items are elements, or pairs of f4e2m1. Memory grows with the states asked
// for. The arguments must outlive the bound. Internal to the search; not safe for concurrent use.
#ifndef MESHIFT_PLANNER_SEARCH_DOMAIN_BOUND_H_
#define MESHIFT_PLANNER_SEARCH_DOMAIN_BOUND_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "placement/cuts.h"
#include "planner/cost/cost.h"
#include "planner/graph/state.h"
#include "planner/search/layouts.h"

namespace meshift {

class DomainBound {
 public:
  // Without domains, or where they are not boxes of coordinates, the bound is 0.
  DomainBound(const Problem& problem, const CostModel& model, Layouts& layouts);

  bool empty() const { return domains_.empty(); }
  // `reducible`: the mesh dims that must still be reduced in the state. If one of them leads out of
  // a domain, contributions to all that the domain needs are outside.
  int64_t LeastNs(const State& state, DimMask reducible) {
    const auto [at, is_new] = known_.try_emplace(state, 0);
    if (is_new) at->second = ComputeLeastNs(state, reducible);
    return at->second;
  }

 private:
  using List = CutTable::List;
  // Ranks, as the coordinates [first, last] of each mesh dim.
  struct Domain {
    std::array<int64_t, kMaxStateDims> first = {};
    std::array<int64_t, kMaxStateDims> last = {};
    DimMask outside = 0;       // mesh dims that it does not have all of
    int64_t links = 1;         // bytes per us into all its ranks together
    int64_t reduce_links = 1;  // the same in a reduction
    int64_t parts = 1;         // contributions that stay partial
    int64_t wanted = 1;        // items of one contribution that its ranks need together
    std::array<PieceList, kMaxTensorRank> target = {};  // by list
  };

  void AddDomains(int level);
  // The union of the pieces of tensor dim k on the domain's ranks: disjoint, ascending.
  PieceList PiecesOf(List list, int k, const Domain& domain) const;
  // Adds those that `cuts` make of `whole`. `cuts`: lists, each the one before and one more cut.
  void AddPieces(absl::Span<const List> cuts, const Interval& whole, const Domain& domain,
                 PieceList* pieces) const;
  // By domain: the items along list i that its ranks hold and need.
  const int64_t* Kept(int i, List list);
  int64_t ComputeLeastNs(const State& state, DimMask reducible);

  const Problem& problem_;
  const CostModel& model_;
  Layouts& layouts_;
  std::vector<Domain> domains_;
  std::vector<int> at_;  // index in kept_, by list and i; -1: not known
  std::vector<int64_t> kept_;
  absl::flat_hash_map<State, int64_t> known_;
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_SEARCH_DOMAIN_BOUND_H_
