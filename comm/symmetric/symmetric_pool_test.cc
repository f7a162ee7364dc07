#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "base/status.h"
#include "comm/symmetric/symmetric_space.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"
#include "meshift/local_world.h"
#include "meshift/symmetric.h"

namespace meshift {
namespace {

constexpr int64_t kKiB = 1024;

class SymmetricPoolTest : public testing::Test {
 protected:
  std::unique_ptr<SymmetricPool> Make(int rank, const SymmetricPoolOptions& options) {
    auto pool = SymmetricPool::Create(world_->engine(rank), world_->engine(rank)->world(), options);
    EXPECT_TRUE(pool.ok()) << pool.status();
    return pool.ok() ? *std::move(pool) : nullptr;
  }
  const std::unique_ptr<LocalWorld> world_ = LocalWorld::Create({.num_ranks = 2}).value();
};

// A slow reference allocator: a flag per unit of memory.
class NaiveSpace {
 public:
  NaiveSpace(int64_t buffers, int64_t units) : taken_(buffers, std::vector<bool>(units)) {}
  // Free runs as (buffer, first, length).
  std::vector<std::array<int64_t, 3>> FreeRuns() const {
    std::vector<std::array<int64_t, 3>> runs;
    for (size_t b = 0; b < taken_.size(); ++b) {
      int64_t length = 0;
      const auto n = static_cast<int64_t>(taken_[b].size());
      for (int64_t i = 0; i <= n; ++i) {
        if (i < n && !taken_[b][i]) {
          ++length;
        } else if (length > 0) {
          runs.push_back({static_cast<int64_t>(b), i - length, length});
          length = 0;
        }
      }
    }
    return runs;
  }
  void Set(int64_t buffer, int64_t first, int64_t length, bool taken) {
    for (int64_t i = first; i < first + length; ++i) {
      EXPECT_NE(taken_[buffer][i], taken) << buffer << " " << i;
      taken_[buffer][i] = taken;
    }
  }

