// The search on graphs given as lists of edges between states, which are numbered by their code.
#include "planner/search/best_first.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"

namespace meshift {
namespace {

State StateOf(int number) { return State::FromCode(static_cast<uint64_t>(number), 0); }

struct Edge {
  int from;
  int to;
  int64_t cost;
  int64_t least;  // lower bound that the search sees before it prices the edge
  StepOp op = StepOp::kExchange;
};

// Runs from state 0 to `target`, with h = 0.
class Graph {
 public:
  explicit Graph(std::vector<Edge> edges) : edges_(std::move(edges)) {}

  std::optional<int64_t> Run(int target, int64_t limit = INT64_MAX) {
    BestFirst<int64_t> search(StateOf(0), 0);
    const auto found = search.Run(
        StateOf(target), [&](int64_t estimate) { return estimate > limit; },
        [&](int node) {
          ++expanded;
          const int from = static_cast<int>(search.node(node).state.code());
          for (const Edge& edge : edges_) {
            if (edge.from != from) continue;
            const int64_t estimate = search.node(node).cost + edge.least;
            search.Push({node, edge.op, StateOf(edge.to), estimate});
          }
        },
        [&](const BestFirst<int64_t>::Step& step) {
          ++priced;
          const auto from = static_cast<int>(search.node(step.from).state.code());
          const auto edge = std::find_if(edges_.begin(), edges_.end(), [&](const Edge& e) {
            return e.from == from && StateOf(e.to) == step.to && e.op == step.op;
          });
          const int64_t cost = search.node(step.from).cost + edge->cost;
          search.Reach(step, cost, cost,
                       [&](int known) { return step.op < search.node(known).op; });
        });
    if (!found) return std::nullopt;
    path.clear();
    for (const auto& node : search.PathTo(*found)) {
      path.push_back(static_cast<int>(node.state.code()));
      ops.push_back(node.op);
    }
    return search.node(*found).cost;
  }

  std::vector<int> path;
  std::vector<StepOp> ops;
  int expanded = 0;
  int priced = 0;

 private:
  const std::vector<Edge> edges_;
};

TEST(BestFirstTest, FindsTheCheapestPathWhereTheFirstOneIsNot) {
  Graph graph({{0, 3, 10, 1}, {0, 1, 2, 2}, {1, 2, 2, 2}, {2, 3, 2, 2}});
  EXPECT_EQ(graph.Run(3), 6);
  EXPECT_EQ(graph.path, (std::vector<int>{1, 2, 3}));
}

TEST(BestFirstTest, PricesOnlyStepsWhoseTurnComes) {
  std::vector<Edge> edges = {{0, 1, 3, 3}};
  for (int i = 2; i < 100; ++i) edges.push_back({0, i, 5, 4});
  Graph graph(edges);
  EXPECT_EQ(graph.Run(1), 3);
  EXPECT_EQ(graph.priced, 1);
  EXPECT_EQ(graph.expanded, 1);
}

TEST(BestFirstTest, ReachesANodeAgainMoreCheaply) {
  // The edge of cost 5 has the lower bound 1, so that state 1 is reached by it first.
  Graph graph({{0, 1, 5, 1}, {0, 2, 1, 1}, {2, 1, 2, 2}, {1, 3, 1, 1}});
  EXPECT_EQ(graph.Run(3), 4);
  EXPECT_EQ(graph.path, (std::vector<int>{2, 1, 3}));
}

TEST(BestFirstTest, SaysThatThereIsNoPath) {
  EXPECT_EQ(Graph({{0, 1, 1, 1}}).Run(2), std::nullopt);
  EXPECT_EQ(Graph({{0, 1, 3, 3}}).Run(1, /*limit=*/2), std::nullopt);
  EXPECT_EQ(Graph({{0, 1, 3, 3}}).Run(1, /*limit=*/3), 3);
}

TEST(BestFirstTest, TheSourceIsATarget) {
  Graph graph({{0, 1, 1, 1}});
  EXPECT_EQ(graph.Run(0), 0);
  EXPECT_TRUE(graph.path.empty());
}

TEST(BestFirstTest, OfEqualWaysTheOneThatIsPreferred) {
  Graph graph({{0, 1, 3, 3, StepOp::kExchange}, {0, 1, 3, 3, StepOp::kAllGather}});
  EXPECT_EQ(graph.Run(1), 3);
  EXPECT_EQ(graph.ops, std::vector<StepOp>{StepOp::kAllGather});
}

}  // namespace
}  // namespace meshift
