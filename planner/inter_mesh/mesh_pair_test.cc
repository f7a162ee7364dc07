#include "planner/inter_mesh/mesh_pair.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "meshift/device_mesh.h"
#include "meshift/topology.h"
#include "planner/cost/cross_cost.h"
#include "testing/small_world.h"

namespace meshift {
namespace {

using testkit::RoundLinks;

Sharding Parse(const std::string& tensor, const std::string& mesh, const std::string& placements) {
  return Sharding::Parse(tensor, DeviceMesh::Parse(mesh).value(), placements).value();
}

TEST(MeshPairTest, BoundsAreBelowAndSumsAreRight) {
  const std::vector<std::string> meshes = {"a=2,b=3", "a=4,b=1", "a=3,b=2@2-7", "a=2,b=2@5,4,1,0",
                                           "a=2,b=4@8-15"};
  const std::vector<std::string> placements = {"R,R",       "S(0),R",          "R,S(1)",
                                               "S(0),S(0)", "S(1)[1],S(1)[0]", "S(1),S(0)"};
  // Contributions may also go to all ranks that need their sum.
  std::vector<std::string> sources = placements;
  sources.insert(sources.end(), {"P,R", "S(1),P", "P,P"});
  const std::vector<Topology> topologies = {Topology::Flat(), RoundLinks(),
                                            Topology::Parse("nvlink=2,rail=4").value()};
  int64_t tight = 0;
  int64_t count = 0;
  for (const std::string& from_mesh : meshes) {
    for (const std::string& to_mesh : meshes) {
      for (const std::string& from : sources) {
        for (const std::string& to : placements) {
          for (const Topology& topology : topologies) {
            const Sharding before = Parse("f32[5,6]", from_mesh, from);
            const Sharding after = Parse("f32[5,6]", to_mesh, to);
            const Crossing crossing = Crossing::Of(before, after, topology);
            const Traffic traffic = MeasureCrossing(crossing, before, after, topology);
            const MeshPair pair(before.mesh(), after.mesh(), topology);
            const std::string what = before.ToString() + " -> " + after.ToString();
            const int64_t least = pair.LeastNs(before, DistinctBoxes(before), after);
            ASSERT_LE(least, traffic.est_ns) << what;
            tight += 2 * least >= traffic.est_ns ? 1 : 0;
            ++count;
            const MeshPair::MissingElements missing = pair.CountMissing(before, after);
            int64_t sent = 0;
            for (const CrossingMessage& m : crossing.messages()) sent += m.elements;
            ASSERT_EQ(static_cast<int64_t>(missing.total), sent) << what;
            ASSERT_LE(missing.worst, crossing.most_received()) << what;
            ASSERT_EQ(pair.union_size(), static_cast<int64_t>(crossing.ranks().size()));
            for (const int64_t rank : after.mesh().Ranks()) {
              const int64_t own = crossing.KeptBy(rank) ? 1 : 0;
              ASSERT_EQ(
                  ContributionsOf(before) * DistinctBoxes(before).CountIn(after.LocalBox(rank)),
                  static_cast<int64_t>(crossing.MessagesTo(rank).size()) + own)
                  << what;
            }
          }
        }
      }
    }
  }
  EXPECT_EQ(count, 5 * 5 * 9 * 6 * 3);
  EXPECT_GT(tight, count / 2);
}

}  // namespace
}  // namespace meshift
