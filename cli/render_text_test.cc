#include "cli/render_text.h"

#include <gtest/gtest.h>

#include <string>

#include "meshift/device_mesh.h"
#include "meshift/plan.h"
#include "meshift/planner.h"
#include "meshift/sharding.h"

namespace meshift::cli {
namespace {

Plan PlanOf(const char* from, const char* to) {
  const DeviceMesh mesh = DeviceMesh::Parse("tp=2").value();
  const Sharding source = Sharding::Parse("f32[64,40]", mesh, from).value();
  return MakePlan(source, source.WithPlacements(to).value()).value();
}

TEST(RenderText, APromiseThatIsNotKeptSaysSo) {
  EXPECT_EQ(RenderPromise(Reproducibility::kReplicas, true, "all is copied"),
            "promise replicas: kept (all is copied)\n");
  EXPECT_EQ(RenderPromise(Reproducibility::kReplicas, false, "step 1 sums in 2 groups"),
            "promise replicas: NOT kept (step 1 sums in 2 groups)\n");
}

TEST(RenderText, MessagesAreATable) {
  EXPECT_EQ(RenderMessages(PlanOf("P", "R")), "# step  source  target  box  contribution  bytes\n");
  EXPECT_EQ(RenderMessages(PlanOf("S(0)", "R")),
            "# step  source  target  box            contribution  bytes\n"
            "0            1       0  [32:64, 0:40]  -              5120\n"
            "0            0       1  [0:32, 0:40]   -              5120\n");
}

TEST(RenderText, BytesOfMessagesAreThoseOfTheDtypeThatTravels) {
  const DeviceMesh mesh = DeviceMesh::Parse("tp=2").value();
  const Sharding from = Sharding::Parse("f32[8]", mesh, "S(0)").value();
  const Plan plan = MakePlan(from, Sharding::Parse("bf16[8]", mesh, "R").value()).value();
  ASSERT_EQ(plan.steps()[1].bytes_sent, 8);
  EXPECT_EQ(RenderMessages(plan),
            "# step  source  target  box    contribution  bytes\n"
            "1            1       0  [4:8]  -                 8\n"
            "1            0       1  [0:4]  -                 8\n");
}

}  // namespace
}  // namespace meshift::cli
