// Calls with ragged rows: the bytes that move, by the test's own count; and a quantized payload and
// its scales share one collective.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "meshift/device_mesh.h"
#include "meshift/local_world.h"
#include "meshift/placement.h"
#include "meshift/planner.h"
#include "meshift/redistributor.h"
#include "meshift/sharding.h"
#include "meshift/status.h"
#include "meshift/tensor_view.h"
#include "meshift/testing.h"
#include "testing/payload_check.h"
#include "testing/random.h"

namespace meshift {
namespace {

using testkit::Fill;
using testkit::Oracle;
using testkit::Random;

constexpr int64_t kRanks = 4;

struct Tensor {
  Sharding from;
  Sharding to;
};

// The results of a call.
struct Outcome {
  int64_t wrong = 0;
  int64_t bytes_sent = 0;  // by all ranks
  std::string first;
};

// Redistributes the tensor in one call per rank, all ranks from this thread.
absl::StatusOr<Outcome> RunAll(const Tensor& tensor, RaggedSizes sizes) {
  const auto& [from, to] = tensor;
  MESHIFT_ASSIGN_OR_RETURN(const auto world,
                           LocalWorld::Create({.num_ranks = kRanks, .num_workers = 0}));
  MESHIFT_ASSIGN_OR_RETURN(const Oracle oracle, Oracle::Create(from, to));
  std::vector<std::vector<std::byte>> sources(kRanks);
  std::vector<std::vector<std::byte>> targets(kRanks);
  std::vector<Redistributor> redistributors;
  std::vector<RunHandle> runs;
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    MESHIFT_ASSIGN_OR_RETURN(Redistributor redistribute,
                             Redistributor::Create(from.mesh(), world->engine(rank),
                                                   {.planning = {.ragged_sizes = sizes}}));
    redistributors.push_back(std::move(redistribute));
    sources[rank].resize(oracle.SourceBytes(rank));
    targets[rank].resize(oracle.TargetBytes(rank), std::byte{0xa5});
    MESHIFT_RETURN_IF_ERROR(oracle.FillSource(Fill(), rank, absl::MakeSpan(sources[rank])));
    MESHIFT_ASSIGN_OR_RETURN(
        RunHandle run,
        redistributors[rank]({.from = from,
                              .to = to,
                              .source = TensorView::Contiguous(sources[rank].data(), from.dtype(),
                                                               from.LocalBox(rank).size),
                              .target = TensorView::Contiguous(targets[rank].data(), to.dtype(),
                                                               to.LocalBox(rank).size)}));
    runs.push_back(std::move(run));
  }
  for (RunHandle& run : runs) MESHIFT_RETURN_IF_ERROR(run.Wait());
  Outcome outcome;
  for (const Redistributor& redistribute : redistributors) {
    for (const int64_t bytes : redistribute.last_run().bytes_sent) outcome.bytes_sent += bytes;
  }
  const std::vector<absl::Span<const std::byte>> views(targets.begin(), targets.end());
  MESHIFT_ASSIGN_OR_RETURN(const auto result, oracle.Check(Fill(), views));
  outcome.wrong = result.wrong + result.replicas_differ;
  outcome.first = result.ToString();
  return outcome;
}

// Random numbers of rows per rank; none on some ranks, or all on one.
Placement::Sizes RandomRows(Random& random) {
  Placement::Sizes sizes(kRanks, 0);
  const int64_t kind = random.Below(4);
  if (kind == 0) sizes[random.Below(kRanks)] = 1 + random.Below(40);
  for (int64_t& size : sizes) {
    if (kind > 0) size = random.OneIn(3) ? 0 : random.Below(12);
  }
  return sizes;
}

// Distributes `total` rows differently.
Placement::Sizes OtherRows(int64_t total, Random& random) {
  Placement::Sizes sizes(kRanks, 0);
  for (int64_t row = 0; row < total; ++row) ++sizes[random.Below(1 + random.Below(kRanks))];
  return sizes;
}

// The first row of each rank.
std::vector<int64_t> Begins(const Placement::Sizes& rows) {
  std::vector<int64_t> begins = {0};
  for (const int64_t size : rows) begins.push_back(begins.back() + size);
  return begins;
}

TEST(RaggedRedistributeTest, SumMovesWhatIsNeededAndMaxThePadding) {
  const DeviceMesh mesh = *DeviceMesh::Parse("ep=4");
  constexpr int64_t kRowBytes = 5 * 4;
  int64_t seen[3][2] = {};  // per kind: padded and exact
  for (uint64_t seed = 0; seed < 600; ++seed) {
    Random random(seed);
    const Placement::Sizes rows = RandomRows(random);
    const int64_t total = std::accumulate(rows.begin(), rows.end(), int64_t{0});
    const int64_t most = *std::max_element(rows.begin(), rows.end());
    const Placement::Sizes others = OtherRows(total, random);
    const TensorType type = {DType::kF32, {total, 5}};
    const auto as = [&](const Placement& placement) {
      return *Sharding::Create(mesh, type, {placement});
    };
    const Sharding ragged = as(Placement::RaggedShard(0, rows));
    const Sharding other = as(Placement::RaggedShard(0, others));
    if (!ragged.placement(0).IsRagged()) continue;
    const int64_t kind = static_cast<int64_t>(seed % 3);
    const Tensor tensor = kind == 0   ? Tensor{ragged, as(Placement::Replicate())}
                          : kind == 1 ? Tensor{as(Placement::Partial()), ragged}
                                      : Tensor{ragged, other};
    int64_t need =
        (kRanks - 1) * total * kRowBytes;  // bytes that each rank needs, or has for others
    // The rows of one owner are never padded.
    int64_t padded = most == total ? need : kRanks * (kRanks - 1) * most * kRowBytes;
    if (kind == 2) {
      const std::vector<int64_t> from = Begins(rows);
      const std::vector<int64_t> to = Begins(others);
      need = 0;
      for (int64_t r = 0; r < kRanks; ++r) {
        const int64_t kept = std::min(from[r + 1], to[r + 1]) - std::max(from[r], to[r]);
        need += (others[r] - std::max<int64_t>(kept, 0)) * kRowBytes;
      }
      padded = need;
    }
    for (const RaggedSizes sizes : {RaggedSizes::kMax, RaggedSizes::kSum}) {
      // If padding is expensive, two other steps may cost less; those cases are not checked here.
      const auto plan = MakePlan(tensor.from, tensor.to, {.ragged_sizes = sizes});
      ASSERT_TRUE(plan.ok()) << plan.status();
      if (plan->steps().size() > 1) continue;
      ++seen[kind][sizes == RaggedSizes::kMax ? 0 : 1];
      SCOPED_TRACE(fmt::format("{}: {} -> {}, {}", seed, tensor.from.ToString(),
                               tensor.to.PlacementsText(), Name(sizes)));
      const auto outcome = RunAll(tensor, sizes);
      ASSERT_TRUE(outcome.ok()) << outcome.status();
      EXPECT_EQ(outcome->wrong, 0) << outcome->first;
      EXPECT_EQ(outcome->bytes_sent, sizes == RaggedSizes::kMax ? padded : need);
    }
  }
  for (const auto& of_kind : seen) {
    EXPECT_GT(of_kind[0], 20);
    EXPECT_GT(of_kind[1], 60);
  }
}

TEST(RaggedRedistributeTest, PayloadAndScalesGoInOneCollective) {
  for (const int64_t ranks : {2, 4, 7}) {
    auto world = LocalWorld::Create({.num_ranks = ranks});
    ASSERT_TRUE(world.ok()) << world.status();
    std::vector<std::thread> threads;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        EXPECT_EQ(Message(testkit::CheckPayloads((*world)->engine(rank), {.cases = 200})), "");
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(RaggedRedistributeTest, CutsInsideAByteAreRefused) {
  const DeviceMesh mesh = *DeviceMesh::Parse("ep=2");
  const auto odd = Sharding::Parse("f4e2m1[4,8]", mesh, "S(1){3,5}");
  EXPECT_EQ(odd.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Message(odd.status()), "f4e2m1[4,8]: mesh dim ep cuts tensor dim 1 inside a byte");
  EXPECT_TRUE(Sharding::Parse("f4e2m1[4,8]", mesh, "S(1){2,6}").ok());
}

}  // namespace
}  // namespace meshift
