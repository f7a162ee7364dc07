// Mesh dims of many ranks, of which the cost model examines only some: the worst rank's bytes are
// those that the verifier finds rank by rank.
#include <gtest/gtest.h>

#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "meshift/device_mesh.h"
#include "meshift/planner.h"
#include "meshift/sharding.h"
#include "meshift/verifier.h"
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

// Only rank 11 has a row but no column, and sends all of it.
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

// Nested cuts of long dims and of large tensors: any rank may be the worst.
TEST(WideMeshTest, NestedCutsOfLongDims) {
  testkit::Random random(2);
  const std::vector<int64_t> sizes = {17, 20, 31, 64, 100, 128, 500, 1000, 1024, 2000};
  for (int i = 0; i < 3000 && !HasFailure(); ++i) {
    std::vector<DeviceMesh::Dim> dims(1 + random.Below(3));
    for (size_t d = 0; d < dims.size(); ++d)
      dims[d] = {std::string(1, 'a' + d), 2 + random.Below(7)};
    dims[random.Below(std::ssize(dims))].size = sizes[random.Below(std::ssize(sizes))];
    const DeviceMesh mesh = DeviceMesh::Create(dims).value();
    TensorType tensor{DType::kU8, Shape(1 + random.Below(2))};
    for (int64_t& size : tensor.shape) size = 1 + random.Below(random.OneIn(2) ? 1000000 : 9000);
    const std::vector<bool> any(dims.size(), true);
    const std::vector<bool> none(dims.size(), false);
    ExpectProven(testkit::RandomSharding(mesh, tensor, any, ReduceOp::kSum, random),
                 testkit::RandomSharding(mesh, tensor, none, ReduceOp::kSum, random));
  }
}

// A limit applies to the worst rank, which takes the planned memory.
TEST(WideMeshTest, ALimitIsOfTheWorstRank) {
  const DeviceMesh mesh = DeviceMesh::Parse("a=31,b=3,c=8").value();
  const Sharding from = Sharding::Parse("u8[251427,969436]", mesh, "S(0),S(1),R").value();
  const Sharding to = from.WithPlacements("S(0)[1],S(0)[0],R").value();
  PlannerOptions options;
  options.max_memory = LeastMemory(from, to, options).value();
  const Plan plan = MakePlan(from, to, options).value();
  EXPECT_EQ(plan.total().peak_bytes, *options.max_memory);
  EXPECT_TRUE(Verify(plan).ok());
}

}  // namespace
}  // namespace meshift
