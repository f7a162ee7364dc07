#include "planner/search/domain_bound.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include "meshift/device_mesh.h"
#include "meshift/sharding.h"
#include "meshift/topology.h"
#include "planner/cost/cost.h"
#include "planner/graph/state.h"
#include "planner/search/layouts.h"
#include "planner/search/successors.h"
#include "testing/conformance_cases.h"
#include "testing/owner_world.h"

namespace meshift {
namespace {

struct World {
  World(const Sharding& from, const Sharding& to, const char* topology)
      : problem(*Problem::Create(from, to)),
        model(problem, *Topology::Parse(topology)),
        layouts(problem, model),
        domains(problem, model, layouts) {}
  World(const char* mesh, const char* tensor, const char* from, const char* to)
      : World(*Sharding::Parse(tensor, *DeviceMesh::Parse(mesh), from),
              *Sharding::Parse(tensor, *DeviceMesh::Parse(mesh), to), "nvlink=4") {}
  int64_t AtSource() {
    return domains.LeastNs(problem.source(), layouts.Decode(problem.source()).reducible);
  }
  // The time of these bytes over the links of a domain of four ranks.
  int64_t Ns(int64_t bytes, bool reduces = false) const {
    return bytes * 1000 / (4 * model.BestBandwidth(1, reduces));
  }

  const Problem problem;
  const CostModel model;
  Layouts layouts;
  DomainBound domains;
};

TEST(DomainBoundTest, WhatNoRankOfADomainHoldsEntersIt) {
  // Each domain holds half of the rows, and needs half of the columns.
  World halves("a=2,b=4", "f32[512,512]", "S(0),R", "S(1),R");
  EXPECT_EQ(halves.AtSource(), halves.Ns(512 * 512));
  // The last domain holds the last row of each quarter, and needs the last quarter.
  World ends("a=4,b=4", "f32[4096]", "S(0)[1],S(0)[0]", "S(0)[0],S(0)[1]");
  EXPECT_EQ(ends.AtSource(), ends.Ns((1024 - 256) * 4));
}

TEST(DomainBoundTest, WhatStaysInADomainIsFree) {
  World inside("a=2,b=2,c=2", "f32[512,512]", "R,S(0),S(1)", "R,S(1),S(0)");
  EXPECT_FALSE(inside.domains.empty());
  EXPECT_EQ(inside.AtSource(), 0);
  World summed("a=2,b=4", "f32[512]", "S(0),P", "S(0),R");
  EXPECT_EQ(summed.AtSource(), 0);
}

TEST(DomainBoundTest, ContributionsOfOtherDomainsEnter) {
  World summed("a=2,b=4", "f32[4096]", "P,S(0)", "R,S(0)");
  EXPECT_EQ(summed.AtSource(), summed.Ns(4096 * 4, /*reduces=*/true));
}

TEST(DomainBoundTest, HasNoDomainsWithoutBoxes) {
  EXPECT_TRUE(World("a=3,b=3", "f32[9]", "S(0),R", "R,R").domains.empty());
  EXPECT_TRUE(World("a=2,b=2", "f32[8]", "S(0),R", "R,R").domains.empty());  // one domain
  EXPECT_TRUE(World("a=2,b=4@8-15", "f32[8]", "S(0),R", "R,R").domains.empty());
}

// The most elements that a domain of `size` ranks needs in `to` and does not hold in `from`.
int64_t MostMissing(const Sharding& from, const Sharding& to, int64_t size) {
  int64_t most = 0;
  for (int64_t first = 0; first < from.mesh().NumRanks(); first += size) {
    std::set<std::vector<int64_t>> missing;
    for (const Sharding* end : {&to, &from}) {
      for (int64_t rank = first; rank < first + size; ++rank) {
        const Box box = end->LocalBox(rank);
        std::vector<int64_t> at(box.offset.begin(), box.offset.end());
        for (int64_t left = box.NumElements(); left > 0; --left) {
          if (end == &to) {
            missing.insert(at);
          } else {
            missing.erase(at);
          }
          for (size_t k = at.size(); k-- > 0;) {
            if (++at[k] < box.offset[k] + box.size[k]) break;
            at[k] = box.offset[k];
          }
        }
      }
    }
    most = std::max(most, static_cast<int64_t>(missing.size()));
  }
  return most;
}

TEST(DomainBoundTest, IsThatOfSomeDomain) {
  int cases = 0;
  int equal = 0;
  for (uint64_t seed = 0; seed < 6000; ++seed) {
    const testkit::RandomPair pair =
        seed % 3 == 0 ? testkit::RandomOwnerCase(seed) : testkit::RandomCase(seed);
    const Sharding& from = pair.from;
    if (from.HasPartial() || pair.to.HasPartial() || NumElements(from.shape()) > 4000) continue;
    if (from.dtype() == DType::kF4E2M1 || !Problem::Create(from, pair.to).ok()) continue;
    World world(from, pair.to, "nvlink=4");
    if (world.domains.empty()) continue;
    ++cases;
    const int64_t most = world.Ns(MostMissing(from, pair.to, 4) * world.problem.least_item_bytes());
    EXPECT_LE(world.AtSource(), most) << from.ToString() << " -> " << pair.to.ToString();
    equal += world.AtSource() == most ? 1 : 0;
  }
  EXPECT_GT(cases, 250);
  EXPECT_GT(equal, cases / 2);
}

}  // namespace
}  // namespace meshift
