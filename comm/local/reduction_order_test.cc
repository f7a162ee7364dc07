// The orders in which the in-process engine adds, and which of them make replicas differ.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "base/status.h"
#include "meshift/communicator.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"
#include "meshift/local_world.h"
#include "meshift/placement.h"

namespace meshift {
namespace {

constexpr int64_t kCount = 512;

// A mesh of `rows` x `columns` ranks, row-major, each with a vector of bf16 or f32.
template <typename T, DType kDType>
class Grid {
 public:
  Grid(int64_t rows, int64_t columns, ReductionOrder order, int64_t domain_size = 8)
      : rows_(rows), columns_(columns), values_(rows * columns, std::vector<T>(kCount)) {
    LocalWorldOptions options;
    options.num_ranks = rows * columns;
    options.num_workers = 0;
    options.reduction_order = order;
    options.domain_size = domain_size;
    auto world = LocalWorld::Create(options);
    EXPECT_TRUE(world.ok());
    world_ = *std::move(world);
    uint32_t state = 1;
    for (int64_t r = 0; r < rows * columns; ++r) {
      auto stream = world_->engine(r)->CreateStream();
      EXPECT_TRUE(stream.ok());
      streams_.push_back(*std::move(stream));
      for (T& value : values_[r]) {
        state = state * 1664525 + 1013904223;
        // Full mantissas and exponents around 1, both signs.
        const uint32_t bits = (state & 0x80ffffff) | 0x3f000000;
        const uint32_t narrow = bits >> 16;
        std::memcpy(&value, sizeof(T) == 2 ? &narrow : &bits, sizeof(T));
      }
    }
  }

  // Sums over the groups of ranks that differ only in their row (or column).
  void SumOver(bool rows, ReduceOp op = ReduceOp::kSum) {
    for (int64_t r = 0; r < rows_ * columns_; ++r) {
      const int64_t row = r / columns_;
      const int64_t column = r % columns_;
      std::vector<int64_t> ranks;
      for (int64_t i = 0; i < (rows ? rows_ : columns_); ++i) {
        ranks.push_back(rows ? i * columns_ + column : row * columns_ + i);
      }
      Engine& engine = *world_->engine(r);
      auto group = engine.Split(*engine.world(), ranks, rows ? column : row, {});
      ASSERT_TRUE(group.ok()) << group.status();
      AllReduce(**group, op, r);
      groups_.push_back(*group);
    }
    Wait();
  }

  void SumOverAll() {
    for (int64_t r = 0; r < rows_ * columns_; ++r) {
      AllReduce(*world_->engine(r)->world(), ReduceOp::kSum, r);
    }
    Wait();
  }

  // The number of distinct values over all ranks.
  size_t NumValues() const {
    std::set<std::vector<char>> distinct;
    for (const std::vector<T>& value : values_) {
      const auto* bytes = reinterpret_cast<const char*>(value.data());
      distinct.insert(std::vector<char>(bytes, bytes + kCount * sizeof(T)));
    }
    return distinct.size();
  }
  std::vector<std::vector<T>>& values() { return values_; }

 private:
  void AllReduce(Communicator& group, ReduceOp op, int64_t r) {
    EXPECT_TRUE(
        group.AllReduce(values_[r].data(), values_[r].data(), kCount, kDType, {op, 5}, *streams_[r])
            .ok());
  }
  void Wait() {
    for (int64_t r = 0; r < rows_ * columns_; ++r) {
      EXPECT_EQ(Message(world_->engine(r)->Synchronize(*streams_[r])), "");
    }
  }

