// All short plans of casts, reductions and masks on a mesh of 2 x 2. The test runs each plan as
// docs/plan_format.md says; the verifier may accept only plans whose result is, bit for bit, that
// of the definition.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/plan.h"
#include "meshift/sharding.h"
#include "meshift/testing.h"
#include "placement/cast.h"
#include "testing/cast.h"
#include "testing/internal/plan_cases.h"
#include "testing/number.h"
#include "testing/small_world.h"

namespace meshift {
namespace {

using testkit::Number;
using testkit::NumberOps;
using testkit::NumberOpsOf;

constexpr int64_t kElements = 64;
constexpr DType kDTypes[] = {DType::kF32, DType::kBF16, DType::kF16, DType::kI16, DType::kI8};
constexpr const char* kDims[] = {"a", "b", "a,b"};  // by bit mask - 1; bit 0 is a, bit 1 is b

// The values of all ranks, by position 2 * a + b.
struct Values {
  DType dtype;
  std::vector<Number> ranks[4];
};

// A step of a plan.
struct Move {
  StepOp op;
  int dims;     // bit mask of mesh dims
  DType dtype;  // after the step
};

// The identity of sum and max.
Number IdentityOf(ReduceOp op, DType dtype) {
  const double infinity = std::numeric_limits<double>::infinity();
  const NumberOps& ops = NumberOpsOf(dtype);
  if (op == ReduceOp::kMax) return ops.round({.is_integer = false, .re = -infinity});
  return ops.is_integer ? Number{} : Number{.is_integer = false, .re = -0.0};
}

Number Folded(ReduceOp op, DType dtype, const Number& x, const Number& y) {
  const bool sums = op == ReduceOp::kSum;
  Number z = x;
  if (NumberOpsOf(dtype).is_integer) {
    z.integer = sums ? x.integer + y.integer : std::max(x.integer, y.integer);
  } else {
    z.re = testkit::Fold<testkit::F64>(op, x.re, y.re);
  }
  return NumberOpsOf(dtype).round(z);
}

void Run(const Move& move, ReduceOp op, Values* values) {
  if (move.op == StepOp::kCast) {
    const NumberOps& ops = NumberOpsOf(move.dtype);
    for (std::vector<Number>& rank : values->ranks) {
      for (Number& x : rank) x = ops.round(x);
    }
    values->dtype = move.dtype;
    return;
  }
  const int bits = (move.dims & 1) * 2 + (move.dims >> 1);  // of positions
  const Values before = *values;
  for (int p = 0; p < 4; ++p) {
    if (move.op == StepOp::kMask) {
      if ((p & bits) == 0) continue;
      values->ranks[p].assign(kElements, IdentityOf(op, values->dtype));
      continue;
    }
    std::vector<Number>& total = values->ranks[p];
    for (int q = 0; q < 4; ++q) {
      if (q == p || ((p ^ q) & ~bits) != 0) continue;
      for (int64_t i = 0; i < kElements; ++i) {
        total[i] = Folded(op, values->dtype, total[i], before.ranks[q][i]);
      }
    }
  }
}

class Worlds {
 public:
  Worlds(DType from, const char* placements, ReduceOp op, std::optional<DType> reduce)
      : from_(from), placements_(placements), op_(op), reduce_(reduce) {}

  void TryAll(int depth) {
    const bool p = placements_[0] == 'P', q = placements_[placements_.size() - 1] != 'R';
    Extend(depth, from_, (p ? 1 : 0) | (q ? 2 : 0));
  }

  int64_t accepted = 0, refused_and_wrong = 0, refused_and_right = 0, bad = 0;
  std::map<std::string, int64_t> rules;

 private:
  std::string PlacementsText(int partial) const {
    const std::string p = op_ == ReduceOp::kMax ? "P(max)" : "P";
    return ((partial & 1) != 0 ? p : "R") + "," + ((partial & 2) != 0 ? p : "R");
  }

  // `partial`: bit mask of the mesh dims that are partial.
  void Extend(int depth, DType dtype, int partial) {
    if (!moves_.empty()) Try(dtype, partial);
    if (depth == 0) return;
    const auto go = [&](const Move& move, DType after, int partial_after) {
      moves_.push_back(move);
      Extend(depth - 1, after, partial_after);
      moves_.pop_back();
    };
    for (const DType to : kDTypes) {
      if (to != dtype) go({StepOp::kCast, 0, to}, to, partial);
    }
    for (int dims = 1; dims <= 3; ++dims) {
      if ((partial & dims) == dims) go({StepOp::kAllReduce, dims, dtype}, dtype, partial & ~dims);
      if ((partial & dims) == 0) go({StepOp::kMask, dims, dtype}, dtype, partial | dims);
    }
  }

