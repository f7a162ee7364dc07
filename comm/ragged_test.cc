#include "meshift/ragged.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "meshift/device_mesh.h"
#include "meshift/local_world.h"
#include "testing/internal/fake_engine.h"

namespace meshift {
namespace {

struct Asked {
  int mesh_dim = 0;
  int64_t rows = 0;
};

// The results of all ranks of the mesh, by position. Each rank has a thread.
std::vector<absl::StatusOr<Placement::Sizes>> Gather(const DeviceMesh& mesh, int64_t world_size,
                                                     const std::vector<Asked>& asked) {
  auto world = LocalWorld::Create({.num_ranks = world_size});
  std::vector<absl::StatusOr<Placement::Sizes>> results(mesh.NumRanks());
  std::vector<std::thread> threads;
  for (int64_t p = 0; p < mesh.NumRanks(); ++p) {
    threads.emplace_back([&, p] {
      auto exchange = SizeExchange::Create(mesh, (*world)->engine(mesh.RankAt(p)));
      if (!exchange.ok()) {
        results[p] = exchange.status();
        return;
      }
      // Twice, to check that a call leaves no state.
      const auto first = (*exchange)->Gather(0, 1);
      ASSERT_TRUE(first.ok()) << first.status();
      EXPECT_EQ(*first, Placement::Sizes(mesh.dim(0).size, 1));
      results[p] = (*exchange)->Gather(asked[p].mesh_dim, asked[p].rows);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

TEST(SizeExchangeTest, AllRanksLearnTheSizes) {
  const DeviceMesh mesh = *DeviceMesh::Parse("dp=3,tp=2");
  for (const auto& result : Gather(mesh, 6, {{0, 3}, {0, 3}, {0, 0}, {0, 0}, {0, 5}, {0, 5}})) {
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(*result, (Placement::Sizes{3, 0, 5}));
  }
  for (const auto& result : Gather(mesh, 6, {{1, 4}, {1, 7}, {1, 4}, {1, 7}, {1, 4}, {1, 7}})) {
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(*result, (Placement::Sizes{4, 7}));
  }
}

TEST(SizeExchangeTest, OfSomeRanksInAnyOrderAndOfOne) {
  const DeviceMesh mesh = *DeviceMesh::Parse("ep=3@4,1,2");
  for (const auto& result : Gather(mesh, 6, {{0, 10}, {0, 20}, {0, 30}})) {
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(*result, (Placement::Sizes{10, 20, 30}));
  }
  const auto one = Gather(*DeviceMesh::Parse("ep=1"), 1, {{0, 8}});
  ASSERT_TRUE(one[0].ok()) << one[0].status();
  EXPECT_EQ(*one[0], (Placement::Sizes{8}));
}

// Copies from host memory are only queued. They must be done before that memory is freed.
TEST(SizeExchangeTest, WaitsForItsWorkAlsoWhereItIsRefused) {
  for (const std::string refused : {"all_gather", "copy"}) {
    FakeEngine engine(/*rank=*/1, /*world_size=*/2);
    const auto exchange = SizeExchange::Create(*DeviceMesh::Parse("ep=2"), &engine).value();
    engine.FailOn(refused, absl::InternalError("cable"));
    EXPECT_EQ(exchange->Gather(0, 3).status().ToString(), "INTERNAL: cable");
    EXPECT_EQ(engine.log().back(), "synchronize") << refused;
  }
}

TEST(SizeExchangeTest, ErrorsAreAgreedOn) {
  const DeviceMesh mesh = *DeviceMesh::Parse("dp=2,tp=2");
  const struct {
    std::vector<Asked> asked;
    std::string message;
  } cases[] = {
      {{{0, 3}, {0, 4}, {0, 1}, {0, 1}},
       "ranks 0 and 1, both with dp=0, have 3 and 4 rows; they must have the same number"},
      {{{0, 3}, {0, 3}, {0, -1}, {0, 1}}, "rank 2 has -1 rows; expected at least 0"},
      {{{0, 3}, {0, 3}, {1, 1}, {0, 1}},
       "rank 0 gathers sizes of mesh dim 0, rank 2 of mesh dim 1; it must be the same"},
      {{{2, 3}, {2, 3}, {2, 1}, {2, 1}}, "mesh dp=2,tp=2 has no mesh dim 2"},
      {{{0, INT64_MAX}, {0, INT64_MAX}, {0, 1}, {0, 1}},
       "the rows of mesh dim dp add up to 2^63 or more"},
  };
  for (const auto& [asked, message] : cases) {
    for (const auto& result : Gather(mesh, 4, asked)) {
      EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_EQ(Message(result.status()), message);
    }
  }
}

}  // namespace
}  // namespace meshift