  const int64_t rows_;
  const int64_t columns_;
  std::vector<std::vector<T>> values_;
  std::unique_ptr<LocalWorld> world_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<std::shared_ptr<Communicator>> groups_;
};

using Bf16Grid = Grid<uint16_t, DType::kBF16>;
using F32Grid = Grid<float, DType::kF32>;

// The case of pytorch #171916: 40 GPUs in domains of 8, mesh ddp=8, fsdp=5. Groups over one mesh
// dim are cut differently by the domains, and so add in different orders.
TEST(ReductionOrder, TwoSumsAcrossDomainsLeaveDifferentBits) {
  Bf16Grid grid(8, 5, ReductionOrder::kTopology);
  grid.SumOver(/*rows=*/false);
  grid.SumOver(/*rows=*/true);
  EXPECT_GT(grid.NumValues(), 1U);
}

TEST(ReductionOrder, OneSumAcrossDomainsLeavesEqualBits) {
  Bf16Grid grid(8, 5, ReductionOrder::kTopology);
  grid.SumOverAll();
  EXPECT_EQ(grid.NumValues(), 1U);
}

TEST(ReductionOrder, MembersOfAGroupHaveEqualBits) {
  for (const auto order :
       {ReductionOrder::kRanks, ReductionOrder::kTopology, ReductionOrder::kAdversarial}) {
    F32Grid grid(8, 5, order);
    grid.SumOver(/*rows=*/false);
    EXPECT_EQ(grid.NumValues(), 8U);  // one per group
  }
}

TEST(ReductionOrder, RanksOrderHidesTheDifference) {
  Bf16Grid grid(8, 5, ReductionOrder::kRanks);
  grid.SumOver(/*rows=*/false);
  grid.SumOver(/*rows=*/true);
  EXPECT_EQ(grid.NumValues(), 1U);
}

TEST(ReductionOrder, DomainsAsLargeAsTheWorldAddAsRanksDo) {
  F32Grid ranks(8, 5, ReductionOrder::kRanks);
  F32Grid domains(8, 5, ReductionOrder::kTopology, 40);
  ranks.SumOverAll();
  domains.SumOverAll();
  EXPECT_EQ(ranks.values(), domains.values());
}

// Values from different groups differ even where sums are exact.
TEST(ReductionOrder, AdversarialSetsGroupsApart) {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kProduct}) {
    F32Grid grid(4, 3, ReductionOrder::kAdversarial);
    for (auto& value : grid.values()) value.assign(kCount, 0.0F);
    grid.SumOver(/*rows=*/false, op);
    EXPECT_EQ(grid.NumValues(), 4U);
  }
}

TEST(ReductionOrder, AdversarialLeavesExactOperationsAlone) {
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
    F32Grid grid(4, 3, ReductionOrder::kAdversarial);
    for (auto& value : grid.values()) value.assign(kCount, 1.5F);
    grid.SumOver(/*rows=*/false, op);
    EXPECT_EQ(grid.NumValues(), 1U);
  }
  Grid<int32_t, DType::kI32> grid(4, 3, ReductionOrder::kAdversarial);
  for (auto& value : grid.values()) value.assign(kCount, 7);
  grid.SumOver(/*rows=*/false);
  EXPECT_EQ(grid.NumValues(), 1U);
}

TEST(ReductionOrder, ReduceScatterAddsAsAllReduceDoes) {
  for (const auto order :
       {ReductionOrder::kRanks, ReductionOrder::kTopology, ReductionOrder::kAdversarial}) {
    F32Grid grid(1, 16, order);
    const std::vector<std::vector<float>> before = grid.values();
    grid.SumOverAll();
    auto world = LocalWorld::Create({.num_ranks = 16, .num_workers = 0, .reduction_order = order});
    ASSERT_TRUE(world.ok());
    std::vector<std::unique_ptr<Stream>> streams;
    std::vector<std::vector<float>> parts(16, std::vector<float>(kCount / 16));
    for (int r = 0; r < 16; ++r) {
      Engine& engine = *(*world)->engine(r);
      streams.push_back(*engine.CreateStream());
      EXPECT_TRUE(engine.world()
                      ->ReduceScatter(before[r].data(), parts[r].data(), kCount / 16, DType::kF32,
                                      {ReduceOp::kSum, 1}, *streams[r])
                      .ok());
    }
    for (int r = 0; r < 16; ++r) {
      EXPECT_TRUE((*world)->engine(r)->Synchronize(*streams[r]).ok());
      const std::vector<float>& whole = grid.values()[r];
      EXPECT_EQ(parts[r], std::vector<float>(whole.begin() + r * kCount / 16,
                                             whole.begin() + (r + 1) * kCount / 16));
    }
  }
}

}  // namespace
}  // namespace meshift
