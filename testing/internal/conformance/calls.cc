// Many calls of a redistributor on one mesh create each group only once.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "meshift/device_mesh.h"
#include "meshift/engine.h"
#include "meshift/redistributor.h"
#include "meshift/sharding.h"
#include "meshift/tensor_view.h"
#include "testing/internal/conformance/conformance.h"
#include "testing/internal/conformance/memory.h"

namespace meshift::conformance {
namespace {

constexpr size_t kPairs = 40;
constexpr int64_t kRounds = 25;
constexpr int64_t kMostBytes = 1024;  // the largest tensor below

struct Pair {
  Sharding from;
  Sharding to;
};

DeviceMesh MeshOf(int64_t ranks) {
  const std::string text = ranks == 8   ? "a=2,b=2,c=2"
                           : ranks == 6 ? "a=3,b=2"
                           : ranks == 4 ? "a=2,b=2"
                                        : fmt::format("a={}", ranks);
  return DeviceMesh::Parse(text).value();
}

std::vector<Pair> DistinctPairs(const DeviceMesh& mesh) {
  constexpr const char* kPlacements[] = {"R", "S(0)", "S(1)", "P"};
  constexpr const char* kTensors[] = {"f32[6,7]", "bf16[5,9]", "i16[8,4]", "f64[3,5]"};
  std::minstd_rand random(static_cast<unsigned>(mesh.NumRanks()));
  const auto placements = [&] {
    std::string text = kPlacements[random() % 4];
    for (int d = 1; d < mesh.NumDims(); ++d) text += fmt::format(",{}", kPlacements[random() % 4]);
    return text;
  };
  std::vector<Pair> pairs;
  std::set<std::string> seen;
  while (pairs.size() < kPairs) {
    const Sharding from = Sharding::Parse(kTensors[random() % 4], mesh, placements()).value();
    const Sharding to = from.WithPlacements(placements()).value();
    if (from == to || !seen.insert(from.ToString() + to.ToString()).second) continue;
    pairs.push_back({from, to});
  }
  return pairs;
}

TEST_P(EngineConformance, AThousandCallsMakeEachGroupOnce) {
  ForEachSize([](ConformanceJob& job) {
    if (job.size() == 1) return;
    const DeviceMesh mesh = MeshOf(job.size());
    const std::vector<Pair> pairs = DistinctPairs(mesh);
    struct Rank {
      std::unique_ptr<Buffer> in;
      std::unique_ptr<Buffer> out;
      std::optional<Redistributor> redistribute;
      RunHandle last;
      RedistributorStats first;
    };
    std::vector<Rank> ranks(job.size());
    // In sequence, since all use the same memory.
    const auto call_all = [&](int64_t r) {
      Rank& rank = ranks[r];
      for (const Pair& pair : pairs) {
        const auto view = [&](const Buffer& buffer, const Sharding& sharding) {
          return TensorView::Contiguous(buffer.data(), sharding.dtype(), sharding.LocalBox(r).size);
        };
        absl::StatusOr<RunHandle> run = (*rank.redistribute)({.from = pair.from,
                                                              .to = pair.to,
                                                              .source = view(*rank.in, pair.from),
                                                              .target = view(*rank.out, pair.to),
                                                              .after_run = rank.last});
        ASSERT_TRUE(run.ok()) << run.status();
        rank.last = *std::move(run);
      }
    };
    job.Run({[&](Engine& engine, int64_t r) {
               ranks[r].in = engine.Allocate(kMostBytes).value();
               ranks[r].out = engine.Allocate(kMostBytes).value();
               // The ranks call in sequence here; agreement would wait for all of them at once.
               ranks[r].redistribute =
                   Redistributor::Create(mesh, &engine, {.agreement = Agreement::kOff}).value();
               call_all(r);
             },
             [&](Engine&, int64_t r) {
               MESHIFT_EXPECT_OK(ranks[r].last.Wait());
               ranks[r].first = ranks[r].redistribute->stats();
               for (int64_t round = 1; round < kRounds; ++round) call_all(r);
             },
             [&](Engine&, int64_t r) {
               MESHIFT_EXPECT_OK(ranks[r].last.Wait());
               const RedistributorStats first = ranks[r].first;
               const RedistributorStats stats = ranks[r].redistribute->stats();
               EXPECT_EQ(stats.calls, kRounds * static_cast<int64_t>(kPairs));
               EXPECT_EQ(stats.plans_made, kPairs);
               EXPECT_EQ(stats.programs_made, first.programs_made);
               EXPECT_EQ(stats.groups.created, first.groups.created);
               // A group for each subset of the mesh dims; that of all dims is the root.
               EXPECT_LE(stats.groups.created, (1 << mesh.NumDims()) - 2);
             },
             [&](Engine&, int64_t r) { ranks[r] = Rank(); }});
  });
}

}  // namespace
}  // namespace meshift::conformance
