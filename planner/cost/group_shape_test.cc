#include "planner/cost/group_shape.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "meshift/device_mesh.h"
#include "meshift/topology.h"

namespace meshift {
namespace {

// The shape by its definition, from the domain of each member.
GroupShape Counted(const Topology& topology, const std::vector<std::vector<int64_t>>& groups) {
  const int levels = topology.NumLevels();
  GroupShape shape{static_cast<int64_t>(groups[0].size()), {}, {}};
  shape.sharing.assign(levels - 1, 0);
  shape.fanout.assign(levels, 0);
  for (const std::vector<int64_t>& group : groups) {
    int64_t ns = 0;
    int64_t beyond_ns = 0;
    int64_t ring_ns = 0;
    int64_t units_below = shape.size;
    for (int level = 0; level < levels; ++level) {
      std::map<int64_t, std::set<int64_t>> below;  // of each domain, those of the level below
      std::map<int64_t, int64_t> members;          // of each domain of the level below
      for (const int64_t rank : group) {
        const int64_t unit = level == 0 ? rank : topology.DomainOf(level - 1, rank);
        below[topology.DomainOf(level, rank)].insert(unit);
        ++members[unit];
      }
      size_t most = 0;
      for (const auto& [domain, units] : below) most = std::max(most, units.size());
      const int64_t tree_ns =
          topology.level(level).latency_ns * Log2Ceil(static_cast<int64_t>(most));
      ns += tree_ns;
      if (level > 0) beyond_ns += tree_ns;
      shape.fanout[level] = std::max(shape.fanout[level], static_cast<int64_t>(most));
      const auto domains = static_cast<int64_t>(below.size());
      ring_ns += topology.level(level).latency_ns * (units_below - domains);
      units_below = domains;
      if (level == 0 || members.size() == 1) continue;
      int64_t& fewest = shape.sharing[level - 1];
      for (const auto& [unit, number] : members) {
        fewest = fewest == 0 ? number : std::min(fewest, number);
      }
    }
    shape.latency_ns = std::max(shape.latency_ns, ns);
    shape.beyond_ns = std::max(shape.beyond_ns, beyond_ns);
    shape.ring_ns = std::max(shape.ring_ns, ring_ns);
  }
  return shape;
}

Topology Domains(const std::vector<int64_t>& sizes) {
  std::vector<TopologyLevel> levels;
  int64_t latency = 1;
  for (const int64_t size : sizes) {
    levels.push_back({"l" + std::to_string(levels.size()), size, 100, latency});
    latency *= 100;
  }
  levels.push_back({"all", 0, 100, latency});
  return *Topology::Create(levels);
}

// The groups over the mesh dims of `mask`, in closed form.
RankGroups Modes(const DeviceMesh& mesh, unsigned mask) {
  RankGroups groups;
  int64_t stride = 1;
  for (int d = mesh.NumDims() - 1; d >= 0; --d) {
    const int64_t n = mesh.dim(d).size;
    if ((mask >> d & 1) != 0) {
      groups.modes.push_back({n, stride});
      groups.size *= n;
    }
    stride *= n;
  }
  return groups;
}

void ExpectEqual(const GroupShape& shape, const GroupShape& wanted, const std::string& what) {
  EXPECT_EQ(shape.size, wanted.size) << what;
  EXPECT_EQ(shape.sharing, wanted.sharing) << what;
  EXPECT_EQ(shape.fanout, wanted.fanout) << what;
  EXPECT_EQ(shape.beyond_ns, wanted.beyond_ns) << what;
  EXPECT_EQ(shape.latency_ns, wanted.latency_ns) << what;
  EXPECT_EQ(shape.ring_ns, wanted.ring_ns) << what;
}

TEST(GroupShapeTest, CountsAsTheDefinition) {
  int64_t compared = 0;
  for (const char* text :
       {"a=2,b=3", "a=8,b=5", "a=5,b=8", "a=3,b=2,c=5", "a=2,b=2,c=2,d=2", "a=6,b=1,c=7",
        "a=2,b=9,c=4", "a=12,b=10", "a=4,b=3,c=2,d=5", "a=7,b=7,c=3", "a=37,b=2", "a=1,b=64"}) {
    const DeviceMesh mesh = *DeviceMesh::Parse(text);
    for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{2},
                                              {3},
                                              {4},
                                              {5},
                                              {8},
                                              {12},
                                              {64},
                                              {200},
                                              {2, 4},
                                              {3, 6},
                                              {2, 12},
                                              {4, 8},
                                              {5, 10},
                                              {2, 6, 18},
                                              {2, 4, 8},
                                              {4, 200}}) {
      const Topology topology = Domains(sizes);
      for (unsigned mask = 1; mask < 1U << mesh.NumDims(); ++mask) {
        const RankGroups modes = Modes(mesh, mask);
        std::vector<int> dims;
        for (int d = 0; d < mesh.NumDims(); ++d) {
          if ((mask >> d & 1) != 0) dims.push_back(d);
        }
        RankGroups listed{.size = modes.size, .ranks = mesh.Groups(dims)};
        const GroupShape wanted = Counted(topology, listed.ranks);
        const std::string what =
            mesh.ToString() + " " + std::to_string(mask) + " on " + topology.ToString();
        ExpectEqual(ShapeOf(topology, mesh.NumRanks(), modes), wanted, what);
        for (std::vector<int64_t>& ranks : listed.ranks) std::reverse(ranks.begin(), ranks.end());
        ExpectEqual(ShapeOf(topology, mesh.NumRanks(), listed), wanted, what);
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 1000);
}

// 8 x 5 ranks on domains of 8: five ranks lie 5, 4 + 1 or 3 + 2.
TEST(GroupShapeTest, TakesTheWorstGroupWhereTheyAreJagged) {
  const Topology topology = Domains({8});  // hops of 1 inside, of 100 between domains
  const DeviceMesh mesh = *DeviceMesh::Parse("ddp=8,fsdp=5");
  const GroupShape inner = ShapeOf(topology, 40, Modes(mesh, 2));
  EXPECT_EQ(inner.latency_ns, 100 + 2);
  EXPECT_EQ(inner.sharing[0], 1);
  const GroupShape outer = ShapeOf(topology, 40, Modes(mesh, 1));  // eight ranks, 5 apart
  EXPECT_EQ(outer.latency_ns, 300 + 1);
  EXPECT_EQ(outer.sharing[0], 1);
  const GroupShape all = ShapeOf(topology, 40, Modes(mesh, 3));
  EXPECT_EQ(all.latency_ns, 300 + 3);
  EXPECT_EQ(all.sharing[0], 8);
}

TEST(GroupShapeTest, TakesNoTimeInProportionToRanks) {
  const Topology topology = Domains({8, 65536});
  const int64_t ranks = int64_t{1} << 30;
  const GroupShape all = ShapeOf(topology, ranks, {.size = ranks, .modes = {{ranks, 1}}});
  EXPECT_EQ(all.latency_ns, 14 * 10000 + 13 * 100 + 3);
  EXPECT_EQ(all.sharing[0], 8);
  EXPECT_EQ(all.sharing[1], 65536);
  // Groups of five do not divide a domain.
  const GroupShape jagged =
      ShapeOf(topology, 5 * ranks, {.size = 5 * 65536, .modes = {{5 * 65536, 1}}});
  EXPECT_EQ(jagged.latency_ns, 3 * 10000 + 13 * 100 + 3);
}

}  // namespace
}  // namespace meshift
