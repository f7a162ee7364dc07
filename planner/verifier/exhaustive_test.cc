// All steps between all shardings of small meshes and tensors. The verifier must accept exactly the
// steps that bring every rank its elements with each contribution once, and must count the bytes of
// testing/internal/element_simulator.h, which moves single elements and does not compute boxes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "meshift/device_mesh.h"
#include "meshift/placement.h"
#include "meshift/plan.h"
#include "meshift/sharding.h"
#include "meshift/verifier.h"
#include "testing/internal/element_simulator.h"
#include "testing/shardings.h"
#include "testing/small_world.h"

namespace meshift {
namespace {

// `s` with its outermost cuts ragged: all indices at the last coordinate; or one index at the last
// coordinate and the others at the first.
std::vector<Sharding> RaggedOnes(const Sharding& s) {
  std::vector<Sharding> result;
  for (const bool all : {true, false}) {
    std::vector<Placement> placements(s.placements().begin(), s.placements().end());
    std::vector<Cuts> orders;
    bool any = false;
    for (int t = 0; t < static_cast<int>(s.shape().size()); ++t) {
      orders.emplace_back(s.CutsOf(t).begin(), s.CutsOf(t).end());
      if (orders[t].empty()) continue;
      Placement::Sizes sizes(s.mesh().dim(orders[t][0]).size, 0);
      const int64_t last = all ? s.shape()[t] : std::min<int64_t>(s.shape()[t], 1);
      sizes.back() = last;
      sizes.front() += s.shape()[t] - last;
      placements[orders[t][0]] = Placement::RaggedShard(t, std::move(sizes));
      any = true;
    }
    if (any) result.push_back(*Sharding::Create(s.mesh(), s.tensor(), placements, orders));
  }
  return result;
}

// `s` with At in place of R on at least one mesh dim: each single coordinate; on three coordinates
// also the first and the last.
std::vector<Sharding> OwnedOnes(const Sharding& s) {
  std::vector<Sharding> result = {s};
  for (int d = 0; d < s.mesh().NumDims(); ++d) {
    if (!s.placement(d).IsReplicate()) continue;
    const int64_t n = s.mesh().dim(d).size;
    std::vector<Placement> owners;
    for (int64_t i = 0; i < n; ++i) owners.push_back(Placement::At({i}));
    if (n == 3) owners.push_back(Placement::At({0, 2}));
    for (size_t i = 0, count = result.size(); i < count; ++i) {
      for (const Placement& at : owners) {
        std::vector<Placement> placements(result[i].placements().begin(),
                                          result[i].placements().end());
        placements[d] = at;
        std::vector<Cuts> orders;
        for (int t = 0; t < static_cast<int>(s.shape().size()); ++t) {
          orders.emplace_back(s.CutsOf(t).begin(), s.CutsOf(t).end());
        }
        result.push_back(*Sharding::Create(s.mesh(), s.tensor(), placements, orders));
      }
    }
  }
  result.erase(result.begin());
  return result;
}

// All sets of mesh dims but the empty one.
std::vector<DimSet> MeshDimSets(const DeviceMesh& mesh) {
  std::vector<DimSet> sets;
  for (int bits = 1; bits < 1 << mesh.NumDims(); ++bits) {
    DimSet set;
    for (int d = 0; d < mesh.NumDims(); ++d) {
      if ((bits >> d & 1) != 0) set.push_back(d);
    }
    sets.push_back(set);
  }
  return sets;
}

// Each op; those of blocks with padded ones and with exact ones.
constexpr std::pair<StepOp, bool> kOwnedOps[] = {
    {StepOp::kAllReduce, false}, {StepOp::kReduceScatter, false}, {StepOp::kReduceScatter, true},
    {StepOp::kAllGather, false}, {StepOp::kAllGather, true},      {StepOp::kAllToAll, false},
    {StepOp::kPermute, false},   {StepOp::kExchange, false},      {StepOp::kSlice, false},
    {StepOp::kMask, false},      {StepOp::kBroadcast, false},     {StepOp::kBroadcast, true},
    {StepOp::kReduce, false},    {StepOp::kReduce, true},         {StepOp::kGather, false},
    {StepOp::kScatter, false},   {StepOp::kSend, false}};

struct Counts {
  int64_t accepted = 0;
  int64_t refused = 0;
};

Counts CheckAllSteps(const std::string& mesh_text, const std::string& tensor, bool ragged = false) {
  const DeviceMesh mesh = DeviceMesh::Parse(mesh_text).value();
  std::vector<Sharding> all =
      testkit::AllShardings(mesh, TensorType::Parse(tensor).value(), ReduceOp::kSum);
  for (size_t i = 0, plain = all.size(); i < plain && ragged; ++i) {
    for (Sharding& one : RaggedOnes(all[i])) all.push_back(std::move(one));
  }
  Counts counts;
  int64_t index = 0;
  const int64_t fraction = testkit::TestFraction();
  for (const Sharding& before : all) {
    for (const Sharding& after : all) {
      if (before == after) continue;
      for (const DimSet& mesh_dims : MeshDimSets(mesh)) {
        // Ragged cuts are tried twice: with padded blocks, and with exact ones.
        const int ops = static_cast<int>(StepOp::kMask) + 1;
        for (int i = 0; i < (ragged ? 2 * ops : ops); ++i) {
          const int op = i % ops;
          if (index++ % fraction != 0) continue;
          ElementSimulator step(before, after, static_cast<StepOp>(op), mesh_dims);
          const bool can = step.Run();
          const PlanFields plan = step.MakePlan(/*exact=*/i >= ops);
          const Verdict verdict = Verify(Plan::FromParts(plan, {}), {.check_fingerprint = false});
          const std::string rule = verdict.ok() ? "" : verdict.fault->rule;
          ++(verdict.ok() ? counts.accepted : counts.refused);
          // Refusals for the form of a step have tests of their own (damage_test.cc,
          // fault_test.cc).
          const bool right = verdict.ok() ? can
                             : rule == "data"
                                 ? !can
                                 : rule == "op" || rule == "after" || rule == "mesh_dims" ||
                                       (rule == "sizes" && !can);
          EXPECT_TRUE(right) << before.ToString() << ": " << plan.steps[0].ToString() << " " << can
                             << (verdict.ok() ? "" : " " + rule + ": " + verdict.fault->message);
          if (!right) return counts;
        }
      }
    }
  }
  return counts;
}

// The same with At on at least one side. The verifier must also accept every possible step that has
// the form of its op.
Counts CheckAllOwnedSteps(const std::string& mesh_text, const std::string& tensor,
                          bool ragged = false) {
  const DeviceMesh mesh = DeviceMesh::Parse(mesh_text).value();
  std::vector<Sharding> all =
      testkit::AllShardings(mesh, TensorType::Parse(tensor).value(), ReduceOp::kSum);
  for (size_t i = 0, plain = all.size(); i < plain; ++i) {
    for (Sharding& one : OwnedOnes(all[i])) all.push_back(std::move(one));
  }
  for (size_t i = 0, plain = all.size(); i < plain && ragged; ++i) {
    for (Sharding& one : RaggedOnes(all[i])) all.push_back(std::move(one));
  }
  Counts counts;
  int64_t index = 0;
  const int64_t fraction = testkit::TestFraction();
  for (const Sharding& before : all) {
    for (const Sharding& after : all) {
      if (before == after || (!before.HasAt() && !after.HasAt())) continue;
      for (const DimSet& mesh_dims : MeshDimSets(mesh)) {
        for (const auto& [op, exact] : kOwnedOps) {
          if (index++ % fraction != 0) continue;
          ElementSimulator step(before, after, op, mesh_dims);
          const bool can = step.Run();
          const PlanFields plan = step.MakePlan(exact);
          const Verdict verdict = Verify(Plan::FromParts(plan, {}), {.check_fingerprint = false});
          const std::string rule = verdict.ok() ? "" : verdict.fault->rule;
          ++(verdict.ok() ? counts.accepted : counts.refused);
          const bool must = can && step.HasForm();
          const bool is_form =
              rule == "op" || rule == "after" || rule == "mesh_dims" || rule == "sizes";
          const bool right = verdict.ok() ? must : rule == "data" ? !can : !must && is_form;
          EXPECT_TRUE(right) << before.ToString() << ": " << plan.steps[0].ToString() << " " << can
                             << (verdict.ok() ? "" : " " + rule + ": " + verdict.fault->message);
          if (!right) return counts;
        }
      }
    }
  }
  return counts;
}

// Whether each rank has the same box, on mesh dims that are partial in both or in neither.
bool AreOneLayout(const Sharding& a, const Sharding& b) {
  for (int d = 0; d < a.mesh().NumDims(); ++d) {
    if (a.placement(d).IsPartial() != b.placement(d).IsPartial()) return false;
  }
  for (int64_t p = 0; p < a.mesh().NumRanks(); ++p) {
    const Box x = a.BoxAt(a.mesh().CoordinateAt(p));
    const Box y = b.BoxAt(b.mesh().CoordinateAt(p));
    if (!(x.IsEmpty() && y.IsEmpty()) && x != y) return false;
  }
  return true;
}

// A cast from f32 to f64 is right if the layout stays and the bytes double; no other op may
// change the dtype.
TEST(VerifierExhaustiveTest, AllCastsOfSmallWorlds) {
  for (const char* mesh : {"a=3", "a=2,b=2", "a=2,b=3"}) {
    for (const char* tensor : {"f32[1]", "f32[5]", "f32[3,4]", "f32[]"}) {
      const std::vector<Sharding> all = testkit::AllShardings(
          DeviceMesh::Parse(mesh).value(), TensorType::Parse(tensor).value(), ReduceOp::kSum);
      for (const Sharding& before : all) {
        for (const Sharding& after : all) {
          PlanFields plan = ElementSimulator(before, after, StepOp::kCast, {}).MakePlan();
          Step& step = plan.steps[0];
          step.after = plan.to = after.WithDType(DType::kF64).value();
          step.bytes_out *= 2;
          plan.total.peak_bytes = step.bytes_in + step.bytes_out;
          EXPECT_EQ(Verify(Plan::Seal(plan)).ok(), AreOneLayout(before, after))
              << before.ToString() << ": " << step.ToString();
          step.op = StepOp::kSlice;
          step.mesh_dims = {0};
          EXPECT_EQ(Verify(Plan::Seal(plan)).fault.value().rule, "dtype") << step.ToString();
        }
      }
    }
  }
}

TEST(VerifierExhaustiveTest, AllStepsOfSmallWorlds) {
  Counts sum;
  for (const char* mesh : {"a=3", "a=2,b=2", "a=2,b=3", "a=2,b=2@0,2,3,1", "a=2,b=3@5,4,3,0,1,2"}) {
    for (const char* tensor : {"f32[1]", "f32[4]", "f32[5]", "f32[12]", "f32[2,2]", "f32[3,4]",
                               "f32[1,6]", "f32[5,3]", "f32[]"}) {
      const Counts counts = CheckAllSteps(mesh, tensor);
      sum.accepted += counts.accepted;
      sum.refused += counts.refused;
    }
  }
  for (const char* tensor : {"f32[1]", "f32[3]", "f32[8]", "f32[9]", "f32[2,4]"}) {
    const Counts counts = CheckAllSteps("a=2,b=2,c=2", tensor);
    sum.accepted += counts.accepted;
    sum.refused += counts.refused;
  }
  fmt::print("{} steps accepted, {} refused\n", sum.accepted, sum.refused);
  EXPECT_GT(sum.accepted, 0);
}

TEST(VerifierExhaustiveTest, AllStepsOfSmallOwnedWorlds) {
  Counts sum;
  const auto add = [&](const std::string& mesh, const std::string& tensor) {
    const Counts counts = CheckAllOwnedSteps(mesh, tensor);
    sum.accepted += counts.accepted;
    sum.refused += counts.refused;
  };
  for (const char* mesh : {"a=3", "a=2,b=2", "a=2,b=2@0,2,3,1", "a=3,b=2", "a=2,b=3@5,4,3,0,1,2"}) {
    for (const char* tensor : {"f32[1]", "f32[4]", "f32[3,2]", "f32[]"}) {
      add(mesh, tensor);
    }
  }
  add("a=2,b=2,c=2", "f32[3]");
  fmt::print("{} steps with owners accepted, {} refused\n", sum.accepted, sum.refused);
  if (testkit::TestFraction() != 1) return;
  EXPECT_EQ(sum.accepted, 30787);
  EXPECT_EQ(sum.refused, 2949109);
}

// S(0){0,4} leaves all to one coordinate, as At(1) does.
TEST(VerifierExhaustiveTest, AllStepsOfSmallRaggedOwnedWorlds) {
  Counts sum;
  for (const char* mesh : {"a=3", "a=2,b=2", "a=2,b=2@0,2,3,1", "a=3,b=2"}) {
    for (const char* tensor : {"f32[1]", "f32[4]", "f32[2,3]"}) {
      const Counts counts = CheckAllOwnedSteps(mesh, tensor, /*ragged=*/true);
      sum.accepted += counts.accepted;
      sum.refused += counts.refused;
    }
  }
  fmt::print("{} ragged steps with owners accepted, {} refused\n", sum.accepted, sum.refused);
  if (testkit::TestFraction() != 1) return;
  EXPECT_EQ(sum.accepted, 39506);
  EXPECT_EQ(sum.refused, 1487842);
}

TEST(VerifierExhaustiveTest, AllStepsOfSmallRaggedWorlds) {
  Counts sum;
  for (const char* mesh : {"a=3", "a=2,b=2", "a=2,b=2@0,2,3,1"}) {
    for (const char* tensor : {"f32[1]", "f32[4]", "f32[5]", "f32[2,3]", "f32[1,4]"}) {
      const Counts counts = CheckAllSteps(mesh, tensor, /*ragged=*/true);
      sum.accepted += counts.accepted;
      sum.refused += counts.refused;
    }
  }
  fmt::print("{} ragged steps accepted, {} refused\n", sum.accepted, sum.refused);
  EXPECT_GT(sum.accepted, 0);
}

}  // namespace
}  // namespace meshift
