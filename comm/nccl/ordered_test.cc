// The promise `ordered` on the NCCL engine over the stand-in libraries: results have the bits of a
// plain loop.
#include <gtest/gtest.h>

#include <cstdint>

#include "base/status.h"
#include "meshift/nccl_engine.h"
#include "meshift/plan.h"
#include "testing/internal/nccl/nccl_threads.h"
#include "testing/small_world.h"
#include "tests/ordered_check.h"

namespace meshift {
namespace {

class NcclOrderedTest : public ::testing::TestWithParam<int64_t> {};

TEST_P(NcclOrderedTest, BitsAreThoseOfAPlainLoop) {
  const int64_t size = GetParam();
  const uint64_t seed = OrderedSeed(size);
  const int64_t cases = (kOrderedCases - 1) / testkit::TestFraction() + 1;
  auto ranks = NcclThreads::Create(size, {}, seed);
  ASSERT_TRUE(ranks.ok()) << ranks.status();
  (*ranks)->Run([&](NcclEngine& engine, int64_t) {
    EXPECT_EQ(Message(CheckOrdered(&engine, {.cases = cases, .seed = seed})), "");
    EXPECT_EQ(Message(CheckOrdered(&engine,
                                   {.cases = cases / 2 + 1, .seed = seed + 500, .blocks = true})),
              "");
    // This engine reduces in order under this promise too.
    EXPECT_EQ(Message(CheckOrdered(
                  &engine,
                  {.cases = cases / 8, .seed = seed, .promise = Reproducibility::kBatchInvariant})),
              "");
  });
  EXPECT_EQ(Violations(), "");
}

INSTANTIATE_TEST_SUITE_P(Sizes, NcclOrderedTest, ::testing::ValuesIn(kOrderedSizes));

}  // namespace
}  // namespace meshift
