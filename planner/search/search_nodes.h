// The states that a search has met, each with the cheapest way there that is known.
//
//   SearchNodes nodes;
//   bool is_new = false;
//   const int index = nodes.FindOrAdd(state, &is_new);
//   nodes[index].cost = cost;
//
// Nodes keep their indices, but not their addresses: FindOrAdd() ends every reference to one.
// Not safe for concurrent use.
#ifndef MESHIFT_PLANNER_SEARCH_SEARCH_NODES_H_
#define MESHIFT_PLANNER_SEARCH_SEARCH_NODES_H_

#include <algorithm>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "planner/cost/cost.h"
#include "planner/cost/path_cost.h"
#include "planner/graph/state.h"
#include "planner/plan/plan.h"

namespace meshift {

struct SearchNode {
  State state;
  PathCost cost;    // of the cheapest path to the state so far
  int before = -1;  // index of the node that it comes from
  StepOp op = StepOp::kSlice;
  bool done = false;            // no cheaper path will be found
  bool finishes_known = false;  // the collectives that finish were offered
  Traffic traffic = {};         // of that step
};

class SearchNodes {
 public:
  SearchNodes() : slots_(kFirst, -1) {}

  SearchNode& operator[](int index) { return nodes_[index]; }
  // -1: not met.
  int Find(const State& state) const { return slots_[SlotOf(state)]; }
  int FindOrAdd(const State& state, bool* is_new) {
    size_t slot = SlotOf(state);
    *is_new = slots_[slot] < 0;
    if (!*is_new) return slots_[slot];
    if (2 * (nodes_.size() + 1) > slots_.size()) {
      Grow();
      slot = SlotOf(state);
    }
    slots_[slot] = static_cast<int>(nodes_.size());
    nodes_.emplace_back();
    nodes_.back().state = state;
    return slots_[slot];
  }

 private:
  static constexpr size_t kFirst = 32;

  size_t SlotOf(const State& state) const {
    const uint64_t mixed =
        (state.code() + static_cast<uint64_t>(state.stage())) * 0x9E3779B97F4A7C15u;
    size_t slot = static_cast<size_t>(mixed >> 32) & (slots_.size() - 1);
    while (slots_[slot] >= 0 && !(nodes_[slots_[slot]].state == state)) {
      slot = (slot + 1) & (slots_.size() - 1);
    }
    return slot;
  }
  void Grow() {
    slots_.assign(4 * slots_.size(), -1);
    for (size_t i = 0; i < nodes_.size(); ++i)
      slots_[SlotOf(nodes_[i].state)] = static_cast<int>(i);
  }

  absl::InlinedVector<int, kFirst> slots_;  // open addressing; -1: free
  absl::InlinedVector<SearchNode, kFirst / 2> nodes_;
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_SEARCH_SEARCH_NODES_H_
