// Best-first search over states: the cheapest path for any cost that only grows along a path.
//
//   BestFirst<PathCost> search(source, PathCost{});
//   const std::optional<int> found = search.Run(
//       target,
//       [&](const PathCost& estimate) { return limit < estimate; },       // done
//       [&](int node) { ... search.Push({node, op, next, estimate}) ... },     // expand
//       [&](const Step& step) { ... search.Reach(step, cost, estimate, is_preferred) ... });  //
//       price
//   const Path path = search.PathTo(*found);
//
// A node is a state with the cheapest way there that is known. Nodes, and the best step out of each
// that was expanded, wait in one queue, by their estimates: the least that a whole path through
// them may cost. A step is priced when its turn comes, which for most it never does. With estimates
// that are never too high, the first path to the target that has its turn is the cheapest. With a
// consistent heuristic no node is expanded twice; where one is reached more cheaply after all, it
// is expanded again.
//
// Deterministic: of equal estimates, steps come before nodes, and then it is a matter of states and
// ops. Not safe for concurrent use.
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
    int64_t rest_ns = 0;  // what the caller knows of the way on from `to`
  };
  struct Node {
    State state;
    Cost cost;        // of the cheapest path to the state so far
    int before = -1;  // index of the node that it comes from
    StepOp op = StepOp::kSlice;
  };

  BestFirst(const State& source, const Cost& cost) {
    nodes_.push_back({{source, cost}});
    numbers_.emplace(source, 0);
    Wait(0, cost, /*is_step=*/false);
  }

  const Node& node(int index) const { return nodes_[index].node; }
  int num_nodes() const { return static_cast<int>(nodes_.size()); }
  // -1: no way there is known.
  int Find(const State& state) const {
    const auto at = numbers_.find(state);
    return at == numbers_.end() ? -1 : at->second;
  }

  // Has a step out of the node that is being expanded wait.
  void Push(const Step& step) { nodes_[step.from].steps.push_back(step); }
  // A step leads to its state at `cost`. `estimate`: of a whole path on from there, at least.
  // `is_preferred(index)`: whether the way by this step counts rather than the one to that node
  // that is known, and costs the same. Returns the state's node; -1 where a way there is known that
  // is cheaper.
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
      Wait(index, estimate, /*is_step=*/false);
    }
    return index;
  }

  // Takes what waits in order, until `target` has its turn: then its node's index. nullopt: nothing
  // is left, or `done(estimate)` says that no path of such an estimate is looked for.
  template <typename Done, typename Expand, typename Price>
  std::optional<int> Run(const State& target, const Done& done, const Expand& expand,
                         const Price& price) {
    while (!heap_.empty()) {
      const Cost estimate = heap_.front().estimate;  // done() may push more
      if (done(estimate)) return std::nullopt;
      const Waiting next = heap_.front();
      std::pop_heap(heap_.begin(), heap_.end(), Later());
      heap_.pop_back();
      if (nodes_[next.node].version != next.version) continue;  // a cheaper way there was found
      std::vector<Step>& steps = nodes_[next.node].steps;
      if (next.is_step) {
        const Step step = steps.back();
        steps.pop_back();
        WaitForStep(next.node);
        price(step);
      } else if (next.state == target) {
        return next.node;
      } else {
        steps.clear();
        expand(next.node);
        std::sort(nodes_[next.node].steps.begin(), nodes_[next.node].steps.end(), Worse());
        WaitForStep(next.node);
      }
    }
    return std::nullopt;
  }

  // The nodes of the path to this one, the source's left out.
  std::vector<Node> PathTo(int index) const {
    std::vector<Node> path;
    for (; node(index).before >= 0; index = node(index).before) path.push_back(node(index));
    std::reverse(path.begin(), path.end());
    return path;
  }

 private:
  struct Entry {
    Node node;
    uint32_t version = 0;          // of its cost
    std::vector<Step> steps = {};  // that wait; the best one comes last
  };
  // The best of a node's steps; or the node itself.
  struct Waiting {
    Cost estimate;
    State state;  // of the node, or where the step leads
    int node = 0;
    uint32_t version = 0;  // of the node, when this was put here
    StepOp op = StepOp::kSlice;
    bool is_step = false;
  };
  struct Worse {
    bool operator()(const Step& a, const Step& b) const {
      if (!(a.estimate == b.estimate)) return b.estimate < a.estimate;
      return std::tuple(a.to, a.op) > std::tuple(b.to, b.op);
    }
  };
  struct Later {
    bool operator()(const Waiting& a, const Waiting& b) const {
      if (!(a.estimate == b.estimate)) return b.estimate < a.estimate;
      return std::tuple(!a.is_step, a.state, a.op, a.node) >
             std::tuple(!b.is_step, b.state, b.op, b.node);
    }
  };
  void Wait(int index, const Cost& estimate, bool is_step) {
    const Entry& entry = nodes_[index];
    const State& state = is_step ? entry.steps.back().to : entry.node.state;
    const StepOp op = is_step ? entry.steps.back().op : entry.node.op;
    heap_.push_back({estimate, state, index, entry.version, op, is_step});
    std::push_heap(heap_.begin(), heap_.end(), Later());
  }
  void WaitForStep(int index) {
    const std::vector<Step>& steps = nodes_[index].steps;
    if (!steps.empty()) Wait(index, steps.back().estimate, /*is_step=*/true);
  }

  std::vector<Entry> nodes_;
  absl::flat_hash_map<State, int> numbers_;
  std::vector<Waiting> heap_;
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_SEARCH_BEST_FIRST_H_
