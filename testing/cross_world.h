// Every redistribution of a small world of two meshes, a fixed sample of it in all dtypes, and
// random ones of a larger world.
//
//   ForEachCrossCase({.shard = GetParam(), .num_shards = 8, .fraction = TestFraction()},
//                    [](const Sharding& from, const Sharding& to) { ... });
//   ForEachCrossSample({.cases = 2000}, can_reduce,
//                      [](const Sharding& from, const Sharding& to) { ... });
//   const RandomPair pair = RandomCrossCase(seed);       // pair.from, pair.to
#ifndef MESHIFT_TESTING_CROSS_WORLD_H_
#define MESHIFT_TESTING_CROSS_WORLD_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"
#include "meshift/sharding.h"
#include "testing/small_world.h"

namespace meshift::testkit {

// Which cases to visit: case i where i % num_shards == shard and (i / num_shards) % fraction == 0.
struct CrossWorldOptions {
  int64_t shard = 0;
  int64_t num_shards = 1;
  int64_t fraction = 1;
};

// Visits, in a fixed order, the pairs of f32 tensors of
// - source meshes: 2 to 6 ranks in one dim, 2x2, 2x3, 3x2, of ranks from 0;
// - target meshes: 1 to 6 ranks in one dim, 2x2, 2x3, 3x2, of ranks from 0 (the same ones, or
//   nested, either way), the same in reverse, from the middle of the source's (overlapping), after
//   the source's (disjoint), and odd ranks in descending order (scattered); in the disjoint case
//   source and target are also swapped;
// - 6 shapes of rank 1 to 3, even, uneven, with fewer rows than ranks, and empty;
// - sources: per mesh dim R, S(k) or P(sum), with every order of cuts;
// - targets: per mesh dim R or S(k), with every order of cuts.
// After about one case in 16 it visits the same with another partial op of the source, and after
// another in 16 one with a partial target. The two meshes are never equal, since their dims have
// different names. 144,936 cases. Returns the number of visited cases.
int64_t ForEachCrossCase(const CrossWorldOptions& options, VisitPair visit);

// Whether an engine can reduce elements of a dtype by an op.
using CanReduce = absl::FunctionRef<bool(DType dtype, ReduceOp op)>;
struct CrossSampleOptions {
  int64_t cases = 2000;
  uint64_t seed = 1;
};

// Visits options.cases cases on meshes, shapes and placements as above, in every dtype in turn,
// with any op that the dtype has and `can_reduce` allows, one in 8 with a partial target. For f32,
// bf16 and f16, one in 4 is cast to another of these. Ranks are at most 11. The cases depend only
// on the arguments; those without partial values do not depend on `can_reduce`.
void ForEachCrossSample(const CrossSampleOptions& options, CanReduce can_reduce, VisitPair visit);

// A pair that depends only on the arguments: two meshes of 1 to 4 dims, some of size 1, with at
// most 24 ranks each, in any order and overlap; a tensor of rank 0 to 5 with small dims, also 0 and
// 1; any placements and orders of cuts, P on either side. REQUIRES: the dtype has the op and is not
// f4e2m1.
RandomPair RandomCrossCase(uint64_t seed, DType dtype = DType::kF32, ReduceOp op = ReduceOp::kSum);

}  // namespace meshift::testkit

#endif  // MESHIFT_TESTING_CROSS_WORLD_H_
