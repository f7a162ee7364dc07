// What a search has yet to look at, by the least that a whole path through it costs. Internal to
// it.
//
//   OpenQueue open;
//   open.push({.estimate = cost, .state = state, .node = index});
//   open.top();      // of the least estimate; of equal ones, a function of their fields alone
#ifndef MESHIFT_PLANNER_SEARCH_SEARCH_QUEUE_H_
#define MESHIFT_PLANNER_SEARCH_SEARCH_QUEUE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>

#include "absl/container/inlined_vector.h"
#include "planner/cost/path_cost.h"
#include "planner/graph/state.h"
#include "planner/plan/plan.h"

namespace meshift {

// Steps wait unpriced: most never have their turn.
struct OpenEntry {
  enum class Kind : uint8_t {
    kStep,         // from node `node` to `state`
    kBoundedStep,  // likewise, with the closest bound that there is
    kReached,      // node `node`: the collectives that finish come next
    kFinished,     // only longer ways are left
  };
  PathCost estimate;
  State state;
  int node = 0;
  Kind kind = Kind::kStep;
  StepOp op = StepOp::kSlice;
  int64_t least_ns = 0;  // of the step
  int64_t rest_ns = 0;   // of what follows
  int64_t cost_ns = 0;   // of the path to `node` when this was put here

  bool operator>(const OpenEntry& other) const {
    if (!(estimate == other.estimate)) return other.estimate < estimate;
    if (!(state == other.state)) return state > other.state;
    return std::tie(kind, op, node) > std::tie(other.kind, other.op, other.node);
  }
};

// A heap of numbers of entries, each beside the first of what it is ordered by: entries are large,
// and stay where they are.
class OpenQueue {
 public:
  bool empty() const { return heap_.empty(); }
  size_t size() const { return heap_.size(); }
  const OpenEntry& top() const { return entries_[heap_.front().entry]; }
  void push(const OpenEntry& entry) {
    uint32_t number = 0;
    if (free_.empty()) {
      number = static_cast<uint32_t>(entries_.size());
      entries_.push_back(entry);
    } else {
      number = free_.back();
      free_.pop_back();
      entries_[number] = entry;
    }
    heap_.push_back({entry.estimate.ns, number});
    std::push_heap(heap_.begin(), heap_.end(), Later{this});
  }
  void pop() {
    free_.push_back(heap_.front().entry);
    std::pop_heap(heap_.begin(), heap_.end(), Later{this});
    heap_.pop_back();
  }

 private:
  struct Item {
    int64_t ns;
    uint32_t entry;
  };
  struct Later {
    const OpenQueue* queue;
    bool operator()(const Item& a, const Item& b) const {
      return a.ns != b.ns ? a.ns > b.ns : queue->entries_[a.entry] > queue->entries_[b.entry];
    }
  };

  absl::InlinedVector<Item, 32> heap_;
  absl::InlinedVector<OpenEntry, 32> entries_;
  absl::InlinedVector<uint32_t, 32> free_;  // numbers of no entry
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_SEARCH_SEARCH_QUEUE_H_
