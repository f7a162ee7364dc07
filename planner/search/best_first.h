// Best-first search: finds the cheapest path between two states, if costs only grow along a path.
//
//   BestFirst<PathCost> search(source, PathCost{});
//   const std::optional<int> found = search.Run(
//       target,
//       /*done=*/[&](const PathCost& estimate) { return limit < estimate; },
//       /*expand=*/[&](int node) { search.Push({node, op, next, estimate}); },
//       /*price=*/[&](const Step& step) { search.Reach(step, cost, estimate, is_preferred); });
//   for (const auto& node : search.PathTo(*found)) Use(node.op, node.state);
//
// A node is a state with the cheapest known path to it. One queue holds nodes, and the best step
// out of each expanded node, by their estimates: lower bounds of the cost of a whole path through
// them. A step is priced when it reaches the front, which most never do. With estimates that are
// never too high, the target's path is the cheapest when the target reaches the front. A node that
// a cheaper or preferred path reaches after its expansion is expanded again. With a consistent
// heuristic no cheaper path comes later.
//
// The result is deterministic: of equal estimates, steps come before nodes, then state, op and the
// node's index decide. Cost needs <, == and a default value. Memory grows with the nodes and the
// steps pushed; `done` is the only limit. Internal to the planner; not safe for concurrent use.
#ifndef MESHIFT_PLANNER_SEARCH_BEST_FIRST_H_
#define MESHIFT_PLANNER_SEARCH_BEST_FIRST_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "meshift/plan.h"
#include "planner/graph/state.h"

namespace meshift {

template <typename Cost>
class BestFirst {
 public:
  // A step out of a node.
  struct Step {
    int from = 0;
    StepOp op = StepOp::kSlice;
    State to;
    Cost estimate = {};
    int64_t rest_ns = 0;  // the caller's: a lower bound of the time from `to` to the target
  };
  struct Node {
    State state;
    Cost cost;        // of the cheapest path to the state so far
    int before = -1;  // index of the predecessor; -1: this is the source
    StepOp op = StepOp::kSlice;
  };

  BestFirst(const State& source, const Cost& cost) {
    nodes_.push_back({{source, cost}});
    numbers_.emplace(source, 0);
    Enqueue(0, cost, /*is_step=*/false);
  }

  const Node& node(int index) const { return nodes_[index].node; }
  int num_nodes() const { return static_cast<int>(nodes_.size()); }
  // -1: no path to the state is known.
  int Find(const State& state) const {
    const auto at = numbers_.find(state);
    return at == numbers_.end() ? -1 : at->second;
  }

  // Queues a step out of the node that is being expanded.
  void Push(const Step& step) { nodes_[step.from].steps.push_back(step); }
  // Records that `step` reaches its state at `cost`. `estimate`: a lower bound of the cost of a
  // whole path through it. `is_preferred(index)`: breaks a tie; true if this path replaces the
  // known one of equal cost to node `index`. Returns the state's node; -1: a known path is cheaper.
  template <typename IsPreferred>
  int Reach(const Step& step, const Cost& cost, const Cost& estimate,
            const IsPreferred& is_preferred) {
    const auto [at, is_new] = numbers_.try_emplace(step.to, static_cast<int>(nodes_.size()));
    const int index = at->second;
    if (is_new) nodes_.push_back({{step.to, cost, step.from, step.op}});
    if (node(index).cost < cost) return -1;
    if (is_new || cost < node(index).cost || is_preferred(index)) {
      Entry& entry = nodes_[index];
      entry.node = {step.to, cost, step.from, step.op};
      ++entry.version;
      Enqueue(index, estimate, /*is_step=*/false);
    }
    return index;
  }

  // Pops the queue until `target` is at the front, and returns its node's index. nullopt: the queue
  // is empty, or `done(estimate)` returned true.
  template <typename Done, typename Expand, typename Price>
  std::optional<int> Run(const State& target, const Done& done, const Expand& expand,
                         const Price& price) {
    while (!heap_.empty()) {
      const Cost estimate = heap_.front().estimate;  // done() may push more
      if (done(estimate)) return std::nullopt;
      const QueueEntry next = heap_.front();
      std::pop_heap(heap_.begin(), heap_.end(), ComesLater());
      heap_.pop_back();
      if (nodes_[next.node].version != next.version) continue;  // a cheaper path was found
      std::vector<Step>& steps = nodes_[next.node].steps;
      if (next.is_step) {
        const Step step = steps.back();
        steps.pop_back();
        EnqueueStep(next.node);
        price(step);
      } else if (next.state == target) {
        return next.node;
      } else {
        steps.clear();
        expand(next.node);
        std::sort(nodes_[next.node].steps.begin(), nodes_[next.node].steps.end(), Worse());
        EnqueueStep(next.node);
      }
    }
    return std::nullopt;
  }

  // The nodes of the path to this one, without the source.
  std::vector<Node> PathTo(int index) const {
    std::vector<Node> path;
    for (; node(index).before >= 0; index = node(index).before) path.push_back(node(index));
    std::reverse(path.begin(), path.end());
    return path;
  }

 private:
  struct Entry {
    Node node;
    uint32_t version = 0;          // counts changes of `node`
    std::vector<Step> steps = {};  // not priced yet; the best one comes last
  };
  // An entry of the queue: a node, or the best of its steps.
  struct QueueEntry {
    Cost estimate;
    State state;  // of the node, or where the step leads
    int node = 0;
    uint32_t version = 0;  // of the node, when it was queued
    StepOp op = StepOp::kSlice;
    bool is_step = false;
  };
  struct Worse {
    bool operator()(const Step& a, const Step& b) const {
      if (!(a.estimate == b.estimate)) return b.estimate < a.estimate;
      return std::tuple(a.to, a.op) > std::tuple(b.to, b.op);
    }
  };
  struct ComesLater {
    bool operator()(const QueueEntry& a, const QueueEntry& b) const {
      if (!(a.estimate == b.estimate)) return b.estimate < a.estimate;
      return std::tuple(!a.is_step, a.state, a.op, a.node) >
             std::tuple(!b.is_step, b.state, b.op, b.node);
    }
  };
  void Enqueue(int index, const Cost& estimate, bool is_step) {
    const Entry& entry = nodes_[index];
    const State& state = is_step ? entry.steps.back().to : entry.node.state;
    const StepOp op = is_step ? entry.steps.back().op : entry.node.op;
    heap_.push_back({estimate, state, index, entry.version, op, is_step});
    std::push_heap(heap_.begin(), heap_.end(), ComesLater());
  }
  void EnqueueStep(int index) {
    const std::vector<Step>& steps = nodes_[index].steps;
    if (!steps.empty()) Enqueue(index, steps.back().estimate, /*is_step=*/true);
  }

  std::vector<Entry> nodes_;
  absl::flat_hash_map<State, int> numbers_;
  std::vector<QueueEntry> heap_;
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_SEARCH_BEST_FIRST_H_
