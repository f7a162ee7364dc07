// Redistributions on symmetric memory of the local engine.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "base/status.h"
#include "comm/symmetric/symmetric_form.h"
#include "meshift/bootstrap.h"
#include "meshift/device_mesh.h"
#include "meshift/local_world.h"
#include "meshift/plan.h"
#include "meshift/planner.h"
#include "meshift/redistributor.h"
#include "meshift/sharding.h"
#include "meshift/tensor_view.h"
#include "testing/internal/conformance/symmetric_check.h"
#include "testing/internal/fake_engine.h"

namespace meshift {
namespace {

template <typename Work>
void OnThreads(int64_t n, const Work& work) {
  std::vector<std::thread> threads;
  for (int64_t r = 0; r < n; ++r) threads.emplace_back([&, r] { work(r); });
  for (std::thread& thread : threads) thread.join();
}

TEST(SymmetricTest, DoesWhatTheOrdinaryCallDoes) {
  for (const char* text : {"a=2,b=2", "a=3,b=2", "a=4,b=2"}) {
    for (const ReductionOrder order : {ReductionOrder::kRanks, ReductionOrder::kTopology}) {
      const DeviceMesh mesh = DeviceMesh::Parse(text).value();
      const int64_t n = mesh.NumRanks();
      const auto world =
          LocalWorld::Create({.num_ranks = n, .reduction_order = order, .domain_size = 3}).value();
      OnThreads(n, [&](int64_t r) {
        EXPECT_EQ(Message(CheckSymmetric(world->engine(r), mesh,
                                         {.cases = 120, .seed = static_cast<uint64_t>(n)})),
                  "")
            << text;
      });
    }
  }
}

// A barrier of both ranks: no rank leaves while its peer may still call it.
class Meeting {
 public:
  void Arrive() {
    ++arrived_;
    while (arrived_ < 2) std::this_thread::yield();
  }

