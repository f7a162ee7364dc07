// The second and later calls of a redistribution allocate nothing, neither from the engine nor from
// the heap.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "meshift/bootstrap.h"
#include "meshift/device_mesh.h"
#include "meshift/redistributor.h"
#include "meshift/sharding.h"
#include "meshift/symmetric.h"
#include "meshift/tensor_view.h"
#include "testing/allocation_count.h"
#include "testing/internal/noop_engine.h"

namespace meshift {
namespace {

struct Example {
  const char* mesh;
  const char* tensor;
  const char* from;
  const char* to;
};
constexpr Example kExamples[] = {
    {"a=4", "f32[16]", "P", "R"},
    {"a=4", "bf16[7,3]", "S(0)", "R"},
    {"a=4", "bf16[7,3]", "S(0)", "S(1)"},
    {"a=4,b=2", "f32[16,16]", "P,S(1)", "S(0),S(1)"},
    {"a=4,b=2", "f32[16,16]", "P,R", "R,R"},
    {"a=4,b=2", "f32[16,16]", "S(0),S(0)", "R,S(0)"},
    {"a=4,b=2", "f32[16,16]", "R,R", "S(0),R"},
};

class NoAllocationTest : public testing::TestWithParam<Example> {
 protected:
  NoAllocationTest()
      : mesh_(DeviceMesh::Parse(GetParam().mesh).value()),
        peers_(Bootstrap::InProcess(mesh_.NumRanks()).value()),
        engine_(1, mesh_.NumRanks(), peers_[1]->control()),
        from_(Sharding::Parse(GetParam().tensor, mesh_, GetParam().from).value()),
        to_(from_.WithPlacements(GetParam().to).value()),
        producer_(engine_.CreateStream().value()),
        consumer_(engine_.CreateStream().value()) {}

  // The number of allocations of `n` calls, with up to three in flight.
  int64_t Count(Redistributor& redistribute, int n, bool strided, bool with_tickets) {
    TensorView source = TensorView::Contiguous(in_.data(), from_.dtype(), from_.LocalBox(1).size);
    const TensorView target =
        TensorView::Contiguous(out_.data(), to_.dtype(), to_.LocalBox(1).size);
    for (int64_t& stride : source.strides) stride *= strided ? 2 : 1;
    RunHandle in_flight[3];
    const int64_t before = NumAllocations();
    for (int i = 0; i < n; ++i) {
      RunHandle& run = in_flight[i % 3];
      run = redistribute({.from = from_,
                          .to = to_,
                          .source = source,
                          .target = target,
                          .after = producer_.get(),
                          .after_run = in_flight[(i + 1) % 3],
                          .ticket = with_tickets ? std::optional(ticket_++) : std::nullopt})
                .value();
      EXPECT_TRUE(i % 2 == 0 || run.Wait(*consumer_).ok());
      EXPECT_TRUE(i % 5 != 0 || run.Wait().ok());
    }
    return NumAllocations() - before;
  }

