// Compares the search with Dijkstra's algorithm over all successors, without any bound.
#include "planner/search/search.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "meshift/topology.h"
#include "planner/cost/cost.h"
#include "planner/graph/state.h"
#include "planner/graph/transitions.h"
#include "planner/search/heuristic.h"
#include "planner/search/successors.h"
#include "testing/small_world.h"

namespace meshift {
namespace {

using Cost = std::tuple<int64_t, int64_t, int>;  // ns, bytes, steps

std::optional<Cost> CostOf(const Problem& problem, const CostModel& model,
                           const std::optional<Path>& path) {
  if (!path) return std::nullopt;
  Cost cost;
  State before = problem.source();
  for (const Move& move : path->moves) {
    const Traffic traffic = model.Measure(move.op, before, move.after);
    std::get<0>(cost) += traffic.est_ns;
    std::get<1>(cost) += traffic.bytes_sent;
    ++std::get<2>(cost);
    before = move.after;
  }
  if (!(before == problem.target())) return std::nullopt;
  return cost;
}

std::optional<Cost> LeastCost(const Problem& problem, const CostModel& model,
                              const TransitionRules& rules) {
  Successors successors(problem, model, rules);
  std::map<State, Cost> costs = {{problem.source(), {}}};
  std::set<std::pair<Cost, State>> open = {{{}, problem.source()}};
  while (!open.empty()) {
    const auto [cost, state] = *open.begin();
    open.erase(open.begin());
    if (state == problem.target()) return cost;
    successors.ForEach(state, [&, cost = cost, state = state](const Successor& next) {
      const Traffic traffic = model.Measure(next.op, state, next.state);
      const Cost sum = {std::get<0>(cost) + traffic.est_ns, std::get<1>(cost) + traffic.bytes_sent,
                        std::get<2>(cost) + 1};
      const auto [it, is_new] = costs.try_emplace(next.state, sum);
      if (!is_new && it->second <= sum) return;
      if (!is_new) open.erase({it->second, next.state});
      it->second = sum;
      open.insert({sum, next.state});
    });
  }
  return std::nullopt;
}

class RandomProblems {
 public:
  explicit RandomProblems(uint64_t seed) : random_(seed) {}

  int64_t Below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }

  // A sharding with random placements and orders of cuts; Sharding::Create() may refuse it.
  absl::StatusOr<Sharding> Make(const DeviceMesh& mesh, const TensorType& tensor, bool partial,
                                ReduceOp op, bool ragged) {
    const int64_t rank = static_cast<int64_t>(tensor.shape.size());
    std::vector<Placement> placements;
    std::vector<Cuts> cuts(tensor.shape.size());
    for (int d = 0; d < mesh.NumDims(); ++d) {
      const int64_t kind = Below(partial ? 3 : 2);
      if (kind == 1 && rank > 0) {
        const int64_t k = Below(rank);
        placements.push_back(Placement::Shard(static_cast<int>(k)));
        Cuts& list = cuts[k];
        list.insert(list.begin() + Below(static_cast<int64_t>(list.size()) + 1), d);
      } else {
        placements.push_back(kind == 2 ? Placement::Partial(op) : Placement::Replicate());
      }
    }
    for (size_t k = 0; ragged && k < cuts.size(); ++k) {
      if (cuts[k].empty()) continue;
      placements[cuts[k][0]] = Placement::RaggedShard(
          static_cast<int>(k), Sizes(mesh.dim(cuts[k][0]).size, tensor.shape[k]));
    }
    return Sharding::Create(mesh, tensor, std::move(placements), std::move(cuts));
  }

  // `length` rows on one coordinate, or spread over several.
  Placement::Sizes Sizes(int64_t n, int64_t length) {
    Placement::Sizes sizes(n, 0);
    const int64_t parts = Below(3) == 0 ? 1 : std::min<int64_t>(length, 8);
    for (int64_t i = 0; i < parts; ++i) {
      sizes[Below(n)] += length / parts + (i < length % parts ? 1 : 0);
    }
    return sizes;
  }

  // Two or three tensor dims, whose extents every mesh of up to 2^20 ranks (a power of two)
  // divides.
  TensorType HugeTensor() {
    Shape shape(2 + Below(8) / 7);
    for (int64_t& extent : shape) extent = int64_t{1} << (20 + Below(3));
    return {Below(2) == 0 ? DType::kBF16 : DType::kF32, shape};
  }

