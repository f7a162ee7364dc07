#include "comm/executor/group_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/program/program.h"
#include "meshift/communicator.h"
#include "meshift/device_mesh.h"
#include "testing/internal/fake_engine.h"

namespace meshift {
namespace {

using Lines = std::vector<std::string>;

DeviceMesh Mesh(const std::string& text) { return DeviceMesh::Parse(text).value(); }

ProgramGroup NoGroup(const DimSet& mesh_dims) {
  return {.mesh_dims = mesh_dims, .number = 0, .ranks = {}};
}

ProgramGroup GroupOf(const DeviceMesh& mesh, const DimSet& mesh_dims, int64_t rank) {
  ProgramGroup group{
      .mesh_dims = mesh_dims, .number = 0, .ranks = mesh.GroupListOf(mesh_dims, rank)};
  return group;
}

TEST(GroupCacheTest, MakesEachGroupOnceWhenItIsFirstNeeded) {
  FakeEngine engine(5, 8);
  const DeviceMesh mesh = Mesh("a=2,b=4");
  const auto cache = GroupCache::Create(&engine, mesh).value();
  EXPECT_EQ(engine.log(), Lines{});
  Communicator* const row = cache->Get(mesh, GroupOf(mesh, {1}, 5)).value();
  EXPECT_EQ(cache->Get(mesh, GroupOf(mesh, {1}, 5)).value(), row);
  EXPECT_EQ(row->size(), 4);
  EXPECT_EQ(row->rank(), 1);
  cache->Get(mesh, GroupOf(mesh, {0}, 5)).value();
  EXPECT_EQ(engine.log(), (Lines{"split 0 of {0,1,2,3,4,5,6,7}: {4,5,6,7}",
                                 "split 0 of {0,1,2,3,4,5,6,7}: {1,5}"}));
  const GroupCacheStats stats = cache->stats();
  EXPECT_EQ(stats.created, 2);
  EXPECT_EQ(stats.reused, 1);
  EXPECT_EQ(stats.size, 2);
}

TEST(GroupCacheTest, TheWholeMeshIsTheRoot) {
  FakeEngine engine(3, 4);
  const DeviceMesh mesh = Mesh("a=2,b=2@3,1,0,2");
  const auto cache = GroupCache::Create(&engine, mesh).value();
  EXPECT_EQ(cache->Get(mesh, GroupOf(mesh, {0, 1}, 3)).value(), engine.world());
  EXPECT_EQ(engine.log(), Lines{});
  EXPECT_EQ(cache->stats().created, 0);
  EXPECT_EQ(cache->stats().reused, 1);
}

TEST(GroupCacheTest, PartOfTheWorldHasARootOfItsOwn) {
  FakeEngine engine(2, 8);
  const DeviceMesh mesh = Mesh("a=2,b=2@6,7,2,3");
  const auto cache = GroupCache::Create(&engine, mesh).value();
  cache->Get(mesh, GroupOf(mesh, {1}, 2)).value();
  EXPECT_EQ(engine.log(),
            (Lines{"split 0 of {0,1,2,3,4,5,6,7}: {2,3,6,7}", "split 0 of {2,3,6,7}: {2,3}"}));
}

TEST(GroupCacheTest, RankThatStaysOutTakesPartInTheSplit) {
  FakeEngine engine(0, 8);
  ASSERT_TRUE(GroupCache::SplitWithoutGroup(&engine, Mesh("a=2,b=2@6,7,2,3")).ok());
  ASSERT_TRUE(GroupCache::SplitWithoutGroup(&engine, Mesh("a=1@2")).ok());
  EXPECT_EQ(engine.log(), Lines{"skip_split of {0,1,2,3,4,5,6,7}"});
}

TEST(GroupCacheTest, MeshOfOneRankHasNoRoot) {
  FakeEngine engine(2, 8);
  ASSERT_TRUE(GroupCache::Create(&engine, Mesh("a=1@2")).ok());
  EXPECT_EQ(engine.log(), Lines{});
}

TEST(GroupCacheTest, OtherNamesForAPartitionFindIt) {
  FakeEngine engine(5, 8);
  const DeviceMesh mesh = Mesh("a=2,b=4");
  const DeviceMesh other = Mesh("x=2,y=2,z=2");
  const DeviceMesh listed = Mesh("u=4,v=2@0,4,1,5,2,6,3,7");
  const auto cache = GroupCache::Create(&engine, mesh).value();
  Communicator* const row = cache->Get(mesh, GroupOf(mesh, {1}, 5)).value();
  EXPECT_EQ(cache->Get(other, GroupOf(other, {1, 2}, 5)).value(), row);
  EXPECT_EQ(cache->Get(listed, GroupOf(listed, {0}, 5)).value(), row);
  EXPECT_EQ(engine.log().size(), 1);
}

// {0,1} {2,3} {4,5}, then {0,1} {2,4} {3,5}: ranks 0 and 1 have their group already, but the others
// cannot split without them.
TEST(GroupCacheTest, KnownGroupIsNotMadeAgainWithItsPartition) {
  const DeviceMesh mesh = Mesh("a=3,b=2");
  const DeviceMesh listed = Mesh("a=3,b=2@0,1,2,4,3,5");
  for (const int64_t rank : {0, 1, 2, 3, 4, 5}) {
    FakeEngine engine(rank, 6);
    const auto cache = GroupCache::Create(&engine, mesh).value();
    Communicator* const first = cache->Get(mesh, GroupOf(mesh, {1}, rank)).value();
    Communicator* const second = cache->Get(listed, GroupOf(listed, {1}, rank)).value();
    ASSERT_EQ(engine.log().size(), 2);
    EXPECT_EQ(engine.log()[1] == "skip_split of {0,1,2,3,4,5}", rank < 2);
    EXPECT_EQ(first == second, rank < 2);
    EXPECT_EQ(cache->stats().created, rank < 2 ? 1 : 2);
    EXPECT_EQ(cache->stats().size, rank < 2 ? 1 : 2);
  }
}

TEST(GroupCacheTest, Refusals) {
  FakeEngine engine(5, 8);
  EXPECT_EQ(GroupCache::Create(&engine, Mesh("a=4")).status().ToString(),
            "INVALID_ARGUMENT: rank 5 is not in mesh a=4");
  EXPECT_EQ(GroupCache::Create(&engine, Mesh("a=16")).status().ToString(),
            "INVALID_ARGUMENT: rank 15 of mesh a=16 is not in the engine's world of 8 ranks");
  const DeviceMesh mesh = Mesh("a=2,b=4");
  const auto cache = GroupCache::Create(&engine, mesh).value();
  EXPECT_EQ(cache->Get(mesh, {.mesh_dims = {}, .number = 0, .ranks = {5}}).status().ToString(),
            "INVALID_ARGUMENT: rank 5 is alone in its group, which needs no communicator");
  const DeviceMesh part = Mesh("a=2,b=2@5,9,2,3");
  EXPECT_EQ(cache->Get(part, GroupOf(part, {1}, 5)).status().ToString(),
            "INVALID_ARGUMENT: rank 9 of mesh a=2,b=2@5,9,2-3 is not in the redistributor's mesh "
            "a=2,b=4");
  EXPECT_TRUE(GroupCache::CheckMesh(mesh, Mesh("a=2,b=2@5,6,2,3")).ok());
}

// Groups of some of the root's ranks: every rank of the root takes part in making them, once.
TEST(GroupCacheTest, OtherRanksTakePartInSplitsOfASubMesh) {
  const DeviceMesh root = Mesh("a=6");
  const DeviceMesh part = Mesh("a=2,b=2@5,1,0,4");
  const DeviceMesh other = Mesh("x=2,y=2@1,5,4,0");  // the same groups
  for (const int64_t rank : {0, 1, 2, 3, 4, 5}) {
    FakeEngine engine(rank, 6);
    const auto cache = GroupCache::Create(&engine, root).value();
    const auto get = [&](const DeviceMesh& mesh, const DimSet& dims) {
      return cache->Get(mesh, mesh.PositionOf(rank) ? GroupOf(mesh, dims, rank) : NoGroup(dims))
          .value();
    };
    const bool is_out = rank == 2 || rank == 3;
    Communicator* const first = get(part, {1});
    EXPECT_EQ(first == nullptr, is_out);
    EXPECT_EQ(get(part, {1}), first);
    EXPECT_EQ(get(other, {1}), first);
    ASSERT_EQ(engine.log().size(), 1);
    EXPECT_EQ(engine.log()[0] == "skip_split of {0,1,2,3,4,5}", is_out);
    // {0,1}, without the others.
    Communicator* const low = get(Mesh("a=2"), {0});
    EXPECT_EQ(low == nullptr, rank > 1);
    ASSERT_EQ(engine.log().size(), 2);
    EXPECT_EQ(engine.log()[1] == "skip_split of {0,1,2,3,4,5}", rank > 1);
    EXPECT_EQ(cache->stats().created, (is_out ? 0 : 1) + (rank > 1 ? 0 : 1));
    EXPECT_EQ(cache->stats().reused, is_out ? 0 : 2);
  }
}

// {0,1} is known as a part of the root's partition: no rank makes it again.
TEST(GroupCacheTest, KnownGroupIsNotMadeAgainForASubMesh) {
  for (const int64_t rank : {0, 1, 2, 3}) {
    FakeEngine engine(rank, 4);
    const DeviceMesh mesh = Mesh("a=2,b=2");
    const auto cache = GroupCache::Create(&engine, mesh).value();
    Communicator* const row = cache->Get(mesh, GroupOf(mesh, {1}, rank)).value();
    const DeviceMesh low = Mesh("c=2");
    const ProgramGroup group = rank < 2 ? GroupOf(low, {0}, rank) : NoGroup({0});
    EXPECT_EQ(cache->Get(low, group).value(), rank < 2 ? row : nullptr);
    ASSERT_EQ(engine.log().size(), 2);
    EXPECT_EQ(engine.log()[1], "skip_split of {0,1,2,3}");
  }
}

TEST(GroupCacheTest, FailedSplitIsNotKept) {
  FakeEngine engine(5, 8);
  const DeviceMesh mesh = Mesh("a=2,b=4");
  const auto cache = GroupCache::Create(&engine, mesh).value();
  engine.FailOn("split", absl::InternalError("no more"));
  EXPECT_EQ(cache->Get(mesh, GroupOf(mesh, {1}, 5)).status().ToString(), "INTERNAL: no more");
  EXPECT_EQ(cache->stats().size, 0);
}

TEST(GroupCacheTest, AbortsWhatItHandedOut) {
  FakeEngine engine(5, 8);
  const DeviceMesh mesh = Mesh("a=2,b=4");
  const auto cache = GroupCache::Create(&engine, mesh).value();
  cache->Get(mesh, GroupOf(mesh, {1}, 5)).value();
  cache->Get(mesh, GroupOf(mesh, {0, 1}, 5)).value();
  cache->AbortAll();
  EXPECT_EQ(engine.aborts(), 2);
}

TEST(GroupCacheTest, TheWorldIsTheEngines) {
  FakeEngine engine(5, 8);
  const auto cache = GroupCache::Create(&engine, Mesh("a=2,b=4")).value();
  cache->AbortAll();
  EXPECT_EQ(engine.aborts(), 0);
}

TEST(GroupCacheTest, WhatItMakesAfterAnAbortIsAborted) {
  FakeEngine engine(5, 8);
  const DeviceMesh mesh = Mesh("a=2,b=4");
  const auto cache = GroupCache::Create(&engine, mesh).value();
  cache->AbortAll();
  cache->Get(mesh, GroupOf(mesh, {1}, 5)).value();
  EXPECT_EQ(engine.aborts(), 1);
  cache->Get(mesh, GroupOf(mesh, {0, 1}, 5)).value();
  EXPECT_EQ(engine.aborts(), 2);
}

}  // namespace
}  // namespace meshift
