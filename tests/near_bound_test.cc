// Plans are near the lower bounds, and never below them (tests/near_bound.h): means over all pairs
// of a mesh, for large worlds over a fixed part of them. bench/near_bound.cc prints all.
#include "tests/near_bound.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "meshift/sharding.h"
#include "meshift/topology.h"

namespace meshift {
namespace {

// If starts cost more than bytes, some plans take more bytes.
constexpr double kAnyBytes = 1.5;

struct NearCase {
  const char* mesh;
  Shape shape;  // in bf16
  int64_t fraction;
  bool is_large;  // bytes matter
};

class NearBoundTest : public testing::TestWithParam<NearCase> {};

NearBound Measure(const NearCase& one, int partial_dims, const char* topology = "flat") {
  absl::StatusOr<NearBound> near =
      MeasureNearBound({.mesh = one.mesh,
                        .shape = one.shape,
                        .partial_dims = partial_dims,
                        .options = {.topology = Topology::Parse(topology).value()},
                        .fraction = one.fraction});
  EXPECT_TRUE(near.ok()) << near.status();
  if (!near.ok()) return {};
  fmt::print("{} on {}, {}-D, {} partial: {} pairs, bytes {:.3f}, slow bytes {:.3f}, time {:.3f}\n",
             one.mesh, topology, one.shape.size(), partial_dims, near->pairs, near->bytes.Mean(),
             near->slow_bytes.Mean(), near->time.Mean());
  EXPECT_GT(near->bytes.count, 0);
  EXPECT_EQ(near->below, 0) << "the bound is none";
  EXPECT_EQ(near->larger, 0) << "a value on the way is larger than source and target";
  return *std::move(near);
}

TEST_P(NearBoundTest, CutsAndReplicas) {
  const NearBound near = Measure(GetParam(), 0);
  // Some large tensors of three dims are copied twice, but the bound counts one copy.
  const bool copied_twice = GetParam().is_large && GetParam().shape.size() > 2;
  EXPECT_LE(near.time.Mean(), copied_twice ? 1.13 : 1.10);
  EXPECT_LE(near.bytes.Mean(), GetParam().is_large ? 1.05 : kAnyBytes);
}

TEST_P(NearBoundTest, OneOrTwoPartialDims) {
  for (const int partial_dims : {1, 2}) {
    const NearBound near = Measure(GetParam(), partial_dims);
    EXPECT_LE(near.bytes.Mean(), GetParam().is_large ? 1.10 : kAnyBytes)
        << partial_dims << " partial dims";
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, NearBoundTest,
                         testing::Values(NearCase{"a=2,b=2,c=2", {16, 32}, 1, false},
                                         NearCase{"a=2,b=2,c=2", {512, 1024}, 1, false},
                                         NearCase{"a=2,b=2,c=2", {16384, 32768}, 1, true},
                                         NearCase{"a=2,b=2,c=2", {8, 8, 8}, 2, false},
                                         NearCase{"a=2,b=2,c=2", {64, 64, 128}, 2, false},
                                         NearCase{"a=2,b=2,c=2", {512, 1024, 1024}, 2, true},
                                         NearCase{"a=4,b=2", {16, 32}, 1, false},
                                         NearCase{"a=4,b=2", {512, 1024}, 1, false},
                                         NearCase{"a=4,b=2", {16384, 32768}, 1, true},
                                         NearCase{"a=4,b=2", {512, 1024, 1024}, 1, true},
                                         NearCase{"a=2,b=3", {18, 30}, 1, false},
                                         NearCase{"a=2,b=3", {720, 732}, 1, false},
                                         NearCase{"a=2,b=3", {23166, 23172}, 1, true},
                                         NearCase{"a=2,b=3", {810, 816, 816}, 1, true}));

// 16 ranks in domains of 4: bytes on the links between domains. Messages get half of these links,
// so a ring with more bytes may be faster.
TEST(NearBoundAcrossTest, SlowLinks) {
  RatioMean all;
  for (const NearCase& one : {NearCase{"a=4,b=4", {16384, 32768}, 1, true},
                              NearCase{"a=2,b=2,c=4", {16384, 32768}, 2, true},
                              NearCase{"a=4,b=2,c=2", {16384, 32768}, 2, true}}) {
    const NearBound near = Measure(one, 0, "nvlink=4");
    all.count += near.slow_bytes.count;
    all.log_sum += near.slow_bytes.log_sum;
  }
  EXPECT_LE(all.Mean(), 1.08);
}

}  // namespace
}  // namespace meshift