  TensorType Tensor(int max_rank) {
    constexpr DType kTypes[] = {DType::kBF16, DType::kF32, DType::kI32, DType::kF4E2M1};
    const int64_t kind = Below(3);  // powers of two, small, any
    Shape shape;
    for (int64_t k = Below(max_rank + 1); k > 0; --k) {
      shape.push_back(kind == 0 ? int64_t{16} << Below(9) : Below(kind == 1 ? 12 : 3000) + 1);
    }
    return {kTypes[Below(4)], shape};
  }

 private:
  std::mt19937_64 random_;
};

// `max_rank` 0: huge tensors. `ragged`: the outermost cuts of some sources and targets are ragged.
void CompareOn(const std::vector<std::string>& meshes, int max_rank, int count,
               bool ragged = false) {
  RandomProblems random(17);
  constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax};
  const std::vector<std::string> topologies = {"flat",
                                               "nvlink=4",
                                               "h100",
                                               "nvlink=2,rail=4",
                                               "nvlink=3",
                                               "nvlink=2",
                                               "nvlink=2,rail=6,pod=24"};
  int compared = 0;
  int bounded = 0;
  while (compared < count) {
    const DeviceMesh mesh = *DeviceMesh::Parse(meshes[random.Below(meshes.size())]);
    const TensorType tensor = max_rank == 0 ? random.HugeTensor() : random.Tensor(max_rank);
    TensorType cast = tensor;
    if (random.Below(4) == 0) cast.dtype = DType::kBF16;
    const ReduceOp op = kOps[random.Below(4)];
    const int64_t mode = random.Below(6);
    const auto from = random.Make(mesh, tensor, mode >= 2, op, ragged && random.Below(2) == 0);
    const auto to = random.Make(mesh, cast, mode == 5, op, ragged && random.Below(2) == 0);
    if (!from.ok() || !to.ok()) continue;
    const auto problem = Problem::Create(*from, *to);
    if (!problem.ok()) continue;
    const Topology topology = max_rank > 0 && random.Below(8) == 0
                                  ? testkit::SlowLinks()
                                  : *Topology::Parse(topologies[random.Below(topologies.size())]);
    const CostModel model(*problem, topology, {.ordered = random.Below(4) == 0});
    TransitionRules rules{.single_sourced = random.Below(8) > 0, .exact = random.Below(4) == 0};
    rules.at_once = !rules.exact && random.Below(4) == 0;
    rules.scatters = random.Below(4) > 0;
    rules.masks_cuts = problem->MasksTarget() && random.Below(4) > 0;
    const std::optional<Cost> least = LeastCost(*problem, model, rules);
    EXPECT_EQ(CostOf(*problem, model, FindCheapest(*problem, model, rules)), least)
        << from->ToString() << " -> " << to->ToString() << " on " << topology.ToString();
    Successors successors(*problem, model, rules);
    Heuristic heuristic(*problem, model, successors);
    if (least) {
      const int64_t least_ns = heuristic.LeastNs(successors.layouts().Decode(problem->source()));
      EXPECT_LE(least_ns, std::get<0>(*least))
          << from->ToString() << " -> " << to->ToString() << " on " << topology.ToString();
      bounded += least_ns > 0 ? 1 : 0;
    }
    ++compared;
  }
  EXPECT_GT(bounded, 0);
}

TEST(SearchTest, IsExactOnTwoDims) {
  CompareOn({"a=2", "a=4,b=2", "a=2,b=3", "a=8,b=5", "a=2,b=2@2,0,1,3"}, 4, 1000);
}

TEST(SearchTest, IsExactOnThreeDims) {
  CompareOn({"a=2,b=2,c=2", "a=3,b=2,c=2", "a=2,b=2,c=2@3,1,0,2,4-7", "a=2,b=2,c=3"}, 3, 1000);
}

TEST(SearchTest, IsExactOnLargeDims) {
  CompareOn({"a=32,b=4", "a=4,b=48", "a=2,b=64,c=3", "a=32,b=2,c=4"}, 3, 300);
}

TEST(SearchTest, IsExactOnManyRanks) {
  CompareOn({"a=64,b=128,c=128", "a=32,b=32", "a=2,b=64,c=8", "a=1024,b=4,c=32"}, 0, 200);
}

TEST(SearchTest, IsExactOverRaggedCuts) {
  CompareOn({"a=2,b=2", "a=3,b=2", "a=8,b=2", "a=2,b=2,c=2"}, 3, 1000, /*ragged=*/true);
}

TEST(SearchTest, IsExactOnFourDims) { CompareOn({"a=2,b=2,c=2,d=2", "a=3,b=2,c=2,d=2"}, 2, 60); }

}  // namespace
}  // namespace meshift
