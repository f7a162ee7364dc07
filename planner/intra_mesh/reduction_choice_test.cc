#include "planner/intra_mesh/reduction_choice.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "meshift/device_mesh.h"
#include "meshift/plan.h"
#include "meshift/planner.h"
#include "meshift/sharding.h"
#include "meshift/topology.h"
#include "meshift/verifier.h"

namespace meshift {
namespace {

// The definition: compares every group with the first one.
bool AreEquivalent(const DeviceMesh& mesh, const std::vector<int>& dims, const Topology& topology) {
  const std::vector<std::vector<int64_t>> groups = mesh.Groups(dims);
  for (const std::vector<int64_t>& group : groups) {
    for (size_t a = 0; a < group.size(); ++a) {
      for (size_t b = 0; b < a; ++b) {
        if (topology.LevelBetween(group[a], group[b]) !=
            topology.LevelBetween(groups[0][a], groups[0][b])) {
          return false;
        }
      }
    }
  }
  return true;
}

TEST(GroupsLieAlikeTest, OfLargeMeshesByAClosedForm) {
  const struct {
    std::string mesh;
    std::vector<int> dims;
    std::string topology;
    bool shown;
  } cases[] = {
      {"a=512,b=16", {1}, "nvlink=8", true},               // two domains each
      {"a=512,b=16", {1}, "nvlink=8,rack=64", true},       // and one rack
      {"a=512,b=16", {0}, "nvlink=8", true},               // one member in a domain
      {"a=1024,b=5", {0}, "nvlink=4", true},               // the same, though 4 and 5 do not fit
      {"a=1024,b=5", {1}, "nvlink=8", false},              // groups of 5 on domains of 8
      {"a=1024,b=5", {0}, "nvlink=8", false},              // some members are neighbours
      {"a=1024,b=5", {1}, "nvlink=40", true},              // eight groups in one
      {"a=16,b=64,c=6", {1}, "nvlink=12", true},           // pairs of neighbours
      {"a=16,b=64,c=6", {2}, "nvlink=12", true},           //
      {"a=16,b=64,c=6", {0, 2}, "nvlink=12", true},        //
      {"a=16,b=64,c=6", {1}, "nvlink=9", false},           //
      {"a=16,b=64,c=6", {1}, "nvlink=12,rack=36", false},  // 36 / 6 does not divide 64
      {"a=16,b=64,c=6", {0}, "nvlink=12,rack=36", true},   // members are further apart
      {"a=16,b=64,c=6", {1}, "nvlink=8192", true},         // all ranks are in one domain
  };
  for (const auto& c : cases) {
    const DeviceMesh mesh = DeviceMesh::Parse(c.mesh).value();
    const Topology topology = Topology::Parse(c.topology).value();
    ASSERT_GT(mesh.NumRanks(), 4096);
    EXPECT_EQ(GroupsAreEquivalent(mesh, c.dims, topology), c.shown) << c.mesh << " " << c.topology;
    // The closed form may miss some equivalent groups, but not in these cases.
    EXPECT_EQ(AreEquivalent(mesh, c.dims, topology), c.shown) << c.mesh << " " << c.topology;
  }
}

TEST(GroupsLieAlikeTest, TheVerifierAgreesOnLargeMeshes) {
  for (const int64_t domain : {2, 3, 4, 5, 8, 16, 20, 40, 64, 100, 640}) {
    const DeviceMesh mesh = DeviceMesh::Parse("a=128,b=5,c=8").value();
    const Topology topology = Topology::Parse("nvlink=" + std::to_string(domain)).value();
    for (const std::string reduced : {"P,S(0),S(1)", "S(0),P,S(1)", "S(0),S(1),P", "P,S(0),P"}) {
      const Sharding from = Sharding::Parse("f32[1024,1024]", mesh, reduced).value();
      std::string target = reduced;
      std::vector<int> dims;
      for (int d = 0; d < 3; ++d) {
        if (from.placement(d).IsPartial()) dims.push_back(d);
      }
      for (char& c : target) c = c == 'P' ? 'R' : c;
      const Plan plan =
          MakePlan(from, from.WithPlacements(target).value(),
                   {.reproducibility = Reproducibility::kBatchInvariant, .topology = topology})
              .value();
      const bool native = plan.steps()[0].reduce_order == ReduceOrder::kAny;
      EXPECT_EQ(native, GroupsAreEquivalent(mesh, dims, topology)) << reduced << " " << domain;
      const Verdict verdict = Verify(plan);
      EXPECT_TRUE(verdict.ok()) << reduced << " " << domain << ": " << verdict.fault->message;
      if (native) continue;
      // It rejects the same plan with the engine's own reduction.
      PlanFields fields = plan.fields();
      fields.steps[0].reduce_order = ReduceOrder::kAny;
      EXPECT_FALSE(Verify(Plan::Seal(fields)).ok()) << reduced << " " << domain;
    }
  }
}

}  // namespace
}  // namespace meshift
