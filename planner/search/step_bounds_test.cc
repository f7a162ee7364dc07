#include "planner/search/step_bounds.h"

#include <cstdint>
#include <optional>

#include "gtest/gtest.h"
#include "meshift/sharding.h"
#include "meshift/topology.h"
#include "planner/cost/cost.h"
#include "planner/graph/state.h"
#include "planner/search/layouts.h"
#include "planner/search/successors.h"
#include "testing/conformance_cases.h"
#include "testing/owner_world.h"
#include "testing/ragged_cases.h"
#include "testing/small_world.h"

namespace meshift {
namespace {

TEST(StepBoundsTest, ProductsAreOfTheSamplesBoxes) {
  const Sharding source = *Sharding::Parse("f32[8,6]", *DeviceMesh::Parse("a=2,b=3"), "S(0),S(1)");
  const Problem problem = *Problem::Create(source, *source.WithPlacements("R,S(1)"));
  const CostModel model(problem, Topology::Flat());
  Layouts layouts(problem, model);
  StepBounds& bounds = layouts.bounds();
  bounds.Start(layouts.Decode(problem.source()).lists);
  const StepBounds::Product& product = bounds.Compare(layouts.target().lists);
  EXPECT_EQ(product.longest, 8 * 2);
  EXPECT_EQ(product.after[0], 8 * 2);
  EXPECT_EQ(product.kept[0], 4 * 2);
  EXPECT_EQ(product.wanted[0], 8 * 2);
  EXPECT_EQ(product.from, 0b01u);
  EXPECT_EQ(product.to, 0u);
  EXPECT_EQ(bounds.Moved(product), 4 * 2);
  EXPECT_EQ(bounds.MissingOfTarget(product.wanted), 0);
}

// Compares bound and price of all steps out of the source, and out of one of its successors.
struct Tally {
  int64_t steps = 0;
  int64_t above = 0;
  int64_t exact = 0;

  void Judge(const Problem& problem, const CostModel& model) {
    Successors successors(problem, model, {.exact = true, .masks_cuts = problem.MasksTarget()});
    std::optional<State> other;
    JudgeFrom(problem, model, successors, problem.source(), &other);
    std::optional<State> none;
    if (other) JudgeFrom(problem, model, successors, State(*other), &none);
  }
  void JudgeFrom(const Problem& problem, const CostModel& model, Successors& successors,
                 const State& from, std::optional<State>* last) {
    successors.ForEach(from, [&](const Successor& next) {
      const int64_t least =
          successors.layouts().bounds().LeastNs(next.op, from.stage(), next.dims, next.product);
      const int64_t price = model.Measure(next.op, from, next.state).est_ns;
      ++steps;
      exact += least == price ? 1 : 0;
      if (least > price && ++above < 5) {
        ADD_FAILURE() << problem.from().ToString() << ": " << Name(next.op) << " from "
                      << problem.ToSharding(from).PlacementsText() << " to "
                      << problem.ToSharding(next.state).PlacementsText() << " costs " << price
                      << " ns, not " << least;
      }
      *last = next.state;
    });
  }
};

TEST(StepBoundsTest, NoStepIsFaster) {
  Tally tally;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    const testkit::RandomPair pair = testkit::RandomCase(seed);
    const auto problem = Problem::Create(pair.from, pair.to);
    if (!problem.ok()) continue;
    for (const char* topology : {"flat", "nvlink=4", "nvlink=2,rail=6"}) {
      for (const bool ordered : {false, true}) {
        tally.Judge(*problem,
                    CostModel(*problem, *Topology::Parse(topology), {.ordered = ordered}));
      }
    }
  }
  EXPECT_GT(tally.steps, 100'000);
  EXPECT_GT(tally.exact, tally.steps / 10);
  EXPECT_EQ(tally.above, 0);
}

// Ragged sizes with zeros, all rows on one coordinate, and further cuts inside; owners.
TEST(StepBoundsTest, NoStepOverRaggedCutsIsFaster) {
  Tally tally;
  std::vector<testkit::ConformanceCase> cases = testkit::RaggedCases(8, 2000);
  for (const testkit::ConformanceCase& c : testkit::OwnerCases(8, 500)) cases.push_back(c);
  for (const testkit::ConformanceCase& c : cases) {
    const auto problem = Problem::Create(c.from, c.to);
    if (!problem.ok()) continue;
    for (const Topology& topology : {testkit::SlowLinks(), *Topology::Parse("nvlink=2,rail=6")}) {
      for (const bool ordered : {false, true}) {
        for (const std::optional<StepSizes> sizes :
             {std::optional<StepSizes>(), {StepSizes::kPadded}, {StepSizes::kExact}}) {
          tally.Judge(*problem,
                      CostModel(*problem, topology, {.ragged = sizes, .ordered = ordered}));
        }
      }
    }
  }
  EXPECT_GT(tally.steps, 100'000);
  EXPECT_EQ(tally.above, 0);
}

}  // namespace
}  // namespace meshift
