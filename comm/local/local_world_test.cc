#include "meshift/local_world.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/status.h"
#include "meshift/communicator.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"
#include "meshift/placement.h"

namespace meshift {
namespace {

constexpr Reduction kSum = {ReduceOp::kSum, 1};

std::unique_ptr<LocalWorld> World(int64_t num_ranks, int num_workers = 0) {
  LocalWorldOptions options;
  options.num_ranks = num_ranks;
  options.num_workers = num_workers;
  auto world = LocalWorld::Create(options);
  return world.ok() ? *std::move(world) : nullptr;
}

std::vector<std::unique_ptr<Stream>> StreamsOf(LocalWorld& world, int64_t num_ranks) {
  std::vector<std::unique_ptr<Stream>> streams;
  for (int64_t r = 0; r < num_ranks; ++r) streams.push_back(*world.engine(r)->CreateStream());
  return streams;
}

TEST(LocalWorld, ChecksItsOptions) {
  const auto error = [](auto change) {
    LocalWorldOptions options;
    change(options);
    return Message(LocalWorld::Create(options).status());
  };
  EXPECT_EQ(error([](LocalWorldOptions& o) { o.num_ranks = 0; }),
            "num_ranks 0 is not between 1 and 1048576");
  EXPECT_EQ(error([](LocalWorldOptions& o) { o.num_workers = -1; }),
            "num_workers -1 is not between 0 and 256");
  EXPECT_EQ(error([](LocalWorldOptions& o) { o.domain_size = 0; }),
            "domain_size 0 is not positive");
  EXPECT_EQ(error([](LocalWorldOptions& o) { o.timeout = std::chrono::nanoseconds(0); }),
            "a timeout of 0 ns is not positive");
  EXPECT_EQ(error([](LocalWorldOptions& o) { o.timeout = std::chrono::nanoseconds::max(); }), "");
}

TEST(LocalWorld, HasOneEnginePerRank) {
  const auto world = World(3);
  for (int64_t r = 0; r < 3; ++r) {
    EXPECT_EQ(world->engine(r)->rank(), r);
    EXPECT_EQ(world->engine(r)->name(), "local");
    EXPECT_EQ(world->engine(r)->world_size(), 3);
  }
  EXPECT_EQ(world->engine(1)->world()->ToString(), "local group 0-2, member 1");
}

TEST(LocalWorld, CountsMemoryPerRank) {
  const auto world = World(2);
  {
    const auto a = world->engine(0)->Allocate(100);
    const auto b = world->engine(0)->Allocate(28);
    const auto none = world->engine(0)->Allocate(0);
    ASSERT_TRUE(a.ok() && b.ok() && none.ok());
    EXPECT_NE((*none)->data(), nullptr);
    EXPECT_EQ(world->memory(0).bytes_in_use, 128);
  }
  const auto c = world->engine(0)->Allocate(7);
  EXPECT_EQ(world->memory(0).bytes_in_use, 7);
  EXPECT_EQ(world->memory(0).peak_bytes, 128);
  EXPECT_EQ(world->memory(1).peak_bytes, 0);
}

// One thread, one stream per rank; two collectives over all ranks and one over groups of 32.
TEST(LocalWorld, Runs1024RanksOnOneThread) {
  constexpr int64_t kRanks = 1024;
  for (const int workers : {0, 2}) {
    const auto world = World(kRanks, workers);
    auto streams = StreamsOf(*world, kRanks);
    std::vector<int64_t> value(kRanks);
    std::vector<std::vector<int64_t>> all(kRanks, std::vector<int64_t>(kRanks));
    std::vector<std::shared_ptr<Communicator>> groups;
    for (int64_t r = 0; r < kRanks; ++r) {
      Engine& engine = *world->engine(r);
      std::vector<int64_t> ranks(32);
      std::iota(ranks.begin(), ranks.end(), r / 32 * 32);
      groups.push_back(*engine.Split(*engine.world(), ranks, r / 32, {}));
      value[r] = r;
      EXPECT_TRUE(
          groups[r]->AllReduce(&value[r], &value[r], 1, DType::kI64, kSum, *streams[r]).ok());
      EXPECT_TRUE(
          engine.world()->AllGather(&value[r], all[r].data(), 1, DType::kI64, *streams[r]).ok());
      EXPECT_TRUE(
          engine.world()->AllReduce(&value[r], &value[r], 1, DType::kI64, kSum, *streams[r]).ok());
    }
    for (int64_t r = 0; r < kRanks; ++r) {
      ASSERT_TRUE(world->engine(r)->Synchronize(*streams[r]).ok());
    }
    for (int64_t r = 0; r < kRanks; ++r) {
      EXPECT_EQ(value[r], kRanks * (kRanks - 1) / 2 * 32);
      for (int64_t i = 0; i < kRanks; ++i) {
        ASSERT_EQ(all[r][i], 32 * (i / 32 * 32) + 32 * 31 / 2);
      }
    }
  }
}

// Workers and waiting threads share the parts of a large job.
TEST(LocalWorld, MovesLargeTensors) {
  constexpr int64_t kCount = 300'001;
  for (const int workers : {0, 1, 3}) {
    const auto world = World(4, workers);
    auto streams = StreamsOf(*world, 4);
    std::vector<std::vector<int32_t>> send(4, std::vector<int32_t>(4 * kCount));
    std::vector<std::vector<int32_t>> gathered = send;
    std::vector<std::vector<int32_t>> traded = send;
    std::vector<std::vector<int32_t>> copied = send;
    std::vector<std::vector<int32_t>> scattered(4, std::vector<int32_t>(kCount));
    std::vector<std::vector<int32_t>> summed = send;
    for (int r = 0; r < 4; ++r) {
      for (int64_t i = 0; i < 4 * kCount; ++i) send[r][i] = static_cast<int32_t>(i * 4 + r);
      Engine& engine = *world->engine(r);
      Communicator& c = *engine.world();
      Stream& s = *streams[r];
      EXPECT_TRUE(c.AllGather(send[r].data(), gathered[r].data(), kCount, DType::kI32, s).ok());
      EXPECT_TRUE(c.AllToAll(send[r].data(), traded[r].data(), kCount, DType::kI32, s).ok());
      EXPECT_TRUE(
          c.ReduceScatter(send[r].data(), scattered[r].data(), kCount, DType::kI32, kSum, s).ok());
      EXPECT_TRUE(
          c.AllReduce(send[r].data(), summed[r].data(), 4 * kCount, DType::kI32, kSum, s).ok());
      // The transpose of a 4 x kCount tensor.
      const BoxCopy copy{summed[r].data(), copied[r].data(), {4, kCount}, {kCount, 1}, {1, 4}};
      EXPECT_TRUE(engine.CopyBoxes({copy}, DType::kI32, s).ok());
      EXPECT_TRUE(c.Broadcast(send[r].data(), 4 * kCount, DType::kI32, 2, s).ok());
      EXPECT_TRUE(
          engine.FillIdentity(summed[r].data(), 4 * kCount, DType::kI32, ReduceOp::kProduct, s)
              .ok());
    }
    for (int r = 0; r < 4; ++r) ASSERT_TRUE(world->engine(r)->Synchronize(*streams[r]).ok());
    for (int r = 0; r < 4; ++r) {
      int64_t wrong = 0;
      for (int64_t block = 0; block < 4; ++block) {
        for (int64_t i = 0; i < kCount; ++i) {
          const int64_t at = block * kCount + i;
          wrong += gathered[r][at] != i * 4 + block;
          wrong += traded[r][at] != (r * kCount + i) * 4 + block;
          wrong += copied[r][i * 4 + block] != at * 16 + 6;
          wrong += send[r][at] != at * 4 + 2;
          wrong += summed[r][at] != 1;
        }
      }
      for (int64_t i = 0; i < kCount; ++i) wrong += scattered[r][i] != (r * kCount + i) * 16 + 6;
      EXPECT_EQ(wrong, 0) << workers << " workers, rank " << r;
    }
  }
}

TEST(LocalWorld, TakesLargeMessagesInParts) {
  constexpr int64_t kCount = 1'000'003;
  const auto world = World(2, 2);
  auto streams = StreamsOf(*world, 2);
  std::vector<int16_t> from(kCount);
  for (int64_t i = 0; i < kCount; ++i) from[i] = static_cast<int16_t>(i);
  std::vector<int16_t> to(kCount);
  int16_t small[2] = {7, 0};
  EXPECT_TRUE(
      world->engine(0)
          ->world()
          ->SendRecv({{1, from.data(), kCount}}, {{1, &small[1], 1}}, DType::kI16, *streams[0])
          .ok());
  EXPECT_TRUE(
      world->engine(1)
          ->world()
          ->SendRecv({{0, &small[0], 1}}, {{0, to.data(), kCount}}, DType::kI16, *streams[1])
          .ok());
  for (int r = 0; r < 2; ++r) EXPECT_TRUE(world->engine(r)->Synchronize(*streams[r]).ok());
  EXPECT_EQ(to, from);
  EXPECT_EQ(small[1], 7);
}

// The consumer's stream waits for the event of its own operation, not for all that is in flight.
TEST(LocalWorld, AConsumerWaitsForItsOwnEventOnly) {
  for (const int workers : {0, 2}) {
    const auto world = World(2, workers);
    Engine& engine = *world->engine(0);
    auto producer = *engine.CreateStream();
    auto consumer = *engine.CreateStream();
    auto peer = *world->engine(1)->CreateStream();
    float x = 3;
    float y = 0;
    EXPECT_TRUE(engine.CopyBoxes({{&x, &y, {}, {}, {}}}, DType::kF32, *producer).ok());
    const auto event = engine.Record(*producer);
    // Rank 1 makes its call only after the consumer is done.
    EXPECT_TRUE(engine.world()->Barrier(*producer).ok());
    const auto later = engine.Record(*producer);
    EXPECT_TRUE(engine.WaitFor(*consumer, *event).ok());
    EXPECT_TRUE(engine.CopyBoxes({{&y, &x, {}, {}, {}}}, DType::kF32, *consumer).ok());
    EXPECT_TRUE(engine.Synchronize(*consumer).ok());
    EXPECT_GE((*event)->ReachedNs(), 0);
    EXPECT_EQ((*later)->ReachedNs(), -1);
    EXPECT_TRUE(world->engine(1)->world()->Barrier(*peer).ok());
    EXPECT_TRUE(engine.Synchronize(*producer).ok());
    EXPECT_GE((*later)->ReachedNs(), (*event)->ReachedNs());
  }
}

TEST(LocalWorld, EventsMayOutliveTheirStream) {
  const auto world = World(1);
  Engine& engine = *world->engine(0);
  auto consumer = *engine.CreateStream();
  std::shared_ptr<Event> event;
  {
    auto producer = *engine.CreateStream();
    event = *engine.Record(*producer);
  }
  EXPECT_TRUE(engine.WaitFor(*consumer, event).ok());
  EXPECT_TRUE(engine.Synchronize(*consumer).ok());
}

// Without workers nothing runs before a thread waits; destroying a stream waits.
TEST(LocalWorld, WorkRunsInSynchronize) {
  const auto world = World(1, 0);
  Engine& engine = *world->engine(0);
  float x = 3;
  {
    auto stream = *engine.CreateStream();
    EXPECT_TRUE(engine.FillZero(&x, 4, *stream).ok());
    EXPECT_EQ(x, 3);
  }
  EXPECT_EQ(x, 0);
}

// The n-th calls of members with equal arguments mean the same group; members may run ahead.
TEST(LocalWorld, SplitsAgainIntoFreshGroups) {
  const auto world = World(2);
  auto streams = StreamsOf(*world, 2);
  const auto split = [&](int rank, int64_t group) {
    Engine& engine = *world->engine(rank);
    return *engine.Split(*engine.world(), {0, 1}, group, {});
  };
  const auto a0 = split(0, 0);
  const auto b0 = split(0, 0);
  const auto other = split(0, 1);
  a0->Abort();
  const auto a1 = split(1, 0);
  const auto b1 = split(1, 0);
  EXPECT_FALSE(a1->Health().ok());
  EXPECT_TRUE(b1->Health().ok());
  EXPECT_TRUE(other->Health().ok());
  EXPECT_TRUE(b0->Barrier(*streams[0]).ok());
  EXPECT_TRUE(b1->Barrier(*streams[1]).ok());
  for (int r = 0; r < 2; ++r) EXPECT_TRUE(world->engine(r)->Synchronize(*streams[r]).ok());
}

// A member may use and drop its handle before another has made its own.
TEST(LocalWorld, AGroupLivesUntilAllHaveAskedForIt) {
  const auto world = World(2);
  auto streams = StreamsOf(*world, 2);
  for (int r = 0; r < 2; ++r) {
    Engine& engine = *world->engine(r);
    const auto group = engine.Split(*engine.world(), {0, 1}, 0, {});
    ASSERT_TRUE(group.ok());
    EXPECT_TRUE((*group)->Barrier(*streams[r]).ok());
  }
  for (int r = 0; r < 2; ++r) EXPECT_TRUE(world->engine(r)->Synchronize(*streams[r]).ok());
}

TEST(LocalWorld, SplitsGroupsOfGroups) {
  const auto world = World(4);
  auto streams = StreamsOf(*world, 4);
  std::vector<int64_t> value = {1, 2, 3, 4};
  std::vector<std::shared_ptr<Communicator>> keep;
  for (const int r : {1, 3}) {
    Engine& engine = *world->engine(r);
    const auto outer = *engine.Split(*engine.world(), {1, 2, 3}, 0, {});
    const auto inner = *engine.Split(*outer, {1, 3}, 0, {});
    EXPECT_EQ(inner->rank(), r / 2);
    EXPECT_TRUE(inner->AllReduce(&value[r], &value[r], 1, DType::kI64, kSum, *streams[r]).ok());
    keep.push_back(inner);
  }
  for (const int r : {1, 3}) EXPECT_TRUE(world->engine(r)->Synchronize(*streams[r]).ok());
  EXPECT_EQ(value, (std::vector<int64_t>{1, 6, 3, 6}));
}

// Two groups on two streams, used in opposite orders by their members: one stream does not block
// the other.
TEST(LocalWorld, StreamsAreIndependent) {
  for (const int workers : {0, 2}) {
    const auto world = World(2, workers);
    std::vector<std::thread> threads;
    for (int r = 0; r < 2; ++r) {
      threads.emplace_back([&, r] {
        Engine& engine = *world->engine(r);
        std::vector<std::shared_ptr<Communicator>> groups;
        std::vector<std::unique_ptr<Stream>> streams;
        for (int g = 0; g < 2; ++g) {
          groups.push_back(*engine.Split(*engine.world(), {0, 1}, g, {}));
          streams.push_back(*engine.CreateStream());
        }
        for (int round = 0; round < 200; ++round) {
          for (int i = 0; i < 2; ++i) {
            const int g = r == 0 ? i : 1 - i;
            EXPECT_TRUE(groups[g]->Barrier(*streams[g]).ok());
          }
        }
        for (int g = 0; g < 2; ++g) EXPECT_TRUE(engine.Synchronize(*streams[g]).ok());
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

// Many ranks, one thread each, each waiting after each call.
TEST(LocalWorld, ServesAThreadPerRank) {
  constexpr int kRanks = 64;
  for (const int workers : {0, 2}) {
    const auto world = World(kRanks, workers);
    std::vector<std::thread> threads;
    for (int r = 0; r < kRanks; ++r) {
      threads.emplace_back([&, r] {
        Engine& engine = *world->engine(r);
        auto stream = *engine.CreateStream();
        for (int64_t round = 0; round < 10; ++round) {
          int64_t value = r + round;
          EXPECT_TRUE(
              engine.world()->AllReduce(&value, &value, 1, DType::kI64, kSum, *stream).ok());
          EXPECT_TRUE(engine.Synchronize(*stream).ok());
          EXPECT_EQ(value, kRanks * (kRanks - 1) / 2 + kRanks * round);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(LocalWorld, ChangesItsReductionOrder) {
  const auto world = World(2);
  auto streams = StreamsOf(*world, 2);
  std::vector<float> value = {1, 2};
  const auto sum = [&] {
    for (int r = 0; r < 2; ++r) {
      EXPECT_TRUE(world->engine(r)
                      ->world()
                      ->AllReduce(&value[r], &value[r], 1, DType::kF32, kSum, *streams[r])
                      .ok());
    }
    for (int r = 0; r < 2; ++r) EXPECT_TRUE(world->engine(r)->Synchronize(*streams[r]).ok());
    EXPECT_EQ(value[0], value[1]);
    return value[0];
  };
  EXPECT_EQ(sum(), 3);
  world->SetReductionOrder(ReductionOrder::kAdversarial, 8);
  EXPECT_GT(sum(), 6);
  world->SetReductionOrder(ReductionOrder::kRanks, 8);
  value = {1, 2};
  EXPECT_EQ(sum(), 3);
}

}  // namespace
}  // namespace meshift
