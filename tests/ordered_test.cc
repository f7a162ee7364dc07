// The promise `ordered` on the in-process engine: the bits are those of a plain loop, for every
// factoring of the mesh, every topology of the plan, and any order of the engine's own sums.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/local/reduction_order.h"
#include "comm/program/lowering.h"
#include "comm/program/program_bytes.h"
#include "meshift/planner.h"
#include "meshift/testing.h"
#include "meshift/topology.h"
#include "meshift/verifier.h"
#include "planner/plan/rank_bytes.h"
#include "testing/internal/program_check.h"
#include "testing/plan_runner.h"
#include "testing/small_world.h"
#include "tests/ordered_case.h"
#include "tests/ordered_check.h"
#include "tests/ordered_run.h"

namespace meshift {
namespace {

constexpr int kShards = 4;
constexpr int64_t kCases = 750;  // a third of them in blocks

// Every rank's program stays within its memory, and sends the planned bytes.
void CheckPrograms(const Plan& plan) {
  const DeviceMesh& mesh = plan.from().mesh();
  for (int64_t p = 0; p < mesh.NumRanks(); ++p) {
    const int64_t rank = mesh.RankAt(p);
    const absl::StatusOr<Program> program = Lower(plan, rank);
    ASSERT_TRUE(program.ok()) << program.status();
    ASSERT_EQ(CheckProgram(*program), "") << program->ToString();
    const std::vector<int64_t> bytes = RecordOf(*program).bytes_sent;
    for (size_t i = 0; i < plan.steps().size(); ++i) {
      EXPECT_EQ(BytesSent(plan, static_cast<int>(i), rank), bytes[i])
          << "rank " << rank << ": " << plan.from().ToString() << ": "
          << plan.steps()[i].ToString();
    }
  }
}

class OrderedTest : public ::testing::TestWithParam<int> {
 protected:
  // Runs the plan with other orders of the engine's own sums; returns the number of runs.
  static int64_t Judge(const OrderedCase& c, const Plan& plan, int64_t domain) {
    int64_t runs = 0;
    for (const ReductionOrder order :
         {ReductionOrder::kRanks, ReductionOrder::kTopology, ReductionOrder::kAdversarial}) {
      EXPECT_EQ(FindOtherBits(c, plan, order, domain), "")
          << c.ToString() << ": " << plan.from().ToString() << " -> " << plan.to().ToString();
      ++runs;
    }
    return runs;
  }
};

TEST_P(OrderedTest, BitsAreThoseOfAPlainLoop) {
  int64_t cases = 0;
  int64_t runs = 0;
  int64_t rounding = 0;
  int64_t blocked = 0;
  int64_t staged_reduces = 0;  // number of plans
  int64_t staged_scatters = 0;
  for (int64_t seed = GetParam(); seed < kCases; seed += kShards * testkit::TestFraction()) {
    const OrderedCase c(static_cast<uint64_t>(seed), {.blocks = cases % 3 == 2, .shuffle = true});
    ++cases;
    blocked += c.reduce_block() > 0 && !IsExact(c.op(), c.dtype()) ? 1 : 0;
    rounding += IsExact(c.op(), c.dtype()) ? 0 : 1;
    for (const OrderedProblem& problem : c.Problems()) {
      // The groups fill the domains unevenly.
      const int64_t block = c.reduce_block();
      const Topology topology =
          block > 0 && c.contributions() <= 16 && seed / 4 % 4 < 3
              ? DearCrossings(block * c.ranks() / c.contributions())
          : block > 0     ? DearMessages(2 + seed % 7)
          : seed % 2 == 0 ? Topology::Flat()
                          : Topology::Parse(fmt::format("nvlink={}", 2 + seed % 7)).value();
      const absl::StatusOr<Plan> plan = MakePlan(problem.from, problem.to,
                                                 {.reproducibility = Reproducibility::kOrdered,
                                                  .topology = topology,
                                                  .reduce_block = c.reduce_block()});
      ASSERT_TRUE(plan.ok()) << c.ToString() << ": " << plan.status();
      EXPECT_EQ(plan->kept(), Reproducibility::kOrdered) << c.ToString();
      const Verdict verdict = Verify(*plan);
      ASSERT_TRUE(verdict.ok()) << c.ToString() << ": " << problem.from.ToString() << " -> "
                                << problem.to.ToString() << ": " << verdict.fault->rule << ": "
                                << verdict.fault->message;
      for (const Step& step : plan->steps()) {
        if (!step.reduce_stages) continue;
        ++(step.op == StepOp::kAllReduce ? staged_reduces : staged_scatters);
        CheckPrograms(*plan);
      }
      runs += Judge(c, *plan, 2 + seed % 7);
      if (HasFailure()) return;
    }
  }
  fmt::print(
      "ordered: {} cases, {} of them depend on the order, {} of these in blocks ({} all_reduces "
      "and {} reduce_scatters in stages), {} runs, 0 wrong\n",
      cases, rounding, blocked, staged_reduces, staged_scatters, runs);
  EXPECT_GT(rounding, blocked);
  EXPECT_TRUE(testkit::TestFraction() > 1 || blocked > 20) << blocked;
  EXPECT_TRUE(testkit::TestFraction() > 1 || staged_scatters > 5) << staged_scatters;
}

// The cases that the other engines run: every factoring gives the bits of the same loop.
TEST_P(OrderedTest, CasesOfAllEnginesAreThoseOfAPlainLoop) {
  int64_t cases = 0;
  int64_t problems = 0;
  for (const int64_t ranks : kOrderedSizes) {
    for (int64_t i = GetParam(); i < kOrderedCases; i += kShards * testkit::TestFraction()) {
      const OrderedCase c(OrderedSeed(ranks) + static_cast<uint64_t>(i),
                          {.ranks = ranks, .shuffle = true});
      ++cases;
      for (const OrderedProblem& problem : c.Problems()) {
        const absl::StatusOr<Plan> plan =
            MakePlan(problem.from, problem.to, {.reproducibility = Reproducibility::kOrdered});
        ASSERT_TRUE(plan.ok()) << c.ToString() << ": " << plan.status();
        Judge(c, *plan, 2 + i % 7);
        if (HasFailure()) return;
        ++problems;
      }
    }
  }
  fmt::print("ordered: {} cases of all engines, {} factorings, 0 wrong\n", cases, problems);
  EXPECT_GT(problems, cases);
}

// Selects the cases whose plan has an all-reduce in stages.
TEST_P(OrderedTest, AllReducesInStages) {
  int64_t plans = 0;
  for (int64_t seed = GetParam(); seed < 1600; seed += kShards * testkit::TestFraction()) {
    const OrderedCase c(static_cast<uint64_t>(seed + 20000), {.blocks = true});
    const int64_t block = c.reduce_block();
    if (c.contributions() > 16 || c.contributions() % block != 0) continue;
    for (const OrderedProblem& problem : c.Problems()) {
      const absl::StatusOr<Plan> plan =
          MakePlan(problem.from, problem.to,
                   {.reproducibility = Reproducibility::kOrdered,
                    .topology = DearCrossings(block * c.ranks() / c.contributions()),
                    .reduce_block = block});
      ASSERT_TRUE(plan.ok()) << c.ToString() << ": " << plan.status();
      const bool wanted =
          std::any_of(plan->steps().begin(), plan->steps().end(),
                      [](const Step& s) { return s.op == StepOp::kAllReduce && s.reduce_stages; });
      if (!wanted) continue;
      ++plans;
      const Verdict verdict = Verify(*plan);
      ASSERT_TRUE(verdict.ok()) << c.ToString() << ": " << verdict.fault->message;
      CheckPrograms(*plan);
      Judge(c, *plan, 3);
      if (HasFailure()) return;
    }
  }
  fmt::print("in stages: {} all_reduces, 0 wrong\n", plans);
  EXPECT_TRUE(testkit::TestFraction() > 1 || plans > 3) << plans;
}

INSTANTIATE_TEST_SUITE_P(Cases, OrderedTest, ::testing::Range(0, kShards));

// Any redistribution: the additions of promises to plans are right, send the planned bytes, and
// leave equal replicas although the engine distorts its own sums.
TEST_P(OrderedTest, RandomRedistributionsAreRight) {
  using testkit::Values;
  constexpr std::array kDTypes = {DType::kF32, DType::kBF16, DType::kC64};
  constexpr std::array kOps = {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kProduct};
  int64_t ordered = 0;
  for (int64_t i = GetParam(); i < 1200; i += kShards * testkit::TestFraction()) {
    const auto seed = static_cast<uint64_t>(i);
    const auto [from, to] = testkit::RandomCase(seed + 5000, kDTypes[seed % kDTypes.size()],
                                                kOps[seed / 3 % kOps.size()]);
    const auto runner = testkit::PlanRunner::Create(from.mesh());
    ASSERT_TRUE(runner.ok()) << runner.status();
    for (const auto promise : {Reproducibility::kBatchInvariant, Reproducibility::kOrdered}) {
      const absl::StatusOr<Plan> plan =
          MakePlan(from, to,
                   {.reproducibility = promise,
                    .topology = Topology::Parse(fmt::format("nvlink={}", 2 + i % 5)).value()});
      const std::string text = fmt::format("seed {}: {} -> {}", i, from.ToString(), to.ToString());
      ASSERT_TRUE(plan.ok()) << text << ": " << plan.status();
      EXPECT_EQ(plan->kept(), promise) << text;
      const Verdict verdict = Verify(*plan);
      ASSERT_TRUE(verdict.ok()) << text << ": " << verdict.fault->rule << ": "
                                << verdict.fault->message;
      const testkit::Pass passes[] = {{.fill = {.values = Values::kExact, .seed = 1}},
                                      {.fill = {.values = Values::kSpecial, .seed = 2}},
                                      {.fill = {.values = Values::kRounding, .seed = 3},
                                       .order = ReductionOrder::kAdversarial}};
      const absl::StatusOr<testkit::PlanRun> run = (*runner)->Run(*plan, passes);
      ASSERT_TRUE(run.ok()) << text << ": " << run.status();
      EXPECT_TRUE(run->data.ok()) << text << ": " << run->data.ToString();
      for (size_t s = 0; s < plan->steps().size(); ++s) {
        EXPECT_EQ(run->bytes_sent[s], plan->steps()[s].bytes_sent)
            << text << ": " << plan->steps()[s].ToString();
        ordered += plan->steps()[s].reduce_order == ReduceOrder::kAscending ? 1 : 0;
      }
    }
  }
  EXPECT_TRUE(testkit::TestFraction() > 1 || ordered > 60) << ordered;
}

// Compares bytes per rank with those of a ring, for tensors of some thousand elements and more.
TEST(OrderedBytesTest, AreThoseOfARing) {
  for (const char* mesh : {"a=2", "a=8", "a=40", "a=8,b=5", "a=7,b=3"}) {
    const DeviceMesh m = DeviceMesh::Parse(mesh).value();
    for (const char* tensor : {"bf16[4096]", "f32[1000,77]", "bf16[1048573]"}) {
      const bool one = m.NumDims() == 1;
      const Sharding from = Sharding::Parse(tensor, m, one ? "P" : "P,P").value();
      const Sharding to = from.WithPlacements(one ? "R" : "R,R").value();
      const Plan ordered =
          MakePlan(from, to, {.reproducibility = Reproducibility::kOrdered}).value();
      const int64_t n = m.NumRanks();
      const auto ring = static_cast<double>(2 * (n - 1)) / static_cast<double>(n) *
                        static_cast<double>(Bytes(from.dtype(), NumElements(from.shape())));
      EXPECT_LE(static_cast<double>(ordered.total().bytes_sent), 1.02 * ring)
          << mesh << " " << tensor;
    }
  }
}

}  // namespace
}  // namespace meshift
