#include "cli/gather.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/local_tensors.h"
#include "meshift/device_mesh.h"
#include "meshift/local_world.h"
#include "meshift/sharding.h"
#include "meshift/status.h"

namespace meshift::cli {
namespace {

std::byte ByteOf(int64_t rank, size_t i) { return static_cast<std::byte>(rank * 31 + i * 7 + 1); }

// Gathers a tensor whose shards are filled by rank among `world` ranks. Expects that rank 0 has the
// right values, and that no rank took more staging memory than a round needs.
void ExpectGathered(const Sharding& sharding, int64_t world, int64_t round_bytes) {
  const auto engines = LocalWorld::Create({.num_ranks = world, .num_workers = 2}).value();
  std::vector<absl::Status> results(world);
  std::vector<LocalTensors> tensors;
  for (int64_t rank = 0; rank < world; ++rank) {
    tensors.emplace_back(sharding, [rank](int64_t r) { return rank == 0 || r == rank; });
    tensors[rank].Poison();
    const auto own = sharding.mesh().PositionOf(rank);
    if (!own) continue;
    const auto bytes = tensors[rank].at(*own);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = ByteOf(rank, i);
  }
  {
    std::vector<std::jthread> threads;
    for (int64_t rank = 0; rank < world; ++rank) {
      threads.emplace_back([&, rank] {
        results[rank] = [&]() -> absl::Status {
          MESHIFT_ASSIGN_OR_RETURN(TensorGather gather,
                                   TensorGather::Prepare(*engines->engine(rank), sharding.mesh(),
                                                         tensors[rank], round_bytes));
          EXPECT_LE(gather.staging_bytes(), round_bytes);
          return gather.Run(&tensors[rank]);
        }();
      });
    }
  }
  for (const absl::Status& result : results) EXPECT_TRUE(result.ok()) << result;
  for (int64_t p = 0; p < sharding.mesh().NumRanks(); ++p) {
    const auto bytes = tensors[0].at(p);
    ASSERT_EQ(bytes.size(), tensors[0].SizeAt(p));
    for (size_t i = 0; i < bytes.size(); ++i) {
      ASSERT_EQ(bytes[i], ByteOf(sharding.mesh().RankAt(p), i)) << p << " " << i;
    }
  }
}

Sharding Make(const std::string& mesh, const std::string& tensor, const std::string& placements) {
  return Sharding::Parse(tensor, DeviceMesh::Parse(mesh).value(), placements).value();
}

TEST(Gather, InRoundsOfAnySize) {
  for (const int64_t round_bytes : {1, 3, 40, 1 << 20}) {
    ExpectGathered(Make("a=5", "u8[33]", "S(0)"), 5, round_bytes);
    ExpectGathered(Make("a=3,b=2", "f32[5,2]", "P,R"), 6, round_bytes);
  }
}

TEST(Gather, RanksOutsideOfTheMeshTakePart) {
  ExpectGathered(Make("a=2", "u8[100]", "S(0)"), 33, 16);
  ExpectGathered(Make("a=3@4,1,7", "u8[100]", "S(0)"), 9, 16);
}

TEST(Gather, OfNothing) {
  ExpectGathered(Make("a=3", "u8[0]", "R"), 3, 16);
  ExpectGathered(Make("a=1", "u8[7]", "R"), 1, 16);
  ExpectGathered(Make("a=4", "u8[2]", "S(0)"), 4, 16);
}

}  // namespace
}  // namespace meshift::cli
