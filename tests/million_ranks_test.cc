// A mesh of 2^20 ranks, and tensors that it does not cut evenly: planning allocates less than two
// bytes per rank.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "meshift/device_mesh.h"
#include "meshift/planner.h"
#include "meshift/sharding.h"
#include "testing/allocation_count.h"
#include "testing/random.h"
#include "testing/shardings.h"
#include "testing/small_world.h"

namespace meshift {
namespace {

constexpr int64_t kMostBytes = int64_t{2} << 20;  // total allocations, including freed memory

void ExpectFewBytes(const Sharding& from, const Sharding& to) {
  const int64_t before = AllocatedBytes();
  const absl::StatusOr<Plan> plan = MakePlan(from, to);
  const int64_t bytes = AllocatedBytes() - before;
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_LT(bytes, kMostBytes) << from.ToString() << " -> " << to.PlacementsText();
}

// Along the last dim most pieces are empty.
TEST(MillionRanksTest, AllPairs) {
  const DeviceMesh mesh = DeviceMesh::Parse("a=64,b=128,c=128").value();
  const TensorType tensor = TensorType::Parse("f32[1048576,1048576,64]").value();
  std::vector<Sharding> shardings;
  for (const Sharding& sharding : testkit::AllShardings(mesh, tensor, ReduceOp::kSum)) {
    if (!sharding.HasPartial()) shardings.push_back(sharding);
  }
  EXPECT_EQ(shardings.size(), 106);
  const int64_t fraction = testkit::TestFraction();
  int64_t index = 0;
  for (const Sharding& from : shardings) {
    for (const Sharding& to : shardings) {
      if (from == to || HasFailure() || index++ % fraction != 0) continue;
      ExpectFewBytes(from, to);
    }
  }
}

TEST(MillionRanksTest, SidesThatNothingDivides) {
  testkit::Random random(1);
  for (int i = 0; i < 300 && !HasFailure(); ++i) {
    const DeviceMesh mesh =
        DeviceMesh::Parse(random.OneIn(2) ? "a=64,b=128,c=128" : "a=1024,b=1024").value();
    TensorType tensor{DType::kF32, Shape(1 + random.Below(3))};
    for (int64_t& size : tensor.shape) size = 1 + random.Below(random.OneIn(2) ? 200 : 1'100'000);
    const std::vector<bool> any(mesh.NumDims(), true);
    const std::vector<bool> none(mesh.NumDims(), false);
    ExpectFewBytes(testkit::RandomSharding(mesh, tensor, any, ReduceOp::kSum, random),
                   testkit::RandomSharding(mesh, tensor, none, ReduceOp::kSum, random));
  }
}

}  // namespace
}  // namespace meshift
