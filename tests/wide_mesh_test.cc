// Mesh dims of many ranks, of which the cost model looks at some: the bytes of the worst rank are
// those that the verifier finds, rank by rank.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "mesh/device_mesh.h"
#include "placement/sharding.h"
#include "planner/planner.h"
#include "planner/verifier/verifier.h"
#include "testing/random.h"
#include "testing/shardings.h"

namespace meshift {
namespace {

void ExpectProven(const Sharding& from, const Sharding& to) {
  const absl::StatusOr<Plan> plan = MakePlan(from, to);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const Verdict verdict = Verify(*plan);
  EXPECT_TRUE(verdict.ok()) << from.ToString() << " -> " << to.PlacementsText() << ": "
                            << verdict.fault->message;
}

// Only rank 11 has a row but no column, and sends all it has.
TEST(WideMeshTest, TheWorstRankIsWherePiecesEnd) {
  const DeviceMesh mesh = DeviceMesh::Parse("d=26").value();
  const Sharding from = Sharding::Parse("f32[12,11]", mesh, "S(0)").value();
  ExpectProven(from, from.WithPlacements("S(1)").value());
}

TEST(WideMeshTest, BytesOfTheWorstRankAreThoseOfAllRanks) {
  testkit::Random random(1);
  for (int i = 0; i < 30000 && !HasFailure(); ++i) {
    std::vector<DeviceMesh::Dim> dims = {{"wide", 17 + random.Below(60)}};
    if (random.OneIn(2)) {
      dims.insert(random.OneIn(2) ? dims.begin() : dims.end(), {"narrow", 2 + random.Below(5)});
    }
    const DeviceMesh mesh = DeviceMesh::Create(dims).value();
    TensorType tensor{DType::kF32, Shape(1 + random.Below(3))};
    for (int64_t& size : tensor.shape) size = 1 + random.Below(120);
    const std::vector<bool> any(dims.size(), true);
    const std::vector<bool> none(dims.size(), false);
    ExpectProven(testkit::RandomSharding(mesh, tensor, any, ReduceOp::kSum, random),
                 testkit::RandomSharding(mesh, tensor, none, ReduceOp::kSum, random));
  }
}

}  // namespace
}  // namespace meshift