 private:
  std::vector<std::vector<bool>> taken_;
};

TEST_F(SymmetricPoolTest, TenThousandRandomAllocationsStayWithinTheBound) {
  constexpr int64_t kBuffers = 3;
  constexpr int64_t kUnit = SymmetricPool::kAlignment;
  constexpr int64_t kUnits = 64;
  const auto pool =
      Make(0, {.buffer_bytes = kUnits * kUnit, .buffers = kBuffers, .max_buffers = kBuffers});
  const auto twin =
      Make(1, {.buffer_bytes = kUnits * kUnit, .buffers = kBuffers, .max_buffers = kBuffers});
  NaiveSpace naive(kBuffers, kUnits);
  std::map<int64_t, SymmetricBlock> live;
  std::mt19937_64 random(7);
  int64_t in_use = 0;
  int64_t high_water = 0;
  int64_t allocated = 0;
  int64_t refused = 0;
  int fragmented = 0;
  while (allocated < 10'000) {
    if (!live.empty() && random() % 100 < 48) {
      auto victim = live.begin();
      std::advance(victim, random() % live.size());
      const SymmetricBlock& block = victim->second;
      naive.Set(block.buffer, block.offset / kUnit, block.bytes / kUnit, false);
      in_use -= block.bytes;
      ASSERT_TRUE(pool->Free(victim->first).ok());
      ASSERT_TRUE(twin->Free(victim->first).ok());
      live.erase(victim);
    } else {
      const auto bytes =
          static_cast<int64_t>(1 + random() % (random() % 4 == 0 ? 20 * kUnit : kUnit));
      const int64_t units = (bytes + kUnit - 1) / kUnit;
      // The first of the smallest runs that are large enough.
      std::array<int64_t, 3> best = {-1, -1, kUnits + 1};
      int64_t largest = 0;
      int64_t free = 0;
      for (const auto& run : naive.FreeRuns()) {
        if (run[2] >= units && run[2] < best[2]) best = run;
        largest = std::max(largest, run[2]);
        free += run[2];
      }
      const auto block = pool->Allocate(bytes);
      const auto other = twin->Allocate(bytes);
      ASSERT_EQ(block.ok(), best[0] >= 0);
      ASSERT_EQ(other.ok(), block.ok());
      const SymmetricPoolStats stats = pool->stats();
      if (!block.ok()) {
        ++refused;
        // Enough bytes are free, but not contiguous.
        fragmented += free >= units ? 1 : 0;
        EXPECT_EQ(stats.free_bytes, free * kUnit);
        EXPECT_EQ(stats.largest_free, largest * kUnit);
        EXPECT_EQ(block.status().code(), absl::StatusCode::kResourceExhausted);
        continue;
      }
      EXPECT_EQ(block->number, ++allocated);
      EXPECT_EQ(block->buffer, best[0]);
      EXPECT_EQ(block->offset, best[1] * kUnit);
      // The same calls return the same places on another member.
      EXPECT_EQ(other->number, block->number);
      EXPECT_EQ(other->buffer, block->buffer);
      EXPECT_EQ(other->offset, block->offset);
      naive.Set(block->buffer, best[1], units, true);
      live.emplace(block->number, *block);
      in_use += block->bytes;
      high_water = std::max(high_water, in_use);
      // No other block shares the memory.
      std::memset(block->data, static_cast<int>(block->number), block->bytes);
      // TensorAt against a walk through all blocks, also at addresses outside of blocks.
      for (int probe = 0; probe < 3; ++probe) {
        const auto& base = std::next(live.begin(), random() % live.size())->second;
        const auto at = static_cast<const char*>(base.data) +
                        static_cast<int64_t>(random() % (2 * kUnits * kUnit)) - kUnits * kUnit;
        SymmetricTensor expected;
        for (const auto& [number, b] : live) {
          const auto* begin = static_cast<const char*>(b.data);
          if (at >= begin && at < begin + b.bytes) expected = {number, at - begin};
        }
        EXPECT_EQ(pool->TensorAt(at), expected);
      }
    }
    const SymmetricPoolStats stats = pool->stats();
    ASSERT_EQ(stats.bytes_in_use, in_use);
    ASSERT_LE(stats.bytes_in_use, kBuffers * kUnits * kUnit);
    ASSERT_EQ(stats.registered_bytes, kBuffers * kUnits * kUnit);
    ASSERT_EQ(stats.high_water_bytes, high_water);
    ASSERT_EQ(stats.blocks, static_cast<int64_t>(live.size()));
  }
  EXPECT_EQ(pool->stats().allocations, allocated);
  EXPECT_EQ(pool->stats().refused, refused);
  EXPECT_GT(fragmented, 20);
  // The engine has not allocated more than the pool.
  EXPECT_EQ(world_->memory(0).peak_bytes, kBuffers * kUnits * kUnit);
  for (const auto& [number, block] : live) ASSERT_TRUE(pool->Free(number).ok());
  const SymmetricPoolStats end = pool->stats();
  EXPECT_EQ(end.free_ranges, kBuffers);
  EXPECT_EQ(end.largest_free, kUnits * kUnit);
  EXPECT_EQ(end.bytes_in_use, 0);
}

TEST_F(SymmetricPoolTest, ReportsFragmentation) {
  const auto pool = Make(0, {.buffer_bytes = 64 * kKiB, .buffers = 1});
  std::vector<SymmetricBlock> blocks;
  for (int i = 0; i < 16; ++i) blocks.push_back(pool->Allocate(4 * kKiB).value());
  for (int i = 0; i < 16; i += 2) ASSERT_TRUE(pool->Free(blocks[i].number).ok());
  const SymmetricPoolStats stats = pool->stats();
  EXPECT_EQ(stats.free_bytes, 32 * kKiB);
  EXPECT_EQ(stats.largest_free, 4 * kKiB);
  EXPECT_EQ(stats.free_ranges, 8);
  EXPECT_EQ(Message(pool->Allocate(8 * kKiB).status()),
            "the symmetric pool of local group 0-1, member 0: no block of 8192 bytes: 32768 bytes "
            "are free in 8 ranges, the largest of 4096; 1 of 8 buffers are registered");
}

TEST_F(SymmetricPoolTest, GrowsToItsBoundAndNotBeyond) {
  const auto pool = Make(0, {.buffer_bytes = 5000, .buffers = 1, .max_buffers = 3});
  EXPECT_EQ(pool->stats().registered_bytes, 8192);
  ASSERT_TRUE(pool->Reserve(3).ok());
  ASSERT_TRUE(pool->Reserve(2).ok());
  EXPECT_EQ(pool->stats().buffers, 3);
  EXPECT_EQ(Message(pool->Reserve(4)),
            "the symmetric pool of local group 0-1, member 0: 4 buffers are more than max_buffers "
            "3");
  // A block does not span buffers.
  EXPECT_EQ(pool->Allocate(8193).status().code(), absl::StatusCode::kResourceExhausted);
  const auto block = pool->Allocate(8192).value();
  EXPECT_EQ(pool->TensorAt(static_cast<char*>(block.data) + 8191),
            (SymmetricTensor{.block = 1, .offset = 8191}));
  EXPECT_TRUE(pool->Free(1).ok());
  EXPECT_EQ(pool->TensorAt(block.data), SymmetricTensor());
  EXPECT_EQ(pool->Free(1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(pool->Find(1).status().code(), absl::StatusCode::kNotFound);
  int on_the_stack = 0;
  EXPECT_EQ(pool->TensorAt(&on_the_stack), SymmetricTensor());
  EXPECT_EQ(pool->TensorAt(nullptr), SymmetricTensor());
}

TEST_F(SymmetricPoolTest, RefusesBadOptions) {
  Engine* const engine = world_->engine(0);
  const auto refusal = [&](const SymmetricPoolOptions& options) {
    return Message(SymmetricPool::Create(engine, engine->world(), options).status());
  };
  EXPECT_EQ(refusal({.buffer_bytes = 0}), "buffer_bytes 0 is not between 1 and 274877906944");
  EXPECT_EQ(refusal({.buffers = 0}),
            "buffers 0 is not between 1 and max_buffers 8, which is at most 4096");
  EXPECT_EQ(refusal({.buffers = 9}),
            "buffers 9 is not between 1 and max_buffers 8, which is at most 4096");
}

TEST_F(SymmetricPoolTest, MembersThatDifferAreNamedWithWhatTheyAskFor) {
  const auto pool = Make(0, {.buffer_bytes = 4096, .buffers = 1});
  const auto other = SymmetricPool::Create(world_->engine(1), world_->engine(1)->world(),
                                           {.buffer_bytes = 8192, .buffers = 2});
  EXPECT_EQ(other.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(
      Message(other.status()),
      "the symmetric pool of local group 0-1, member 1: group 0-1: rank 0 asks for 1 buffers "
      "of 4096 bytes numbered from 0, and rank 1 for 2 buffers of 8192 bytes numbered from 0");
  // The member that called first gets the error from the group.
  EXPECT_NE(pool->Reserve(2).ToString().find("rank 1 for 2 buffers of 8192"), std::string::npos);
}

TEST_F(SymmetricPoolTest, GrowthThatDiffersIsNamedToo) {
  const auto a = Make(0, {.buffer_bytes = 4096});
  const auto b = Make(1, {.buffer_bytes = 4096});
  ASSERT_TRUE(a->Reserve(2).ok());
  EXPECT_NE(
      b->Reserve(3).ToString().find(
          "rank 0 asks for 1 buffers of 4096 bytes numbered from 1, and rank 1 for 2 buffers"),
      std::string::npos);
}

// The engine's calls with blocks of exact sizes, without a pool.
TEST_F(SymmetricPoolTest, TheEngineGathersAndReducesBlocksOfAnySizes) {
  std::vector<std::unique_ptr<SymmetricBuffer>> buffers[2];
  std::unique_ptr<Stream> streams[2];
  const std::vector<int64_t> counts = {1, 3};
  for (int r = 0; r < 2; ++r) {
    Engine* const engine = world_->engine(r);
    buffers[r] = engine->AllocateSymmetric(*engine->world(), {.count = 2, .bytes = 64}).value();
    streams[r] = engine->CreateStream().value();
    auto* const data = static_cast<float*>(buffers[r][0]->data());
    for (int i = 0; i < 8; ++i) data[i] = static_cast<float>(10 * r + i);
  }
  const auto call = [&](int r, SymmetricCall::Kind kind, int64_t offset) {
    const SymmetricCall made{.kind = kind,
                             .dtype = DType::kF32,
                             .counts = counts,
                             .send = {buffers[r][0].get(), offset},
                             .recv = {buffers[r][1].get(), 0}};
    return world_->engine(r)->world()->CallSymmetric(made, *streams[r]);
  };
  const auto result = [&](int r) {
    EXPECT_TRUE(world_->engine(r)->Synchronize(*streams[r]).ok());
    const auto* data = static_cast<const float*>(buffers[r][1]->data());
    return std::vector<float>(data, data + 4);
  };
  for (int r = 0; r < 2; ++r) {
    ASSERT_TRUE(call(r, SymmetricCall::Kind::kAllGather, 4).ok());
  }
  EXPECT_EQ(result(0), (std::vector<float>{1, 11, 12, 13}));
  EXPECT_EQ(result(1), (std::vector<float>{1, 11, 12, 13}));
  for (int r = 0; r < 2; ++r) {
    ASSERT_TRUE(call(r, SymmetricCall::Kind::kReduceScatter, 0).ok());
  }
  EXPECT_EQ(result(0), (std::vector<float>{10, 11, 12, 13}));
  EXPECT_EQ(result(1), (std::vector<float>{12, 14, 16, 13}));
  // Members with different places fail the group; the error names both.
  ASSERT_TRUE(call(0, SymmetricCall::Kind::kAllGather, 0).ok());
  EXPECT_EQ(Message(call(1, SymmetricCall::Kind::kAllGather, 8)),
            "call 2 of group 0-1: rank 0 made all_gather(1,3 x f32, symmetric 0+0 -> 1+0), and "
            "rank 1 made all_gather(1,3 x f32, symmetric 0+8 -> 1+0)");
  EXPECT_FALSE(world_->engine(0)->Synchronize(*streams[0]).ok());
}

TEST_F(SymmetricPoolTest, MemoryThatIsNotThereEndsNothing) {
  const SymmetricRequest most{.count = 1, .bytes = int64_t{1} << 38};
  std::vector<std::jthread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, engine = world_->engine(rank)] {
      // Some machines have that much.
      const absl::Status status = engine->AllocateSymmetric(*engine->world(), most).status();
      EXPECT_TRUE(status.ok() || absl::IsResourceExhausted(status)) << status;
      EXPECT_TRUE(engine->AllocateSymmetric(*engine->world(), {.count = 1, .bytes = 64}).ok());
    });
  }
}

TEST_F(SymmetricPoolTest, CallsOutsideOfBuffersAreRefused) {
  Engine* const engine = world_->engine(0);
  const auto buffers =
      engine->AllocateSymmetric(*engine->world(), {.count = 1, .bytes = 64}).value();
  const auto stream = engine->CreateStream().value();
  const std::vector<int64_t> counts = {8, 9};
  const SymmetricCall call{.dtype = DType::kF32,
                           .counts = counts,
                           .send = {buffers[0].get(), 0},
                           .recv = {buffers[0].get(), 32}};
  EXPECT_EQ(Message(engine->world()->CallSymmetric(call, *stream)),
            "symmetric all_gather(17 x f32, buffer 0+0 -> 0+32): 68 bytes at offset 32 are "
            "misaligned or outside the buffer of 64 bytes");
  const std::vector<int64_t> huge = {INT64_MAX, INT64_MAX};
  EXPECT_EQ(Message(engine->world()->CallSymmetric({.dtype = DType::kF32,
                                                    .counts = huge,
                                                    .send = {buffers[0].get(), 0},
                                                    .recv = {buffers[0].get(), 0}},
                                                   *stream)),
            "symmetric all_gather(9223372036854775807 x f32, buffer 0+0 -> 0+0): "
            "9223372036854775807 bytes at offset 0 are misaligned or outside the buffer of 64 "
            "bytes");
  EXPECT_EQ(Message(engine->AllocateSymmetric(*engine->world(), {.count = 0, .bytes = 1}).status()),
            "0 buffers of 1 bytes numbered from 0: expected at least one buffer, at least one byte "
            "each, and at most 274877906944 in all");
}

}  // namespace
}  // namespace meshift
