// What must cross the edges of domains, on a topology of several levels. Internal to the search.
//
//   LinkBound links(problem, model, layouts);
//   links.LeastNs(state);      // the bytes of no path from there to the target take less
//
// What a rank lacks may come over the fastest links, but what all ranks of a domain lack together
// comes over those between domains. So sets of ranks are looked at that are whole domains: those
// that differ in the innermost mesh dims. What they have together, and want, is a product over
// tensor dims, as boxes are. Of such sets the first stands for all.
//
// The problem, the model and the layouts must outlive it. Not safe for concurrent use.
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
  // Whether there is something to know: ranks are in row-major order, and there are domains that
  // such sets of ranks are made of; nothing is ragged. No bound where a mesh dim is partial in the
  // target alone.
  static bool Knows(const Problem& problem, const CostModel& model, const Layouts& layouts);

  // REQUIRES: Knows().
  LinkBound(const Problem& problem, const CostModel& model, Layouts& layouts);

  // Whether a domain's edge may count for more than what any rank lacks.
  bool MaySayMore() const;

  // Of all collectives from the state on, of what they send.
  int64_t LeastNs(const State& state) {
    const auto [it, is_new] = known_.try_emplace(state.code(), 0);
    if (is_new) it->second = LeastNsAnew(state);
    return it->second;
  }

 private:
  using List = CutTable::List;
  using Cuts = absl::InlinedVector<int, kMaxStateDims>;  // mesh dims, outermost first
  // What crosses the edge of a set takes ns = items * num / den, rounded down.
  struct Links {
    __int128 num = 0;
    __int128 den = 1;
  };
  // What some ranks have together of a tensor dim: items of [0, end).
  struct Span {
    int64_t end = 0;
    int64_t items = 0;
  };
  // The first ranks of the mesh: so many coordinates of each mesh dim.
  struct Ranks {
    std::array<int64_t, kMaxStateDims> some = {};
    Links links;
    int64_t parts = 1;                             // contributions of these ranks that stay apart
    int64_t wanted = 0;                            // items that they have together in the target
    std::array<Span, kMaxTensorRank> target = {};  // by list
  };

  void AddSets(int level);
  void AddSet(int level, int dim, int64_t run);
  Cuts CutsOf(List list) const;
  Span SpanOf(int i, const Cuts& cuts, const Ranks& ranks) const;
  int64_t ItemsOf(const Cuts& cuts, size_t i, int64_t length, const Ranks& ranks) const;
  // By set: items of tensor dim i that its ranks have under the list, and in the target.
  const int64_t* Kept(int i, List list);
  int64_t LeastNsAnew(const State& state);
  int64_t LinksNs(const Ranks& set, int64_t items) const;

  const Problem& problem_;
  const CostModel& model_;
  Layouts& layouts_;
  int64_t uncut_ = 1;  // items along the tensor dims that nothing ever cuts
  std::vector<Ranks> sets_;
  std::vector<int> at_;  // where in kept_, by list of cuts and i; -1: not known
  std::vector<int64_t> kept_;
  absl::flat_hash_map<uint64_t, int64_t> known_;  // by code of the state
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_SEARCH_LINK_BOUND_H_
