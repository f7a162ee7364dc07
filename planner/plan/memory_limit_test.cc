#include "planner/plan/memory_limit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "base/status.h"
#include "meshift/device_mesh.h"
#include "meshift/sharding.h"
#include "testing/ragged_cases.h"
#include "testing/small_world.h"

namespace meshift {
namespace {

Sharding Parse(const std::string& mesh, const std::string& tensor, const std::string& placements) {
  return Sharding::Parse(tensor, DeviceMesh::Parse(mesh).value(), placements).value();
}

// Compared with the boxes of all ranks.
TEST(MemoryLimitTest, TheSmallestTensorIsThatOfSomeRank) {
  int64_t uneven = 0;
  const auto judge = [&](const Sharding& sharding) {
    int64_t least = INT64_MAX;
    for (const int64_t rank : sharding.mesh().Ranks()) {
      const int64_t bits = sharding.LocalBox(rank).NumElements() * BitWidth(sharding.dtype());
      least = std::min(least, bits / 8);
    }
    EXPECT_EQ(LeastTensorBytes(sharding), least) << sharding.ToString();
    uneven += least > 0 && least < TensorBytes(sharding) ? 1 : 0;
  };
  for (uint64_t seed = 0; seed < 2000; ++seed) judge(testkit::RandomCase(seed).from);
  for (const testkit::ConformanceCase& c : testkit::RaggedCases(8, 500)) {
    judge(c.from);
    judge(c.to);
  }
  EXPECT_GT(uneven, 50);
}

TEST(MemoryLimitTest, WhatSourceAndTargetTake) {
  const Sharding from = Parse("a=4", "f32[18]", "S(0)");  // 5, 5, 5, 3
  const Sharding to = Parse("a=4", "f32[18]", "R");
  const TensorMemory two(from, to, Buffers::kTwo);
  EXPECT_EQ(two.together, 20 + 72);
  EXPECT_EQ(two.copied + two.scratch, 0);
  const TensorMemory one(from, to, Buffers::kOne);
  EXPECT_EQ(one.together, 72);
  EXPECT_EQ(one.copied, 32);
  const TensorMemory consumed(to, from, Buffers::kConsumed);
  EXPECT_EQ(consumed.together, 20 + 72);
  EXPECT_EQ(consumed.scratch, 64);
  // The smallest source is 12 bytes, below one multiple of 16. On another mesh a rank may have no
  // source.
  EXPECT_EQ(TensorMemory(from, to, Buffers::kConsumed).scratch, 0);
  EXPECT_EQ(TensorMemory(to, Parse("b=8", "f32[18]", "R"), Buffers::kConsumed).scratch, 0);
}

TEST(MemoryLimitTest, RefusalsSayWhatWouldDo) {
  const Sharding from = Parse("a=4", "f32[18]", "S(0)");
  const Sharding to = Parse("a=4", "f32[18]", "R");
  const auto text = [&](Buffers buffers, bool is_least) {
    return std::string(Message(TensorMemory(from, to, buffers).Refusal(9, 32, is_least)));
  };
  EXPECT_EQ(text(Buffers::kTwo, true),
            "max_memory is 9 bytes per rank; the least that would do is 124: source 20, target 72, "
            "workspace 32");
  EXPECT_EQ(text(Buffers::kTwo, false),
            "max_memory is 9 bytes per rank; 124 would do, though less might: source 20, target "
            "72, workspace 32");
  EXPECT_EQ(text(Buffers::kConsumed, true),
            "max_memory is 9 bytes per rank; the least that would do is 124: consumed source 20, "
            "target 72, workspace 32");
  EXPECT_EQ(text(Buffers::kOne, true),
            "max_memory is 9 bytes per rank; the least that would do is 104: source 20 and target "
            "72 in one buffer, workspace 32");
}

}  // namespace
}  // namespace meshift