 private:
  std::atomic<int> arrived_ = 0;
};

// One all-gather on two ranks; the arguments of one may differ.
struct Said {
  bool source = true;
  bool target = true;
  bool symmetric = true;
};
std::vector<absl::Status> Disagree(const Said& first, bool control, Agreement agreement) {
  const DeviceMesh mesh = DeviceMesh::Parse("a=2").value();
  const auto peers = Bootstrap::InProcess(2).value();
  LocalWorldOptions options{.num_ranks = 2, .timeout = std::chrono::milliseconds(300)};
  if (control) options.control = {peers[0]->control(), peers[1]->control()};
  const auto world = LocalWorld::Create(options).value();
  std::vector<absl::Status> ends(2);
  Meeting end;
  OnThreads(2, [&](int64_t r) {
    const Said said = r == 0 ? first : Said();
    Redistributor redistribute =
        Redistributor::Create(mesh, world->engine(r),
                              {.agreement = agreement, .timeout = std::chrono::milliseconds(300)})
            .value();
    const auto pool = redistribute.MakeSymmetricPool({0}, {.buffer_bytes = 4096}).value();
    const SymmetricBlock a = pool->Allocate(256).value();
    const SymmetricBlock b = pool->Allocate(256).value();
    const Sharding from = Sharding::Parse("f32[8]", mesh, "S(0)").value();
    const Sharding to = from.WithPlacements("R").value();
    const SymmetricUse use{.pool = pool.get(),
                           .source = said.source ? pool->TensorAt(a.data) : SymmetricTensor(),
                           .target = said.target ? pool->TensorAt(b.data) : SymmetricTensor()};
    const auto run = redistribute({.from = from,
                                   .to = to,
                                   .source = TensorView::Contiguous(a.data, DType::kF32, {4}),
                                   .target = TensorView::Contiguous(b.data, DType::kF32, {8}),
                                   .symmetric = said.symmetric ? &use : nullptr});
    ends[r] = run.ok() ? run->Wait() : run.status();
    end.Arrive();
  });
  return ends;
}

TEST(SymmetricTest, RanksThatSayDifferentThingsLearnBoth) {
  for (const Agreement agreement : {Agreement::kFirstCalls, Agreement::kOff}) {
    for (const Said& said :
         {Said{.source = false}, Said{.target = false}, Said{.symmetric = false}}) {
      for (const absl::Status& end : Disagree(said, /*control=*/true, agreement)) {
        EXPECT_EQ(end.code(), absl::StatusCode::kFailedPrecondition) << end;
        // The error has the texts of both ranks.
        EXPECT_NE(Message(end).find("source block 1+0 (buffer 0+0, 256 bytes), target block 2+0"),
                  std::string::npos)
            << end;
      }
    }
  }
}

TEST(SymmetricTest, WithoutAControlChannelTheEngineTells) {
  for (const Said& said : {Said{.source = false}, Said{.symmetric = false}}) {
    for (const absl::Status& end : Disagree(said, /*control=*/false, Agreement::kOff)) {
      EXPECT_EQ(end.code(), absl::StatusCode::kFailedPrecondition) << end;
      EXPECT_NE(Message(end).find("symmetric 0+0 -> 0+256"), std::string::npos) << end;
    }
  }
}

// If pools have different histories, blocks of one number are at different places.
TEST(SymmetricTest, BlocksAtOtherPlacesAreNamed) {
  const DeviceMesh mesh = DeviceMesh::Parse("a=2").value();
  const auto peers = Bootstrap::InProcess(2).value();
  const auto world =
      LocalWorld::Create({.num_ranks = 2, .control = {peers[0]->control(), peers[1]->control()}})
          .value();
  Meeting end;
  OnThreads(2, [&](int64_t r) {
    Redistributor redistribute = Redistributor::Create(mesh, world->engine(r)).value();
    const auto pool = redistribute.MakeSymmetricPool({0}, {.buffer_bytes = 4096}).value();
    const SymmetricBlock a = pool->Allocate(r == 0 ? 256 : 512).value();
    const SymmetricBlock b = pool->Allocate(256).value();
    const Sharding from = Sharding::Parse("f32[8]", mesh, "S(0)").value();
    const SymmetricUse use{pool.get(), pool->TensorAt(a.data), pool->TensorAt(b.data)};
    const auto run = redistribute({.from = from,
                                   .to = from.WithPlacements("R").value(),
                                   .source = TensorView::Contiguous(a.data, DType::kF32, {4}),
                                   .target = TensorView::Contiguous(b.data, DType::kF32, {8}),
                                   .symmetric = &use});
    EXPECT_EQ(run.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_NE(Message(run.status()).find("target block 2+0 (buffer 0+256, 256 bytes)"),
              std::string::npos)
        << run.status();
    EXPECT_NE(Message(run.status()).find("target block 2+0 (buffer 0+512, 256 bytes)"),
              std::string::npos)
        << run.status();
    end.Arrive();
  });
}

TEST(SymmetricTest, PoolsOfDifferentSizesAreNamed) {
  const DeviceMesh mesh = DeviceMesh::Parse("a=2").value();
  const auto peers = Bootstrap::InProcess(2).value();
  const auto world =
      LocalWorld::Create({.num_ranks = 2, .control = {peers[0]->control(), peers[1]->control()}})
          .value();
  Meeting end;
  OnThreads(2, [&](int64_t r) {
    Redistributor redistribute = Redistributor::Create(mesh, world->engine(r)).value();
    const auto pool = redistribute.MakeSymmetricPool({0}, {.buffer_bytes = 4096 * (1 + r)});
    EXPECT_EQ(pool.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_NE(Message(pool.status()).find("1 of at most 8 buffers of 8192 bytes"),
              std::string::npos)
        << pool.status();
    end.Arrive();
  });
}

TEST(SymmetricTest, PoolsAreOfGroupsAndOfTheirRedistributor) {
  const DeviceMesh mesh = DeviceMesh::Parse("a=2,b=1").value();
  const auto world = LocalWorld::Create({.num_ranks = 2}).value();
  Redistributor redistribute = Redistributor::Create(mesh, world->engine(0)).value();
  Redistributor other = Redistributor::Create(mesh, world->engine(0)).value();
  EXPECT_EQ(Message(redistribute.MakeSymmetricPool({1}).status()),
            "a symmetric pool needs groups of two or more ranks");
  EXPECT_EQ(Message(redistribute.MakeSymmetricPool({1, 0}).status()),
            "mesh dim 0 of a symmetric pool is out of range or not in mesh order");
  const auto pool = other.MakeSymmetricPool({0}, {.buffer_bytes = 4096}).value();
  const Sharding from = Sharding::Parse("f32[8]", mesh, "S(0),R").value();
  const SymmetricUse use{.pool = pool.get()};
  float data[16] = {};
  EXPECT_EQ(Message(redistribute({.from = from,
                                  .to = from.WithPlacements("R,R").value(),
                                  .source = TensorView::Contiguous(data, DType::kF32, {4}),
                                  .target = TensorView::Contiguous(data + 8, DType::kF32, {8}),
                                  .symmetric = &use})
                        .status()),
            "the symmetric use does not name a pool of this redistributor");
  const std::vector<Redistribution> list = {
      {.from = from,
       .to = from.WithPlacements("R,R").value(),
       .source = TensorView::Contiguous(data, DType::kF32, {4}),
       .target = TensorView::Contiguous(data + 8, DType::kF32, {8}),
       .symmetric = &use}};
  EXPECT_EQ(Message(redistribute(list).status()),
            "tensor 0: the symmetric use does not name a pool of this redistributor");
  // An engine without symmetric memory returns UNIMPLEMENTED, and still works.
  FakeEngine fake(1, 2);
  Redistributor plain = Redistributor::Create(mesh, &fake).value();
  const absl::Status none = plain.MakeSymmetricPool({0}).status();
  EXPECT_EQ(none.code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(Message(none).find("this engine has no symmetric memory"), std::string::npos);
  EXPECT_TRUE(plain.Prepare(from, from.WithPlacements("R,R").value()).ok());
}

// A pool outlives its redistributor, and calls are ordered after earlier work.
TEST(SymmetricTest, WorkIsOrderedAsAlways) {
  const DeviceMesh mesh = DeviceMesh::Parse("a=2").value();
  const auto world = LocalWorld::Create({.num_ranks = 2, .num_workers = 0}).value();
  const Sharding cut = Sharding::Parse("f32[8]", mesh, "S(0)").value();
  const Sharding whole = cut.WithPlacements("R").value();
  const Sharding partial = cut.WithPlacements("P").value();
  struct Rank {
    std::unique_ptr<SymmetricPool> pool;
    SymmetricBlock a, b, c;
    RunHandle last;
  };
  std::vector<Rank> ranks(2);
  for (int r = 0; r < 2; ++r) {
    Rank& rank = ranks[r];
    Redistributor redistribute =
        Redistributor::Create(mesh, world->engine(r), {.expert = {.time_steps = true}}).value();
    rank.pool = redistribute.MakeSymmetricPool({0}, {.buffer_bytes = 4096}).value();
    for (SymmetricBlock* block : {&rank.a, &rank.b, &rank.c}) {
      *block = rank.pool->Allocate(256).value();
    }
    const std::vector<float> values = {1.0F + static_cast<float>(r), 3, 4, 5};
    const auto producer = world->engine(r)->CreateStream().value();
    ASSERT_TRUE(world->engine(r)->CopyIn(values.data(), rank.a.data, 16, *producer).ok());
    const SymmetricUse gather{rank.pool.get(), {1, 0}, {2, 0}};
    const SymmetricUse scatter{rank.pool.get(), {2, 0}, {3, 0}};
    const auto first =
        redistribute({.from = cut,
                      .to = whole,
                      .source = TensorView::Contiguous(rank.a.data, DType::kF32, {4}),
                      .target = TensorView::Contiguous(rank.b.data, DType::kF32, {8}),
                      .after = producer.get(),
                      .symmetric = &gather});
    ASSERT_TRUE(first.ok()) << first.status();
    const auto second =
        redistribute({.from = partial,
                      .to = cut,
                      .source = TensorView::Contiguous(rank.b.data, DType::kF32, {8}),
                      .target = TensorView::Contiguous(rank.c.data, DType::kF32, {4}),
                      .after_run = *first,
                      .symmetric = &scatter});
    ASSERT_TRUE(second.ok()) << second.status();
    rank.last = *second;
    EXPECT_EQ(redistribute.stats().symmetric.hits, 2);
    EXPECT_EQ(redistribute.last_run().events.size(), 2);
  }
  for (int r = 0; r < 2; ++r) {
    ASSERT_TRUE(ranks[r].last.Wait().ok());
    const auto* data = static_cast<const float*>(ranks[r].c.data);
    EXPECT_EQ(std::vector<float>(data, data + 4),
              (std::vector<float>{2.0F + 2.0F * static_cast<float>(r), 6, 8, 10}));
  }
}

Plan PlanOf(const char* mesh_text, const char* tensor, const char* from_text, const char* to_text,
            const PlannerOptions& options = {}) {
  const DeviceMesh mesh = DeviceMesh::Parse(mesh_text).value();
  const Sharding from = Sharding::Parse(tensor, mesh, from_text).value();
  return MakePlan(from, from.WithPlacements(to_text).value(), options).value();
}

TEST(SymmetricFormTest, IsOneGatherOrScatterOfBlocksInOrder) {
  const auto miss = [](const Plan& plan, int64_t rank = 0) {
    return SymmetricFormOf(plan, rank).miss;
  };
  EXPECT_EQ(miss(PlanOf("a=2", "f32[8,8]", "S(0)", "R")), std::nullopt);
  EXPECT_EQ(miss(PlanOf("a=2", "f32[8]", "P", "R")), SymmetricMiss::kOperation);
  EXPECT_EQ(miss(PlanOf("a=2", "f32[8]", "R", "R")), SymmetricMiss::kOperation);  // no step
  EXPECT_EQ(miss(PlanOf("a=2", "f32[8,8]", "S(1)", "R")), SymmetricMiss::kOperation);
  // Ranks are not in the order of their coordinates, so members' blocks are not in order.
  EXPECT_EQ(miss(PlanOf("a=2@1,0", "f32[8,8]", "S(0)", "R")), SymmetricMiss::kOperation);
  EXPECT_EQ(miss(PlanOf("a=2", "f32[8,8]", "S(0)", "R"), 2), SymmetricMiss::kGroup);
}

TEST(SymmetricFormTest, KeepsThePromise) {
  // Summed over a for each coordinate of b: two groups would form the same sums.
  const Plan twice =
      PlanOf("a=2,b=2", "f32[8]", "P,R", "S(0),R",
             {.reproducibility = Reproducibility::kNone, .planner = PlannerKind::kPerDim});
  ASSERT_EQ(twice.steps().size(), 1);
  EXPECT_FALSE(SymmetricFormOf(twice, 0).miss.has_value());
  PlanFields fields = twice.fields();
  fields.inputs.options.reproducibility = Reproducibility::kReplicas;
  EXPECT_EQ(SymmetricFormOf(Plan::Seal(fields), 0).miss, SymmetricMiss::kPromise);
  // Sums of integers do not depend on the order.
  const Plan integers =
      PlanOf("a=2,b=2", "i32[8]", "P,R", "S(0),R",
             {.reproducibility = Reproducibility::kNone, .planner = PlannerKind::kPerDim});
  fields = integers.fields();
  fields.inputs.options.reproducibility = Reproducibility::kOrdered;
  EXPECT_FALSE(SymmetricFormOf(Plan::Seal(fields), 0).miss.has_value());
  // Batch invariance needs the bits of the ordinary call.
  const Plan once = PlanOf("a=2,b=2", "f32[8,4]", "P,S(1)", "S(0),S(1)");
  EXPECT_FALSE(SymmetricFormOf(once, 0).needs_same_bits);
  fields = once.fields();
  fields.inputs.options.reproducibility = Reproducibility::kBatchInvariant;
  EXPECT_TRUE(SymmetricFormOf(Plan::Seal(fields), 0).needs_same_bits);
  fields.steps[0].reduce_order = ReduceOrder::kAscending;
  EXPECT_EQ(SymmetricFormOf(Plan::Seal(fields), 0).miss, SymmetricMiss::kPromise);
}

}  // namespace
}  // namespace meshift