  // The plan of the moves, with its bytes computed here.
  PlanFields MakePlan(DType to, int partial_after) const {
    Case c = {"a=2,b=2",   fmt::format("{}[{}]", Name(from_), kElements),
              placements_, PlacementsText(partial_after),
              {},          0,
              to,          reduce_};
    DType dtype = from_;
    int partial =
        (placements_[0] == 'P' ? 1 : 0) | (placements_[placements_.size() - 1] != 'R' ? 2 : 0);
    for (size_t i = 0; i < moves_.size(); ++i) {
      const Move& move = moves_[i];
      const int64_t in = Bytes(dtype, kElements);
      if (move.op == StepOp::kCast) {
        c.rows.push_back(
            Cast(move.dtype, PlacementsText(partial), in, Bytes(move.dtype, kElements)));
        dtype = move.dtype;
      } else {
        const bool reduces = move.op == StepOp::kAllReduce;
        partial ^= move.dims;
        const int64_t n = move.dims == 3 ? 4 : 2;
        c.rows.push_back({move.op, kDims[move.dims - 1], PlacementsText(partial), in, in,
                          reduces ? 2 * in * (n - 1) / n : 0, StepSizes::kEven, op_});
      }
      const int64_t before = i == 0 ? 0 : in;
      const int64_t after = i + 1 == moves_.size() ? 0 : Bytes(dtype, kElements);
      c.workspace = std::max(c.workspace, before + after);
    }
    PlanFields plan = MakeFields(c);
    plan.kept = Reproducibility::kNone;
    return plan;
  }

  // Whether the result of the moves is the target of the definition.
  bool RunsRight(const testkit::Oracle& oracle) const {
    for (const uint64_t seed : {1, 2}) {
      const testkit::Fill fill{.seed = seed};
      Values values{.dtype = from_, .ranks = {}};
      std::vector<std::byte> buffer(oracle.SourceBytes(0));
      for (int p = 0; p < 4; ++p) {
        EXPECT_TRUE(oracle.FillSource(fill, p, absl::MakeSpan(buffer)).ok());
        for (int64_t i = 0; i < kElements; ++i) {
          values.ranks[p].push_back(NumberOpsOf(from_).load(buffer.data(), i));
        }
      }
      for (const Move& move : moves_) Run(move, op_, &values);
      std::vector<std::vector<std::byte>> targets;
      for (int p = 0; p < 4; ++p) {
        targets.emplace_back(oracle.TargetBytes(p));
        for (int64_t i = 0; i < kElements; ++i) {
          NumberOpsOf(values.dtype).store(values.ranks[p][i], targets[p].data(), i);
        }
      }
      const std::vector<absl::Span<const std::byte>> views(targets.begin(), targets.end());
      if (!oracle.Check(fill, views).value().ok()) return false;
    }
    return true;
  }

  void Try(DType to, int partial) {
    // Values that are never cast may be NaNs with payload bits, which Number does not keep.
    const bool casts = std::any_of(moves_.begin(), moves_.end(),
                                   [](const Move& move) { return move.op == StepOp::kCast; });
    if (!casts && placements_ == "R,R") return;
    const PlanFields plan = MakePlan(to, partial);
    const auto oracle = testkit::Oracle::Create(plan.from, plan.to, reduce_);
    ASSERT_TRUE(oracle.ok()) << oracle.status();
    const bool right = RunsRight(*oracle);
    const std::string verdict = Judge(plan);
    if (verdict.empty()) {
      ++accepted;
      if (right || ++bad > 3) return;
      std::string steps;
      for (const Step& step : plan.steps) steps += step.ToString() + "; ";
      ADD_FAILURE() << plan.from.ToString() << " -> " << Name(to) << " as "
                    << plan.to.PlacementsText() << ", reduced in "
                    << (reduce_ ? Name(*reduce_) : "the default") << ": " << steps;
      return;
    }
    ++(right ? refused_and_right : refused_and_wrong);
    const size_t space = verdict.find(' ');
    ++rules[verdict.substr(space + 1, verdict.find(':') - space - 1)];
  }

  DType from_;
  std::string placements_;
  ReduceOp op_;
  std::optional<DType> reduce_;
  std::vector<Move> moves_;
};

TEST(VerifierCastExhaustiveTest, AcceptedPlansRunRight) {
  int64_t accepted = 0, wrong = 0, right = 0;
  std::map<std::string, int64_t> rules;
  int64_t index = 0;
  for (const DType from : kDTypes) {
    for (const char* placements : {"P,P", "P,R", "R,R", "R,P(max)"}) {
      const ReduceOp op =
          placements[2] == 'P' && placements[0] == 'R' ? ReduceOp::kMax : ReduceOp::kSum;
      for (const std::optional<DType> reduce :
           {std::optional<DType>(), std::optional(DType::kF32), std::optional(DType::kBF16)}) {
        if (index++ % testkit::TestFraction() != 0) continue;
        Worlds worlds(from, placements, op, reduce);
        worlds.TryAll(4);
        accepted += worlds.accepted;
        wrong += worlds.refused_and_wrong;
        right += worlds.refused_and_right;
        for (const auto& [rule, count] : worlds.rules) rules[rule] += count;
      }
    }
  }
  fmt::print("{} accepted; refused: {} that ran wrong, {} that ran right; by rule:", accepted,
             wrong, right);
  for (const auto& [rule, count] : rules) fmt::print(" {} {}", rule, count);
  fmt::print("\n");
  EXPECT_GT(accepted, 0);
  EXPECT_GT(wrong, 0);
  // Only the casts of these plans can be wrong.
  for (const auto& [rule, count] : rules) EXPECT_EQ(rule, "cast") << count;
}

}  // namespace
}  // namespace meshift
