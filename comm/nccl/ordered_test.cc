// The promise `ordered` on the NCCL engine over the stand-in libraries: bits are those of a plain
// loop.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/types/span.h"
#include "base/status.h"
#include "comm/nccl/nccl_engine.h"
#include "comm/nccl/nccl_threads.h"
#include "comm/redistributor.h"
#include "comm/tensor_view.h"
#include "mesh/device_mesh.h"
#include "placement/dtype.h"
#include "placement/sharding.h"
#include "planner/capabilities.h"
#include "planner/plan.h"
#include "testing/small_world.h"
#include "tests/ordered_check.h"

namespace meshift {
namespace {

class NcclOrderedTest : public ::testing::TestWithParam<int> {};

TEST_P(NcclOrderedTest, BitsAreThoseOfAPlainLoop) {
  const int64_t size = GetParam();
  const auto seed = static_cast<uint64_t>(1000 * size);
  const int64_t cases = 63 / testkit::TestFraction() + 1;
  auto ranks = NcclThreads::Create(size, {}, seed);
  ASSERT_TRUE(ranks.ok()) << ranks.status();
  (*ranks)->Run([&](NcclEngine& engine, int64_t) {
    EXPECT_EQ(Message(CheckOrdered(&engine, {.cases = cases, .seed = seed})), "");
    EXPECT_EQ(Message(CheckOrdered(&engine,
                                   {.cases = cases / 2 + 1, .seed = seed + 500, .blocks = true})),
              "");
    // For which this engine reduces in order, too.
    EXPECT_EQ(Message(CheckOrdered(
                  &engine,
                  {.cases = cases / 8, .seed = seed, .promise = Reproducibility::kBatchInvariant})),
              "");
  });
  EXPECT_EQ(Violations(), "");
}

// Where NCCL's tree is known to treat elements alike: its own all-reduce, of all ranks too on a
// communicator that was split for it.
TEST(NcclTreeTest, HasACommunicatorOfItsOwn) {
  auto ranks = NcclThreads::Create(4);
  ASSERT_TRUE(ranks.ok()) << ranks.status();
  RedistributorOptions options{.reproducibility = Reproducibility::kBatchInvariant,
                               .capabilities = EngineCapabilities::Nccl()};
  options.capabilities->native_invariance = NativeInvariance::kAllReduce;
  const DeviceMesh mesh = DeviceMesh::Parse("a=4").value();
  const Sharding from = Sharding::Parse("f32[6]", mesh, "P").value();
  const Sharding to = from.WithPlacements("R").value();
  (*ranks)->Run([&](NcclEngine& engine, int64_t rank) {
    const std::vector<float> mine(6, static_cast<float>(rank + 1));
    const auto bytes = absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(mine.data()), 24);
    auto in = PutBytes(engine, bytes);
    auto out = engine.Allocate(24);
    ASSERT_TRUE(in.ok() && out.ok());
    auto redistribute = Redistributor::Create(mesh, &engine, options);
    ASSERT_TRUE(redistribute.ok()) << redistribute.status();
    const auto run =
        (*redistribute)({.from = from,
                         .to = to,
                         .source = TensorView::Contiguous((*in)->data(), DType::kF32, {6}),
                         .target = TensorView::Contiguous((*out)->data(), DType::kF32, {6})});
    ASSERT_TRUE(run.ok()) << run.status();
    ASSERT_TRUE(run->Wait().ok());
    const auto sums = GetBytes(engine, (*out)->data(), 24);
    ASSERT_TRUE(sums.ok()) << sums.status();
    const std::vector<float> right(6, 10);
    EXPECT_EQ(std::memcmp(sums->data(), right.data(), 24), 0);
  });
  EXPECT_EQ(TheFake()->call_count("ncclCommSplit"), 4);
  EXPECT_EQ(TheFake()->call_count("ncclAllReduce"), 4);
  EXPECT_EQ(Violations(), "");
}

INSTANTIATE_TEST_SUITE_P(Sizes, NcclOrderedTest, ::testing::Values(2, 3, 5, 8, 12, 16, 24, 40));

}  // namespace
}  // namespace meshift