  const DeviceMesh mesh_;
  const std::vector<std::unique_ptr<Bootstrap>> peers_;
  NoopEngine engine_;
  const Sharding from_;
  const Sharding to_;
  const std::unique_ptr<Stream> producer_;
  const std::unique_ptr<Stream> consumer_;
  int64_t ticket_ = 0;
  std::vector<char> in_ = std::vector<char>(1 << 14);
  std::vector<char> out_ = std::vector<char>(1 << 14);
};

TEST_P(NoAllocationTest, OfLaterCalls) {
  for (const bool with_tickets : {false, true}) {
    Redistributor redistribute =
        Redistributor::Create(mesh_, &engine_, {.agreement = Agreement::kOff}).value();
    ticket_ = 0;
    for (const bool strided : {false, true}) {
      EXPECT_GT(Count(redistribute, 4, strided, with_tickets), 0);
      EXPECT_EQ(Count(redistribute, 100, strided, with_tickets), 0) << strided << with_tickets;
    }
  }
}

// All examples of a mesh in one call, some of them twice.
TEST(NoAllocationListTest, OfLaterCalls) {
  const DeviceMesh mesh = DeviceMesh::Parse("a=4,b=2").value();
  NoopEngine engine(1, mesh.NumRanks());
  Redistributor redistribute = Redistributor::Create(mesh, &engine).value();
  std::vector<std::pair<Sharding, Sharding>> pairs;
  for (const Example& example : kExamples) {
    if (std::string(example.mesh) != "a=4,b=2") continue;
    const Sharding from = Sharding::Parse(example.tensor, mesh, example.from).value();
    pairs.insert(pairs.end(), 2, {from, from.WithPlacements(example.to).value()});
  }
  const auto producer = engine.CreateStream().value();
  std::vector<std::vector<char>> memory(2 * pairs.size(), std::vector<char>(1 << 12));
  std::vector<Redistribution> list;
  for (size_t i = 0; i < pairs.size(); ++i) {
    const auto& [from, to] = pairs[i];
    list.push_back({.from = from,
                    .to = to,
                    .source = TensorView::Contiguous(memory[2 * i].data(), from.dtype(),
                                                     from.LocalBox(1).size),
                    .target = TensorView::Contiguous(memory[2 * i + 1].data(), to.dtype(),
                                                     to.LocalBox(1).size),
                    .after = producer.get()});
  }
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(redistribute(list).ok());
  const int64_t before = NumAllocations();
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(redistribute(list).ok());
  EXPECT_EQ(NumAllocations(), before);
}

// Empty if the rank is not in the sharding's mesh.
TensorView PartOf(const Sharding& sharding, int64_t rank, std::vector<char>& memory) {
  if (!sharding.mesh().PositionOf(rank)) return {};
  return TensorView::Contiguous(memory.data(), DType::kF32, sharding.LocalBox(rank).size);
}

// From one mesh to another, whether the rank is in the first, in both, in the second or in neither.
TEST(NoAllocationCrossTest, OfLaterCalls) {
  const DeviceMesh all = DeviceMesh::Parse("ranks=8").value();
  const Sharding from = Sharding::Parse("f32[16,4] on a=4 as S(0)").value();
  const Sharding to = Sharding::Parse("f32[16,4] on b=2,c=2@2-5 as S(1),S(0)").value();
  std::vector<char> in(1 << 10);
  std::vector<char> out(1 << 10);
  for (const int64_t rank : {0, 2, 5, 7}) {
    NoopEngine engine(rank, all.NumRanks());
    Redistributor redistribute = Redistributor::Create(all, &engine).value();
    const Redistribution what{
        .from = from, .to = to, .source = PartOf(from, rank, in), .target = PartOf(to, rank, out)};
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(redistribute(what).ok());
    const int64_t before = NumAllocations();
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(redistribute(what).ok());
    EXPECT_EQ(NumAllocations(), before) << "on rank " << rank;
  }
}

// A list from one mesh to another, planned together.
TEST(NoAllocationCrossTest, OfLaterLists) {
  const DeviceMesh all = DeviceMesh::Parse("ranks=8").value();
  for (const int64_t rank : {0, 2, 5, 7}) {
    NoopEngine engine(rank, all.NumRanks());
    Redistributor redistribute = Redistributor::Create(all, &engine).value();
    std::vector<std::vector<char>> memory(8, std::vector<char>(1 << 10));
    std::vector<Redistribution> list;
    for (size_t i = 0; i < 4; ++i) {
      const Sharding from = Sharding::Parse("f32[16,4] on a=4 as R").value();
      const Sharding to =
          Sharding::Parse("f32[16,4] on b=4@2-5 as At(" + std::to_string(i) + ")").value();
      list.push_back({.from = from,
                      .to = to,
                      .source = PartOf(from, rank, memory[2 * i]),
                      .target = PartOf(to, rank, memory[2 * i + 1])});
    }
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(redistribute(list).ok());
    const int64_t before = NumAllocations();
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(redistribute(list).ok());
    EXPECT_EQ(NumAllocations(), before) << "on rank " << rank;
  }
}

// Calls that name symmetric memory allocate nothing either, whether they use it or not.
TEST(NoAllocationSymmetricTest, OfLaterCalls) {
  const DeviceMesh mesh = DeviceMesh::Parse("a=4").value();
  NoopEngine engine(1, mesh.NumRanks());
  Redistributor redistribute = Redistributor::Create(mesh, &engine).value();
  const auto pool = redistribute.MakeSymmetricPool({0}, {.buffer_bytes = 4096}).value();
  const SymmetricBlock in = pool->Allocate(256).value();
  const SymmetricBlock out = pool->Allocate(256).value();
  const Sharding from = Sharding::Parse("f32[16]", mesh, "S(0)").value();
  const Sharding to = from.WithPlacements("R").value();
  for (const bool hit : {true, false}) {
    const SymmetricUse use{.pool = pool.get(),
                           .source = pool->TensorAt(in.data),
                           .target = hit ? pool->TensorAt(out.data) : SymmetricTensor()};
    const Redistribution what{.from = from,
                              .to = to,
                              .source = TensorView::Contiguous(in.data, DType::kF32, {4}),
                              .target = TensorView::Contiguous(out.data, DType::kF32, {16}),
                              .symmetric = &use};
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(redistribute(what).ok());
    const int64_t before = NumAllocations();
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(redistribute(what).ok());
    EXPECT_EQ(NumAllocations(), before) << hit;
  }
  EXPECT_EQ(redistribute.stats().symmetric.hits, 104);
  EXPECT_EQ(redistribute.stats().symmetric.Missed(SymmetricMiss::kTarget), 104);
}

INSTANTIATE_TEST_SUITE_P(Examples, NoAllocationTest, testing::ValuesIn(kExamples));

}  // namespace
}  // namespace meshift
