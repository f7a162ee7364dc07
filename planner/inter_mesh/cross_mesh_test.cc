#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "meshift/device_mesh.h"
#include "meshift/plan_io.h"
#include "meshift/planner.h"
#include "meshift/topology.h"
#include "meshift/verifier.h"
#include "placement/cast.h"
#include "planner/plan/crossing.h"
#include "planner/plan/plan_text.h"
#include "planner/plan/rank_bytes.h"
#include "planner/search/value_rule.h"

namespace meshift {
namespace {

DeviceMesh Mesh(const std::string& text) { return DeviceMesh::Parse(text).value(); }

absl::StatusOr<Plan> TryPlan(const std::string& tensor, const std::string& from_mesh,
                             const std::string& from, const std::string& to_mesh,
                             const std::string& to, const PlannerOptions& options = {}) {
  return MakePlan(Sharding::Parse(tensor, Mesh(from_mesh), from).value(),
                  Sharding::Parse(tensor, Mesh(to_mesh), to).value(), options);
}

std::string Steps(const absl::StatusOr<Plan>& plan) {
  if (!plan.ok()) return plan.status().ToString();
  std::string text;
  for (const Step& step : plan->steps()) text += (text.empty() ? "" : "; ") + step.ToString();
  return text;
}

struct Golden {
  std::string tensor, from_mesh, from, to_mesh, to, steps;
};

TEST(CrossMeshTest, GoldenPlans) {
  for (const Golden& g : std::vector<Golden>{
           // The same ranks with other dims: nothing is sent.
           {"f32[8,8]", "a=8", "S(0)", "x=2,y=4", "S(0),S(0)", "relabel{onto mesh 1} -> S(0),S(0)"},
           {"f32[8,8]", "a=2", "R", "b=2@1,0", "R", "relabel{onto mesh 1} -> R"},
           // The same, then gathered on the second mesh.
           {"bf16[4096,4096]", "a=8", "S(0)", "x=2,y=4", "S(0),R",
            "relabel{onto mesh 1} -> S(0),S(0); all_gather{y} -> S(0),R"},
           // The same ranks in another order: each rank sends its box to one rank.
           {"f32[8,8]", "a=4", "S(0)", "b=4@3,2,1,0", "S(0)", "exchange{onto mesh 1} -> S(0)"},
           // Disjoint ranks.
           {"f32[8,8]", "a=4", "S(0)", "b=2@4-5", "S(1)", "exchange{onto mesh 1} -> S(1)"},
           // All receivers need everything: messages are as cheap as a gather on the second mesh.
           {"bf16[8192,8192]", "a=4", "S(0)", "b=4@4-7", "R", "exchange{onto mesh 1} -> R"},
           // A reduce_scatter before the crossing, or a mask after it.
           {"bf16[8192,8192]", "a=4", "P", "b=4@4-7", "S(0)",
            "reduce_scatter{a} -> S(0); exchange{onto mesh 1} -> S(0)"},
           {"bf16[8192,8192]", "a=4", "S(0)", "b=4@4-7", "P",
            "exchange{onto mesh 1} -> S(0); mask{b} -> P"},
           // The receivers add small contributions.
           {"f32[]", "a=2", "P", "b=2@2-3", "R", "exchange{onto mesh 1} -> R"},
           {"f32[64,64]", "a=4", "P", "b=2,c=2@4-7", "R,S(1)", "exchange{onto mesh 1} -> R,S(1)"},
           {"f32[4]", "a=2", "P", "b=2@2-3", "P", "exchange{onto mesh 1} -> S(0); mask{b} -> P"},
           // A receiver that holds everything keeps it.
           {"f32[1,3]", "a=4", "S(0)", "b=2,c=2", "P,P",
            "relabel{onto mesh 1} -> S(0),S(0); mask{b,c} -> P,P"},
           {"f32[0,8]", "a=2", "S(1)", "b=3@4-6", "R", "relabel{onto mesh 1} -> R"},
       }) {
    EXPECT_EQ(Steps(TryPlan(g.tensor, g.from_mesh, g.from, g.to_mesh, g.to)), g.steps)
        << g.tensor << " " << g.from_mesh << " " << g.from << " -> " << g.to_mesh << " " << g.to;
  }
}

TEST(CrossMeshTest, EndsSuitTheEndsOfTheOtherMesh) {
  const PlannerOptions options = {.topology = *Topology::Parse("nvlink=4")};
  // The reduction leaves the value on the ranks where the broadcast begins.
  EXPECT_EQ(Steps(TryPlan("bf16[851,1181]", "a=7@2-8", "P", "x=5,y=3@2-16", "R,S(0)", options)),
            "reduce_scatter{a} -> S(0){284,284,283,0,0,0,0}; relabel{onto mesh 1} -> At(0),S(0); "
            "broadcast{x} -> R,S(0)");
}

TEST(CrossMeshTest, AcrossSlowLinksEachElementGoesOnce) {
  // Eight ranks of one host need the data of another host.
  const Plan plan = TryPlan("bf16[8192,8192]", "a=8", "S(0)", "b=8@8-15", "R",
                            {.topology = Topology::Parse("nvlink=8").value()})
                        .value();
  EXPECT_EQ(Steps(plan), "exchange{onto mesh 1} -> S(0); all_gather{b} -> R");
  EXPECT_EQ(plan.steps()[0].bytes_sent, 8192 * 8192 * 2 / 8);
  EXPECT_EQ(plan.steps()[0].group_size, 16);
  EXPECT_EQ(plan.steps()[0].mesh, 1);
  EXPECT_EQ(plan.steps()[0].sizes, StepSizes::kExact);
}

TEST(CrossMeshTest, CastsWhereBytesAreFew) {
  const auto steps = [](DType from_dtype, DType to_dtype) {
    const Shape shape = {4096, 4096};
    const Sharding from =
        Sharding::Parse(TensorType{from_dtype, shape}, Mesh("a=4"), "S(0)").value();
    const Sharding to =
        Sharding::Parse(TensorType{to_dtype, shape}, Mesh("b=4@4-7"), "S(1)").value();
    return Steps(MakePlan(from, to));
  };
  EXPECT_EQ(steps(DType::kF32, DType::kBF16), "cast{bf16} -> S(0); exchange{onto mesh 1} -> S(1)");
  EXPECT_EQ(steps(DType::kBF16, DType::kF32), "exchange{onto mesh 1} -> S(1); cast{f32} -> S(1)");
}

TEST(CrossMeshTest, ReducesInTheDTypeOfThePlan) {
  // Sums in f32: bf16 sums would be rounded a second time, to f8.
  const Shape shape = {4096, 4096};
  const Sharding from = Sharding::Parse(TensorType{DType::kBF16, shape}, Mesh("a=4"), "P").value();
  const Sharding to =
      Sharding::Parse(TensorType{DType::kF8E4M3, shape}, Mesh("b=2@4-5"), "S(0)").value();
  EXPECT_EQ(Steps(MakePlan(from, to)),
            "cast{f32} -> P; reduce_scatter{a} -> S(0); cast{f8e4m3} -> S(0); "
            "exchange{onto mesh 1} -> S(0)");
}

TEST(CrossMeshTest, KeepsThePromise) {
  for (const Reproducibility promise :
       {Reproducibility::kNone, Reproducibility::kReplicas, Reproducibility::kBatchInvariant,
        Reproducibility::kOrdered}) {
    const absl::StatusOr<Plan> plan =
        TryPlan("f32[64,64]", "a=2,b=2", "P,R", "c=4@2-5", "R", {.reproducibility = promise});
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_GE(plan->kept(), promise);
    for (const Step& step : plan->steps()) {
      if (!IsReduction(step.op)) continue;
      EXPECT_EQ(step.reduce_order, promise >= Reproducibility::kBatchInvariant
                                       ? ReduceOrder::kAscending
                                       : ReduceOrder::kAny);
    }
  }
  EXPECT_EQ(TryPlan("f32[64,64]", "a=4", "P", "c=4@2-5", "R",
                    {.reproducibility = Reproducibility::kOrdered, .ordered_reductions = false})
                .status()
                .message(),
            "reproducibility 'ordered' needs reductions in order, which the options forbid");
}

// A crossing adds all contributions, in order, in the plan's reduce dtype.
TEST(CrossMeshTest, SmallContributionsAreAddedByWhoTakesThem) {
  const auto parse = [](const char* tensor, const char* mesh, const char* placements) {
    return Sharding::Parse(tensor, Mesh(mesh), placements).value();
  };
  const Sharding from = parse("bf16[6]", "a=2,b=3,c=2", "P(avg),P,S(0)");
  const Sharding to = parse("f8e4m3[6]", "d=2@3,20", "S(0)");
  const Plan plan = MakePlan(from, to).value();
  EXPECT_EQ(Steps(plan),
            "cast{f32} -> P(avg),P,S(0); exchange{onto mesh 1} -> S(0); cast{f8e4m3} -> S(0)");
  const Step& step = plan.steps()[1];
  EXPECT_EQ(step.reduce_op, ReduceOp::kAvg);
  EXPECT_EQ(step.reduce_order, ReduceOrder::kAscending);
  EXPECT_EQ(step.divisor, 2);
  EXPECT_EQ(step.wire_dtype, DType::kF32);
  EXPECT_EQ(step.accumulate_dtype, DType::kF32);
  // Each of twelve ranks holds a half of one of six contributions, for one of two receivers. Rank 4
  // sends to rank 3, which holds the other half of another contribution itself.
  EXPECT_EQ(BytesSent(plan, 1, 4), 12);
  EXPECT_EQ(BytesSent(plan, 1, 3), 12);
  EXPECT_EQ(BytesSent(plan, 1, 20), 0);
  EXPECT_EQ(plan.why(),
            "contributions are combined in ascending order by every rank that receives them");
  EXPECT_TRUE(Verify(plan).ok());
  for (const std::string& text : {PlanToText(plan), PlanToJson(plan)}) {
    EXPECT_EQ((text[0] == '{' ? PlanFromJson(text) : PlanFromText(text)).value(), plan) << text;
  }
  EXPECT_NE(PlanToText(plan).find("avg/2:ascending f32 exact mesh=1"), std::string::npos)
      << PlanToText(plan);

  // If the options forbid ordered sums, a reduction comes before the crossing.
  EXPECT_EQ(Steps(MakePlan(parse("f32[8]", "a=2", "P"), parse("f32[8]", "b=2@2-3", "R"),
                           {.ordered_reductions = false})),
            "reduce_scatter{a} -> S(0); exchange{onto mesh 1} -> R");
  // In blocks, if the options ask for them.
  const Plan blocks = MakePlan(parse("f32[8]", "a=4", "P"), parse("f32[8]", "b=2@4-5", "R"),
                               {.reproducibility = Reproducibility::kOrdered, .reduce_block = 2})
                          .value();
  EXPECT_EQ(Steps(blocks), "exchange{onto mesh 1} -> R");
  EXPECT_EQ(blocks.steps()[0].reduce_block, 2);
  EXPECT_EQ(blocks.kept(), Reproducibility::kOrdered);
  EXPECT_TRUE(Verify(blocks).ok());
  // Without elements, no contribution crosses.
  EXPECT_EQ(Steps(MakePlan(parse("f32[0]", "a=2", "P"), parse("f32[0]", "b=2@2-3", "R"))),
            "all_reduce{a} -> R; relabel{onto mesh 1} -> R");
}

TEST(CrossMeshTest, WhichReductionIsNoMatterOfCost) {
  // On an engine with an invariant all_reduce only, no size makes the plan scatter instead.
  PlannerOptions options{.reproducibility = Reproducibility::kBatchInvariant};
  options.engine.native_invariance = NativeInvariance::kAllReduce;
  for (const char* tensor : {"f32[4]", "f32[64,64]", "f32[8192,8192]"}) {
    const absl::StatusOr<Plan> plan = TryPlan(tensor, "a=4", "P", "b=4@4-7", "S(0)", options);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->steps()[0].op, StepOp::kAllReduce) << tensor;
    EXPECT_EQ(plan->steps()[0].reduce_order, ReduceOrder::kAny) << tensor;
  }
}

// If no group may be made, contributions cross and are added in order, whatever the size.
TEST(CrossMeshTest, BatchInvarianceNeedsNoGroupThatReduces) {
  PlannerOptions options{.reproducibility = Reproducibility::kBatchInvariant};
  const auto plan = [&](const char* tensor) {
    return TryPlan(tensor, "a=2,b=3", "P,P", "c=4@6-9", "S(0)", options).value();
  };
  EXPECT_EQ(plan("f32[64,64]").steps()[0].reduce_order, ReduceOrder::kAny);
  options.groups.allow_new_groups = false;
  for (const char* tensor : {"f32[1]", "f32[5,3]", "f32[64,64]", "f32[8192,8192]"}) {
    const Plan found = plan(tensor);
    EXPECT_EQ(Steps(found), "exchange{onto mesh 1} -> S(0)") << tensor;
    EXPECT_EQ(found.asked(), Reproducibility::kBatchInvariant);
    EXPECT_EQ(found.kept(), Reproducibility::kBatchInvariant);
    EXPECT_EQ(found.why(),
              "contributions are combined in ascending order of coordinates: the group that would "
              "reduce them does not exist");
    EXPECT_TRUE(Verify(found).ok());
  }
  options.ordered_reductions = false;
  EXPECT_EQ(TryPlan("f32[8]", "a=2,b=3", "P,P", "c=4@6-9", "S(0)", options).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

// The option reduce_dtype holds wherever contributions are added, even if it rounds them.
TEST(CrossMeshTest, ContributionsCrossInANarrowerDType) {
  PlannerOptions options{.reduce_dtype = DType::kBF16};
  const Plan plan = TryPlan("f32[8]", "a=2", "P", "b=2@2-3", "R", options).value();
  EXPECT_EQ(Steps(plan), "cast{bf16} -> P; exchange{onto mesh 1} -> R; cast{f32} -> R");
  EXPECT_EQ(plan.steps()[1].wire_dtype, DType::kBF16);
  EXPECT_EQ(plan.steps()[1].accumulate_dtype, DType::kF32);
  EXPECT_TRUE(Verify(plan).ok());
  // Also if no group may be made that adds them before.
  options.reproducibility = Reproducibility::kOrdered;
  options.groups.allow_new_groups = false;
  const Plan ordered = TryPlan("f32[8]", "a=2,c=2", "P,P", "b=2@4-5", "R", options).value();
  EXPECT_EQ(Steps(ordered), "cast{bf16} -> P,P; exchange{onto mesh 1} -> R; cast{f32} -> R");
  EXPECT_TRUE(Verify(ordered).ok());
}

TEST(CrossMeshTest, RefusesByName) {
  EXPECT_EQ(TryPlan("f32[8]", "a=4", "S(0)", "b=2", "R", {.planner = PlannerKind::kPerDim})
                .status()
                .message(),
            "the per-dim planner plans on one mesh; a=4 and b=2 differ");
  const Sharding from = Sharding::Parse("f32[8]", Mesh("a=4"), "R").value();
  EXPECT_EQ(MakePlan(from, Sharding::Parse("f32[9]", Mesh("b=2"), "R").value()).status().message(),
            "source f32[8] and target f32[9] differ in shape");
  EXPECT_EQ(MakePlan(from, Sharding::Parse("c64[8]", Mesh("b=2"), "R").value()).ok(), true);
  EXPECT_EQ(MakePlan(Sharding::Parse("c64[8]", Mesh("b=2"), "R").value(), from).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// The messages are not listed first, which would take gigabytes.
TEST(CrossMeshTest, RefusesTooManyMessages) {
  const absl::StatusOr<Plan> plan =
      TryPlan("f32[20000,20000]", "a=20000", "S(0)", "b=20000@20000-39999", "S(1)");
  EXPECT_EQ(plan.status().ToString(),
            "UNIMPLEMENTED: from f32[20000,20000] on a=20000 as S(0) to f32[20000,20000] on "
            "b=20000@20000-39999 as S(1) at least 400000000 messages cross; at most 16777216 are "
            "planned");
}

TEST(CrossMeshTest, BoundsAreThoseOfTheElements) {
  // Rank 2 receives nothing, and is the only holder of two elements.
  EXPECT_EQ(TryPlan("f32[8]", "a=3", "S(0)", "b=2", "S(0)")->lower_bound().bytes_sent, 2 * 4);
  // Each contribution leaves its rank, or another is sent to it.
  EXPECT_EQ(TryPlan("f32[8]", "a=2", "P", "b=1@2", "R")->lower_bound().bytes_sent, 8 * 4);
  EXPECT_EQ(TryPlan("f32[8]", "a=2", "P", "b=1@1", "R")->lower_bound().bytes_sent, 8 * 4);
  // Either of two ranks may send to the other two: half of the bytes each.
  EXPECT_EQ(TryPlan("f32[8]", "a=2", "R", "b=2@2-3", "S(0)")->lower_bound().bytes_sent, 8 * 4 / 4);
  EXPECT_EQ(TryPlan("f32[8]", "a=2", "S(0)", "b=1,c=2", "R,S(0)")->lower_bound().bytes_sent, 0);
}

TEST(CrossMeshTest, TheTopologyIsPartOfThePlan) {
  const auto plan = [](const char* topology) {
    return TryPlan("f32[8]", "a=2,b=2", "S(0),R", "c=2@4-5", "R",
                   {.topology = Topology::Parse(topology).value()})
        .value();
  };
  const std::string text = plan("nvlink=2").CanonicalText();
  EXPECT_NE(text.find("\nmesh a=2,b=2\nmesh c=2@4-5\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\nto 1 R\ntopology nvlink=2\nstep "), std::string::npos) << text;
  EXPECT_NE(plan("flat").fingerprint(), plan("nvlink=2").fingerprint());
}

TEST(CrossMeshTest, PlansThousandsOfRanks) {
  PlannerOptions options{.topology = Topology::Parse("nvlink=8").value()};
  const absl::StatusOr<Plan> plan = TryPlan("bf16[7168,2048]", "ep=64,fsdp=32", "S(0),S(0)",
                                            "dp=32,tp=8@2048-2303", "R,S(1)", options);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(Steps(*plan), "exchange{onto mesh 1} -> S(0),S(1); exchange{dp} -> R,S(1)");
  EXPECT_EQ(plan->steps()[0].group_size, 2304);
}

// --- Random pairs ---

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 1) {}
  int64_t Below(int64_t n) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int64_t>((state_ >> 33) % static_cast<uint64_t>(n));
  }
  template <typename T>
  const T& Of(const std::vector<T>& items) {
    return items[Below(static_cast<int64_t>(items.size()))];
  }

 private:
  uint64_t state_;
};

Placement RaggedCut(int k, int64_t extent, int64_t n, Random& random) {
  Placement::Sizes sizes(n, 0);
  for (int64_t i = 0; i < extent; ++i) ++sizes[random.Below(n)];
  return Placement::RaggedShard(k, std::move(sizes));
}

Sharding RandomSharding(const DeviceMesh& mesh, const TensorType& tensor, ReduceOp op,
                        Random& random) {
  std::vector<Placement> placements;
  std::vector<Cuts> cuts(tensor.shape.size());
  const auto rank = static_cast<int64_t>(tensor.shape.size());
  for (int d = 0; d < mesh.NumDims(); ++d) {
    const int64_t kind = random.Below(5);
    if (kind == 0) {
      placements.push_back(Placement::Partial(op));
    } else if (kind < 4 && rank > 0) {
      const auto k = static_cast<int>(random.Below(rank));
      const int64_t first = !cuts[k].empty() && placements[cuts[k][0]].IsRagged() ? 1 : 0;
      const auto places = static_cast<int64_t>(cuts[k].size()) + 1 - first;
      const int64_t place = first + random.Below(places);
      placements.push_back(place == 0 && random.Below(4) == 0
                               ? RaggedCut(k, tensor.shape[k], mesh.dim(d).size, random)
                               : Placement::Shard(k));
      cuts[k].insert(cuts[k].begin() + place, d);
    } else {
      placements.push_back(Placement::Replicate());
    }
  }
  return Sharding::Create(mesh, tensor, placements, cuts).value();
}

int64_t LargestBytes(const Sharding& sharding) {
  return Bytes(sharding.dtype(), sharding.MaxLocalElements());
}

// Facts that hold for every plan onto another mesh.
void Check(const Plan& plan, const Sharding& from, const Sharding& to) {
  ASSERT_EQ(plan.meshes().size(), 2u);
  ASSERT_EQ(plan.fields().from_mesh, 0);
  ASSERT_EQ(plan.fields().to_mesh, 1);
  ASSERT_GE(plan.kept(), plan.asked());
  int64_t crossings = 0;
  int64_t limit = std::max(LargestBytes(from), LargestBytes(to));
  if (from.HasPartial()) {
    const DType reduce =
        plan.options().reduce_dtype.value_or(DefaultReduceDType(from.dtype(), to.dtype()));
    limit = std::max(limit, Bytes(reduce, from.MaxLocalElements()));
  }
  limit = std::max(limit + limit / 4, kSmallValue);
  PlanTotals sum;
  std::vector<int64_t> ranks = from.mesh().Ranks();
  const std::vector<int64_t> others = to.mesh().Ranks();
  ranks.insert(ranks.end(), others.begin(), others.end());
  const Sharding* before = &from;
  for (size_t i = 0; i < plan.steps().size(); ++i) {
    const Step& step = plan.steps()[i];
    ASSERT_EQ(step.mesh, crossings + (IsCrossing(step) ? 1 : 0));
    ASSERT_EQ(step.bytes_in, LargestBytes(*before));
    ASSERT_EQ(step.bytes_out, LargestBytes(step.after));
    ASSERT_LE(step.bytes_out, limit);
    if (IsCrossing(step)) {
      ++crossings;
      ASSERT_EQ(step.op == StepOp::kRelabel, step.bytes_sent == 0);
      ASSERT_EQ(step.after.dtype(), before->dtype());
    }
    int64_t worst = 0;
    for (const int64_t rank : ranks) {
      worst = std::max(worst, BytesSent(plan, static_cast<int>(i), rank));
    }
    ASSERT_EQ(worst, step.bytes_sent) << step.ToString();
    sum.bytes_sent += step.bytes_sent;
    sum.est_ns += step.est_ns;
    sum.collectives += IsCollective(step.op) ? 1 : 0;
    before = &step.after;
  }
  ASSERT_EQ(crossings, 1);
  for (int d = 0; d < to.mesh().NumDims(); ++d) {
    if (to.mesh().dim(d).size > 1) {
      ASSERT_EQ(before->placement(d), to.placement(d));
    }
  }
  ASSERT_EQ(before->dtype(), to.dtype());
  ASSERT_EQ(plan.total().bytes_sent, sum.bytes_sent);
  ASSERT_EQ(plan.total().est_ns, sum.est_ns);
  ASSERT_EQ(plan.total().collectives, sum.collectives);
  ASSERT_LE(plan.lower_bound().bytes_sent, plan.total().bytes_sent);
  ASSERT_LE(plan.lower_bound().est_ns, plan.total().est_ns);
  ASSERT_EQ(plan.total().peak_bytes,
            LargestBytes(from) + LargestBytes(to) + plan.total().workspace_bytes);
}

TEST(CrossMeshTest, RandomPairsArePlanned) {
  const std::vector<std::string> meshes = {"a=1",          "a=2",
                                           "a=3",          "a=4",
                                           "a=5",          "a=6",
                                           "a=2,b=2",      "a=2,b=3",
                                           "a=3,b=2",      "c=2@1,0",
                                           "c=4@3,1,0,2",  "c=2,d=2@2,3,0,1",
                                           "c=3@2-4",      "c=2@5-6",
                                           "c=2,d=3@6-11", "c=2,d=1,e=2@1-4",
                                           "c=2,d=2,e=2",  "c=6@0,2,4,6,8,10"};
  const std::vector<Shape> shapes = {{},     {1},    {5},       {8},       {0, 3},
                                     {3, 5}, {8, 6}, {1, 7, 2}, {4, 4, 4}, {64, 48}};
  struct DTypes {
    DType from, to;
    std::optional<DType> reduce;
    ReduceOp op;
  };
  const std::vector<DTypes> dtypes = {{DType::kF32, DType::kF32, {}, ReduceOp::kSum},
                                      {DType::kF32, DType::kF32, {}, ReduceOp::kAvg},
                                      {DType::kF32, DType::kBF16, {}, ReduceOp::kSum},
                                      {DType::kBF16, DType::kF32, {}, ReduceOp::kAvg},
                                      {DType::kBF16, DType::kBF16, DType::kF32, ReduceOp::kSum},
                                      {DType::kBF16, DType::kF8E4M3, {}, ReduceOp::kSum},
                                      {DType::kI32, DType::kI32, {}, ReduceOp::kAvg},
                                      {DType::kI8, DType::kI32, {}, ReduceOp::kMax}};
  const std::vector<Topology> topologies = {Topology::Flat(), Topology::Parse("nvlink=2").value(),
                                            Topology::Parse("nvlink=2,rail=4").value()};
  int64_t exchanges = 0;
  int64_t relabels = 0;
  int64_t longer = 0;
  int64_t refused = 0;  // by max_value
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    Random random(seed);
    const DTypes& types = random.Of(dtypes);
    const Shape& shape = random.Of(shapes);
    const DeviceMesh from_mesh = Mesh(random.Of(meshes));
    const DeviceMesh to_mesh = Mesh(random.Of(meshes));
    if (from_mesh == to_mesh) continue;
    const Sharding from =
        RandomSharding(from_mesh, TensorType{types.from, shape}, types.op, random);
    const Sharding to = RandomSharding(to_mesh, TensorType{types.to, shape}, types.op, random);
    PlannerOptions options{.reproducibility = static_cast<Reproducibility>(random.Below(4)),
                           .topology = random.Of(topologies)};
    options.reduce_dtype = types.reduce;
    if (random.Below(4) == 0) options.max_value = random.Below(2000);
    SCOPED_TRACE(fmt::format("seed {}: {} -> {}, {}", seed, from.ToString(), to.ToString(),
                             Name(options.reproducibility)));
    const absl::StatusOr<Plan> plan = MakePlan(from, to, options);
    if (options.max_value && !plan.ok()) {
      ASSERT_EQ(plan.status().code(), absl::StatusCode::kFailedPrecondition) << plan.status();
      ++refused;
      continue;
    }
    ASSERT_TRUE(plan.ok()) << plan.status();
    ASSERT_NO_FATAL_FAILURE(Check(*plan, from, to)) << PlanToText(*plan);
    const Verdict verdict = Verify(*plan);
    ASSERT_TRUE(verdict.ok()) << verdict.fault->rule << ": " << verdict.fault->message << "\n"
                              << PlanToText(*plan);
    // Both text forms read back.
    ASSERT_EQ(PlanFromJson(PlanToJson(*plan)).value(), *plan);
    const absl::StatusOr<Plan> read = PlanFromText(PlanToText(*plan));
    ASSERT_TRUE(read.ok()) << read.status() << "\n" << PlanToText(*plan);
    ASSERT_EQ(*read, *plan);
    for (const Step& step : plan->steps()) {
      exchanges += IsCrossing(step) && step.op == StepOp::kExchange ? 1 : 0;
      relabels += step.op == StepOp::kRelabel ? 1 : 0;
    }
    longer += plan->steps().size() > 1 ? 1 : 0;
  }
  EXPECT_GT(exchanges, 1000);
  EXPECT_GT(relabels, 50);
  EXPECT_GT(longer, 500);
  EXPECT_GT(refused, 20);
}

// After a quarter of a million ranks and messages no further crossing is priced, also to bound the
// searches to near ends. Without that bound this takes 132 million units of work.
TEST(CrossMeshTest, LargeCrossingsEndThePricing) {
  const DeviceMesh from_mesh = DeviceMesh::Parse("a=4096,b=256").value();
  const DeviceMesh to_mesh = DeviceMesh::Parse("a=64,b=8@0-511").value();
  PlannerOptions options{.topology = Topology::Parse("h100").value()};
  options.max_work = 100'000'000;
  const Sharding from = Sharding::Parse("bf16[65536,65536]", from_mesh, "R,S(1)").value();
  const Sharding to = Sharding::Parse("bf16[65536,65536]", to_mesh, "S(1),S(0)").value();
  const absl::StatusOr<Plan> plan = MakePlan(from, to, options);
  EXPECT_TRUE(plan.ok()) << plan.status();
}

}  // namespace
}  // namespace meshift
