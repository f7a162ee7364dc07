// Wrong plans, with the step and the rule that the verifier names. damage_test.cc has right plans
// with one change each.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "meshift/plan.h"
#include "testing/internal/plan_cases.h"

namespace meshift {
namespace {

// Steps with right fields that do not bring the boxes of `after`, or that the op cannot do.
TEST(VerifierFaultTest, WrongSteps) {
  const struct {
    Case plan;
    std::string expected;
  } cases[] = {
      {{"a=2,b=2", "f32[4]", "P,R", "R,R", {{kAllReduce, "a,b", "R,R", 16, 16, 24}}, 0},
       "0 data: mesh dim b is R before the step: its value would be counted 2 times"},
      {{"a=2", "f32[4]", "S(0)", "S(0)", {{kReduceScatter, "a", "S(0)", 8, 8, 8}}, 0},
       "0 data: mesh dim a is S(0) before the step: its ranks hold different elements, which "
       "would be mixed"},
      {{"a=2", "f32[4]", "S(0)", "R", {{kAllReduce, "a", "R", 8, 16, 8}}, 0},
       "0 after: tensor dim 0 is cut by [] after all_reduce; it must be cut by [a]"},
      {{"a=2", "f32[4]", "P", "R", {{kExchange, "a", "R", 16, 16, 8}}, 0},
       "0 mesh_dims: mesh_dims are a, but no cut changes"},
      {{"a=2", "f32[4]", "P", "S(0)", {{kSlice, "a", "S(0)", 16, 8, 0}}, 0},
       "0 data: mesh dim a is P before the step: contributions would be lost"},
      {{"a=2", "f32[4]", "P", "S(0)", {{kExchange, "a", "S(0)", 16, 8, 8}}, 0},
       "0 data: mesh dim a is P before the step: contributions would be lost"},
      {{"a=2", "f32[4]", "P", "P(avg)", {{kMask, "a", "P(avg)", 16, 16, 0}}, 0},
       "0 op: mask needs R or a shard on mesh dim a, which is P before the step"},
      // A gather of the outer cut only does not give the pieces of the inner one.
      {{"a=2,b=2", "f32[8]", "S(0),S(0)", "R,S(0)", {{kAllGather, "a", "R,S(0)", 8, 16, 8}}, 0},
       "0 data: the rank at b=0 can have 2 of the 4 indices of tensor dim 0 that it should hold"},
      {{"a=2,b=2", "f32[1]", "S(0),S(0)", "R,S(0)", {{kAllGather, "a", "R,S(0)", 4, 4, 4}}, 0},
       "0 sizes: sizes is even; it should be padded"},
      {{"a=2,b=2",
        "f32[1]",
        "S(0),S(0)",
        "R,S(0)",
        {{kAllGather, "a", "R,S(0)", 4, 4, 4, kPadded}},
        0},
       "0 op: all_gather needs the last cuts of tensor dim 0; the cut by b comes after them"},
      {{"a=2", "f32[4]", "R", "R", {{kAllGather, "a", "R", 16, 16, 16}}, 0},
       "0 op: all_gather needs a shard on mesh dim a, which is R before the step"},
      {{"a=2", "f32[4]", "R", "S(0)", {{kAllToAll, "a", "S(0)", 16, 8, 0}}, 0},
       "0 op: all_to_all needs a shard on mesh dim a, which is R before the step"},
      {{"a=2,b=3", "f32[6]", "S(0),R", "R,S(0)", {{kPermute, "a,b", "R,S(0)", 12, 8, 8}}, 0},
       "0 data: the cuts before and after do not have equal sizes pairwise: no member holds the "
       "box that a rank needs"},
      {{"a=2,b=2", "f32[8]", "R,S(0)", "S(0),S(0)", {{kSlice, "a,b", "S(0),S(0)", 16, 8, 0}}, 0},
       "0 data: the rank at a=0,b=1 can have 0 of the 2 indices of tensor dim 0 that it should "
       "hold"},
      {{"a=2,b=2",
        "f32[2,2]",
        "S(0),S(1)",
        "S(1),S(0)",
        {{kSlice, "a,b", "S(1),S(0)", 4, 4, 0}},
        0},
       "0 data: the rank at a=0,b=1 can have 0 of the 1 indices of tensor dim 0 that it should "
       "hold"},
      // Ranks with a=1 hold nothing before, by the cut of tensor dim 0. They would hold something
      // after: two columns, or all of them.
      {{"a=2,b=2",
        "f32[8,4]",
        "S(0){8,0},S(0)",
        "S(1){2,2},S(0)",
        {{kSlice, "a,b", "S(1){2,2},S(0)", 64, 32, 0}},
        0},
       "0 data: the rank at a=1,b=0 can have 0 of the 4 indices of tensor dim 0 that it should "
       "hold"},
      {{"a=2,b=2",
        "f32[8,4]",
        "S(0){8,0},S(0)",
        "S(1){0,4},S(0)",
        {{kSlice, "a,b", "S(1){0,4},S(0)", 64, 64, 0}},
        0},
       "0 data: the rank at a=1,b=0 can have 0 of the 4 indices of tensor dim 0 that it should "
       "hold"},
      {{"a=2", "f32[4]", "S(0)", "R", {{kSlice, "a", "R", 8, 16, 0}}, 0},
       "0 data: the rank at a=0 can have 2 of the 4 indices of tensor dim 0 that it should hold"},
      {{"a=2", "f32[4]", "S(0)", "P(avg)", {{kMask, "a", "P(avg)", 8, 16, 0}}, 0},
       "0 data: mesh dim a is S(0) before the step: avg has no identity to fill the other elements "
       "with"},
      {{"a=2,b=2", "f32[8]", "S(0),S(0)", "P,S(0)", {{kMask, "a", "P,S(0)", 8, 16, 0}}, 0},
       "0 data: the rank at b=0 can have 2 of the 4 indices of tensor dim 0 that it should hold"},
      {{"a=2,b=2",
        "f32[8]",
        "P,S(0)",
        "S(0),S(0)",
        {{kReduceScatter, "a", "S(0),S(0)", 16, 8, 8}},
        0},
       "0 after: tensor dim 0 is cut by [a,b] after reduce_scatter; it must be cut by [b,a]"},
      {{"a=2", "f32[4]", "R", "R", {{kSlice, "a", "R", 16, 16, 0}}, 0},
       "0 mesh_dims: mesh_dims are a, but no cut changes"},
      {{"a=2", "f32[4]", "S(0)", "S(0)", {{kPermute, "a", "S(0)", 8, 8, 8}}, 0},
       "0 mesh_dims: mesh_dims are a, but no cut changes"},
      {{"a=2,b=1", "f32[4]", "P,R", "R,R", {{kAllReduce, "a,b", "R,R", 16, 16, 16}}, 0},
       "0 mesh_dims: mesh dim b has size 1: nothing happens over it"},
      {{"a=2", "f32[4]", "P", "R", {{kAllReduce, "", "R", 16, 16, 16}}, 0},
       "0 mesh_dims: mesh_dims are empty"},
      {{"a=2", "f32[4]", "P", "R", {{StepOp::kRelabel, "a", "R", 16, 16, 0}}, 0},
       "0 op: relabel leads to another mesh; the value is on mesh 0 already"},
      {{"a=2", "f32[4]", "P", "R", {}, 0},
       "- target: the source leaves mesh dim a as P; the target has R"},
      {{"a=2", "f32[4]", "P", "P(avg)", {}, 0},
       "- target: the source leaves mesh dim a as P; the target has P(avg)"},
      {{"a=2", "f32[2]", "S(0)", "R", {}, 0}, "- target: the source leaves S(0); the target is R"},
      {{"a=2,b=2", "f32[2]", "S(0),S(0)", "S(0)[1],S(0)[0]", {}, 0},
       "- target: the source leaves S(0),S(0); the target is S(0)[1],S(0)[0]"},
      {{"a=2", "f32[4]", "P", "S(0)", {{kAllReduce, "a", "R", 16, 16, 16}}, 0},
       "- target: the last step leaves R; the target is S(0)"},
      {{"a=2,b=2",
        "i32[4]",
        "P(avg),P",
        "R,R",
        {{kAllReduce, "a", "R,P", 16, 16, 16, StepSizes::kEven, ReduceOp::kAvg, 2},
         {kAllReduce, "b", "R,R", 16, 16, 16}},
        16},
       "0 data: an average of i32 must be the last reduction, but step 1 reduces after it"},
      {{"a=2",
        "i32[4]",
        "R",
        "R",
        {{kMask, "a", "P(avg)", 16, 16, 0},
         {kAllReduce, "a", "R", 16, 16, 16, StepSizes::kEven, ReduceOp::kAvg, 2}},
        16},
       "1 data: the sum of the copies of i32 on mesh dim a may wrap"},
      {{"a=2", "f32[4]", "S(0){3,1}", "R", {{kAllGather, "a", "R", 12, 16, 12}}, 0},
       "0 sizes: sizes is even; it should be padded"},
      {{"a=2", "f32[4]", "S(0)", "R", {{kAllGather, "a", "R", 8, 16, 8, kExact}}, 0},
       "0 sizes: sizes is exact; it should be even"},
      {{"a=3", "f32[8]", "S(0){3,0,5}", "R", {{kAllGather, "a", "R", 20, 32, 40, kExact}}, 0},
       "0 bytes: bytes_sent is 40; it should be 32"},
      {{"a=2", "f32[4]", "R", "S(0)", {{kSlice, "a", "S(0){3,1}", 16, 12, 0}}, 0},
       "- target: the last step leaves S(0){3,1}; the target is S(0)"},
      {{"a=2,b=2", "f32[4]", "S(0){3,1},P", "S(0),R", {{kAllReduce, "b", "S(0),R", 12, 8, 12}}, 0},
       "0 after: tensor dim 0 has no ragged sizes after all_reduce; it must have the ragged sizes "
       "{3,1}"},
      {{"a=2,b=2",
        "f32[4]",
        "S(0){3,1},R",
        "R,S(0){1,3}",
        {{kPermute, "a,b", "R,S(0){1,3}", 12, 12, 12, kExact}},
        0},
       "0 data: the cuts before and after do not have equal sizes pairwise: no member holds the "
       "box that a rank needs"},
      {{"a=2", "f32[4]", "S(0){3,1}", "S(0)", {{kSlice, "a", "S(0)", 12, 8, 0}}, 0},
       "0 data: the rank at a=1 can have 1 of the 2 indices of tensor dim 0 that it should hold"},
      {{"a=4096,b=2048",
        "f32[8388608]",
        "S(0),S(0)",
        "R,R",
        {{kAllGather, "a,b", "R,R", 4, 33554432, 33554428}},
        0},
       "0 scale: a step that moves data between 8388608 ranks is too large to verify; the limit "
       "is 4194304"},
  };
  for (const auto& c : cases) EXPECT_EQ(Judge(c.plan), c.expected);
}

// Three ragged cuts with 512 sizes each: every combination is a kind of group.
TEST(VerifierFaultTest, RaggedCutsOfManySizes) {
  std::vector<int> sizes(512);
  std::iota(sizes.begin(), sizes.end(), 0);
  const std::string list = fmt::format("{{{}}}", fmt::join(sizes, ","));
  const int64_t rows = 512 * 511 / 2;
  const Case c = {
      "a=512,b=512,c=512,d=2,e=2,f=2",
      fmt::format("u8[{0},{0},{0}]", rows),
      fmt::format("S(0){0},S(1){0},S(2){0},S(0),S(1),S(2)", list),
      fmt::format("S(0){0},S(1){0},S(2){0},R,R,R", list),
      {{kAllGather, "d,e,f", fmt::format("S(0){0},S(1){0},S(2){0},R,R,R", list), 0, 0, 0, kPadded}},
      0};
  // Groups of size 0 have no elements and are not counted.
  EXPECT_EQ(Judge(c),
            "0 scale: a step that moves data between 8 ranks in each of 133432831 kinds of groups "
            "is too large to verify; the limit is 16777216 moves");
}

// Casts with right fields that round otherwise than the definition, or that are refused.
TEST(VerifierFaultTest, WrongCasts) {
  using enum DType;
  const Row reduce = {kAllReduce, "a", "R", 16, 16, 16};
  const Row reduce8 = {kAllReduce, "a", "R", 8, 8, 8};
  const struct {
    Case plan;
    std::string expected;
  } cases[] = {
      // Dtypes of steps.
      {{"a=2", "f32[4]", "R", "R", {Cast(kF32, "R", 16, 16)}, 0},
       "0 dtype: the dtype is f32 before and after the cast; a cast must change it"},
      {{"a=2", "c64[4]", "R", "R", {Cast(kF32, "R", 32, 16)}, 0, kF32},
       "0 dtype: a cast from c64 to f32 is refused: it would drop the imaginary part"},
      {{"a=2", "f32[4]", "R", "R", {Cast(kF4E2M1, "R", 16, 2)}, 0, kF4E2M1},
       "0 dtype: a cast from f32 to f4e2m1 is refused: f4e2m1 has no value without its block "
       "scales"},
      // A cast keeps the placements.
      {{"a=2",
        "f32[4]",
        "R",
        "R",
        {{StepOp::kCast, "a", "R", 16, 8, 0, {}, {}, 0, kBF16}},
        0,
        kBF16},
       "0 mesh_dims: a cast has no mesh dims; this one has 1"},
      {{"a=2", "f32[4]", "R", "S(0)", {Cast(kBF16, "S(0)", 16, 4)}, 0, kBF16},
       "0 after: mesh dim a changes from R to S(0), and the step's mesh_dims [] do not include it"},
      {{"a=2,b=2",
        "f32[4]",
        "S(0),S(0)",
        "S(0)[1],S(0)[0]",
        {Cast(kBF16, "S(0)[1],S(0)[0]", 4, 2)},
        0,
        kBF16},
       "0 after: tensor dim 0 is cut by [b,a] after cast; it must be cut by [a,b]"},
      {{"a=2", "f32[4]", "R", "R", {}, 0, kBF16},
       "- target: the source leaves f32; the target has dtype bf16"},
      {{"a=2", "bf16[4]", "P", "R", {Cast(kF32, "P", 8, 16), reduce}, 16},
       "- target: the last step leaves f32; the target has dtype bf16"},
      // The reduce dtype is neither the default's nor the option's.
      {{"a=2", "bf16[4]", "P", "R", {Cast(kF32, "P", 8, 16), reduce}, 16, kF32},
       "1 cast: it reduces in f32; the reduce dtype is bf16"},
      {{"a=2", "f32[4]", "P", "R", {Cast(kBF16, "P", 16, 8), reduce8}, 16, kBF16},
       "1 cast: it reduces in bf16; the reduce dtype is f32"},
      {{"a=2", "bf16[4]", "P", "R", {reduce8}, 0, {}, kF32},
       "0 cast: it reduces in bf16; the reduce dtype is f32"},
      {{"a=2,b=2",
        "bf16[4]",
        "P,P",
        "R,R",
        {{kAllReduce, "b", "P,R", 8, 8, 8},
         Cast(kF32, "P,R", 8, 16),
         {kAllReduce, "a", "R,R", 16, 16, 16}},
        32,
        kF32},
       "2 cast: it reduces in f32; the reduce dtype is bf16"},
      // The definition reduces no mesh dim here.
      {{"a=2",
        "f32[4]",
        "R",
        "R",
        {{kMask, "a", "P", 16, 16, 0}, reduce, Cast(kBF16, "R", 16, 8)},
        32,
        kBF16},
       "1 cast: it reduces no mesh dim that is P in the source"},
      {{"a=2",
        "bf16[4]",
        "P",
        "P",
        {reduce8, Cast(kF32, "R", 8, 16), {kMask, "a", "P", 16, 16, 0}},
        32,
        kF32},
       "0 cast: it reduces mesh dim a, which is P in source and target"},
      // Casts that lead back.
      {{"a=2,b=2",
        "bf16[4]",
        "P,P",
        "R,R",
        {{kAllReduce, "b", "P,R", 8, 8, 8},
         Cast(kF32, "P,R", 8, 16),
         Cast(kBF16, "P,R", 16, 8),
         {kAllReduce, "a", "R,R", 8, 8, 8}},
        32},
       "1 cast: it stands between the reductions of steps 0 and 3"},
      {{"a=2",
        "bf16[4]",
        "S(0)",
        "S(0)",
        {Cast(kF32, "S(0)", 4, 8), Cast(kBF16, "S(0)", 8, 4)},
        16},
       "0 cast: the casts from here on lead from bf16 back to bf16"},
      {{"a=2", "bf16[4]", "P", "R", {Cast(kF32, "P", 8, 16), Cast(kBF16, "P", 16, 8), reduce8}, 32},
       "0 cast: the casts from here on lead from bf16 back to bf16"},
      {{"a=2", "bf16[4]", "P", "R", {reduce8, Cast(kF32, "R", 8, 16), Cast(kBF16, "R", 16, 8)}, 32},
       "1 cast: the casts from here on lead from bf16 back to bf16"},
      // Two casts that round.
      {{"a=2",
        "f32[4]",
        "R",
        "R",
        {Cast(kBF16, "R", 16, 8), Cast(kF8E4M3, "R", 8, 4)},
        16,
        kF8E4M3},
       "0 cast: f32 to bf16 rounds, and step 1 casts once more"},
      {{"a=2",
        "f32[4]",
        "P",
        "R",
        {reduce, Cast(kF16, "R", 16, 8), Cast(kF8E4M3, "R", 8, 4)},
        32,
        kF8E4M3},
       "1 cast: f32 to f16 rounds, and step 2 casts once more"},
      {{"a=2",
        "f64[4]",
        "P",
        "R",
        {Cast(kF32, "P", 32, 16), Cast(kBF16, "P", 16, 8), reduce8},
        32,
        kBF16,
        kBF16},
       "0 cast: f64 to f32 rounds, and step 1 casts once more"},
      // 300 would become 127, not 44.
      {{"a=2", "i16[4]", "R", "R", {Cast(kF32, "R", 8, 16), Cast(kI8, "R", 16, 4)}, 16, kI8},
       "0 cast: i16 becomes i8 by way of f32, and would saturate"},
      // Partial values that stay partial.
      {{"a=2", "f32[4]", "P", "P", {Cast(kBF16, "P", 16, 8)}, 0, kBF16},
       "0 cast: mesh dim a stays P: each of its parts would be rounded to bf16"},
      {{"a=2,b=2",
        "f32[4]",
        "P(max),P(max)",
        "R,P(max)",
        {{kAllReduce, "a", "R,P(max)", 16, 16, 16, StepSizes::kEven, ReduceOp::kMax},
         Cast(kF16, "R,P(max)", 16, 8)},
        16,
        kF16},
       "1 cast: mesh dim b stays P(max): each of its parts would be rounded to f16"},
      // The mask's identity would have another dtype.
      {{"a=2",
        "i8[4]",
        "R",
        "P(min)",
        {{kMask, "a", "P(min)", 4, 4, 0}, Cast(kI32, "P(min)", 4, 16)},
        16,
        kI32},
       "1 cast: step 0 masked mesh dim a, which has not been reduced since"},
      {{"a=2,b=2",
        "bf16[1]",
        "P,R",
        "R,R",
        {{kMask, "b", "P,P", 2, 2, 0},
         Cast(kF32, "P,P", 2, 4),
         {kAllReduce, "a,b", "R,R", 4, 4, 6},
         Cast(kBF16, "R,R", 4, 2)},
        32,
        {},
        kF32},
       "1 cast: step 0 masked mesh dim b, which has not been reduced since"},
  };
  for (const auto& c : cases) EXPECT_EQ(Judge(c.plan), c.expected);
}

}  // namespace
}  // namespace meshift
