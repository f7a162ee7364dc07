// Single triples for the triangle inequality, cost(A, C) <= cost(A, B) + cost(B, C): detours that
// are cheaper than the plans of a search over fewer kinds of steps. triangle_test has random
// triples.
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <string>

#include "meshift/device_mesh.h"
#include "meshift/plan.h"
#include "meshift/planner.h"
#include "meshift/sharding.h"
#include "meshift/topology.h"
#include "meshift/verifier.h"
#include "planner/plan/plan_text.h"

namespace meshift {
namespace {

struct Triple {
  std::string mesh;
  std::string tensor;
  std::string from;
  std::string stop;
  std::string to;
  std::string topology = "flat";
};

void PrintTo(const Triple& t, std::ostream* out) {
  *out << t.tensor << " on " << t.mesh << ", " << t.from << " -> " << t.stop << " -> " << t.to
       << " on " << t.topology;
}

class DetourTest : public testing::TestWithParam<Triple> {};

TEST_P(DetourTest, IsNoCheaper) {
  const Triple& t = GetParam();
  const DeviceMesh mesh = DeviceMesh::Parse(t.mesh).value();
  const Sharding from = Sharding::Parse(t.tensor, mesh, t.from).value();
  const Sharding stop = Sharding::Parse(t.tensor, mesh, t.stop).value();
  const Sharding to = Sharding::Parse(t.tensor, mesh, t.to).value();
  const PlannerOptions options{.topology = Topology::Parse(t.topology).value()};
  ASSERT_LE(stop.MaxLocalElements(), std::max(from.MaxLocalElements(), to.MaxLocalElements()));
  const Plan direct = MakePlan(from, to, options).value();
  const Plan first = MakePlan(from, stop, options).value();
  const Plan second = MakePlan(stop, to, options).value();
  EXPECT_LE(direct.total().est_ns, first.total().est_ns + second.total().est_ns)
      << PlanToText(direct) << PlanToText(first) << PlanToText(second);
  EXPECT_LE(direct.lower_bound().est_ns, direct.total().est_ns);
  EXPECT_TRUE(Verify(direct).ok()) << PlanToText(direct);
}

// The mask towards the target also makes a cut partial; its reduction costs less than a gather and
// its packing.
INSTANTIATE_TEST_SUITE_P(
    Masks, DetourTest,
    testing::Values(Triple{"a=3,b=2", "f32[1]", "S(0),R", "P,P", "R,P"},
                    Triple{"a=4,b=4", "f32[1,8192]", "S(1),S(0)", "P,P", "P,R"},
                    Triple{"a=4,b=3", "f32[1,128,128,1]", "S(0),S(3)", "P,P", "S(1),P"},
                    Triple{"a=4,b=2", "f32[1,4]", "S(0),S(1)", "P,P", "R,P", "h100"},
                    Triple{"a=2,b=3@0-1,5,3-4,2", "f32[1,10,5]", "S(2)[1],S(2)[0]", "P(max),P(max)",
                           "P(max),S(0)", "h100"},
                    Triple{"a=2,b=2,c=2@4,3,6-7,1-2,0,5", "i32[5,11,13]", "P(max),S(2),R",
                           "S(1),S(2),S(1)", "S(1),R,P(max)"},
                    Triple{"a=6,b=3,c=2", "bf16[1,384,143]", "S(0),S(2),P", "P,P,P",
                           "S(0)[1],P,S(0)[0]"}));

// A mask towards the target joins a reduction, which makes it whole; then it is masked again.
INSTANTIATE_TEST_SUITE_P(
    MasksTwice, DetourTest,
    testing::Values(Triple{"a=2,b=3,c=2@5,11,0,4,1,3,2,6,10,9,7,8", "u8[100,4096,4]",
                           "P(max),P(max),R", "R,R,R", "R,R,P(max)", "nvlink=8"},
                    Triple{"a=3,b=2,c=2,d=2@13,21,12,9,1,3,6,23,15,22,4,19,5,2,8,0,11,16,20,10,7,"
                           "18,14,17",
                           "f32[1000,128,4]", "P,P,P,R", "S(2),R,R,R", "S(2),R,R,P", "nvlink=3"}));

// An exchange gathers pieces of different sizes, with more than one step after it.
INSTANTIATE_TEST_SUITE_P(Gathers, DetourTest,
                         testing::Values(Triple{"a=2,b=2,c=2,d=2", "f32[27,53,42,47]",
                                                "S(0),S(1),S(3),S(2)", "R,S(1),S(3),S(2)",
                                                "R,S(0),R,S(2)", "h100"},
                                         Triple{"a=2,b=5,c=4", "f32[291,265,13,178]", "S(1),S(0),R",
                                                "S(1),R,S(3)", "R,R,S(2)", "nvlink=4"}));

// An exchange moves cuts to mesh dims that were replicated, or gathers some, without coming near
// the target.
INSTANTIATE_TEST_SUITE_P(
    Exchanges, DetourTest,
    testing::Values(Triple{"a=2,b=4,c=2", "bf16[2,2]", "P,R,S(0)", "P,S(0),S(1)", "R,S(0),P"},
                    Triple{"a=3,b=2,c=4", "f32[6,939,312,361]", "S(2),S(2),R", "S(0),S(3),S(2)",
                           "R,S(3),S(2)", "nvlink=4"},
                    Triple{"a=2,b=2,c=4,d=2", "f64[64,2048,1024]", "S(2),S(0),S(2),R", "S(2),R,R,R",
                           "P(max),R,R,R", "h100"},
                    Triple{"a=4,b=3,c=2", "bf16[512,1024,128]", "S(0)[1],S(0)[0],S(0)[2]",
                           "R,S(1),R", "R,P,R", "h100"}));

}  // namespace
}  // namespace meshift
