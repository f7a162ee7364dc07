// Every redistribution of a small world, and random ones of a larger world.
//
//   INSTANTIATE_TEST_SUITE_P(SmallWorld, PlansTest, ::testing::Range(0, 8));   // shard_count = 8
//   TEST_P(PlansTest, AreRight) {
//     ForEachSmallWorldCase({.shard = GetParam(), .num_shards = 8, .fraction = TestFraction()},
//                           [](const Sharding& from, const Sharding& to) { ... });
//   }
//   const RandomPair pair = RandomCase(seed);       // pair.from, pair.to
#ifndef MESHIFT_TESTING_SMALL_WORLD_H_
#define MESHIFT_TESTING_SMALL_WORLD_H_

#include <cstdint>
#include <optional>

#include "absl/functional/function_ref.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"
#include "meshift/sharding.h"
#include "meshift/topology.h"

namespace meshift::testkit {

// A topology with domains of two ranks and links so slow that, on small tensors, bytes cost more
// than starts: padding and detours pay more often.
Topology SlowLinks();
// A topology with domains of four ranks and times that are easy to add up: 1000 ns to start a
// collective, 100 for a message, 10 and 50 for a hop; 1 and 0.1 bytes per ns; copies take 20 ns and
// 2 bytes per ns.
Topology RoundLinks();

// Selects the cases to visit, and their dtype and op.
struct SmallWorldOptions {
  // Visits case i if i % num_shards == shard and (i / num_shards) % fraction == 0.
  int64_t shard = 0;
  int64_t num_shards = 1;
  int64_t fraction = 1;
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;  // of all partial mesh dims. REQUIRES: the dtype has it.
};

// The environment variable MESHIFT_TEST_FRACTION, at least 1; 1 if it is not a number.
int64_t TestFraction();

using VisitPair = absl::FunctionRef<void(const Sharding& from, const Sharding& to)>;

// Visits, in a fixed order, the pairs of
// - meshes: 2 to 8 ranks in one dim, 2x2, 2x3, 3x2, 2x4, 4x2, 2x2x2;
// - 25 shapes of rank 1 to 3 with even, uneven, tiny and empty dims;
// - sources: per mesh dim R, S(k) or P, with every order of cuts;
// - targets: per mesh dim R or S(k) with every order of cuts, or P where the source has it.
// 235,853 cases, including those with from = to: 9,128 of rank 1, 63,450 of rank 2 and 163,275 of
// rank 3. Returns the number of visited cases.
int64_t ForEachSmallWorldCase(const SmallWorldOptions& options, VisitPair visit);

// The same for rank 0: 93 cases.
int64_t ForEachScalarCase(const SmallWorldOptions& options, VisitPair visit);

// A fixed tenth of the small world, in each of the dtypes that its cuts allow (f4e2m1 is neither
// cut inside a byte nor partial). Partial mesh dims are sums, and in one case of four any op of the
// dtype, as for all of bool. Ignores `dtype` and `op`. Returns the number of visited cases.
int64_t ForEachDTypeCase(const SmallWorldOptions& options, VisitPair visit);

// Another fixed tenth, with casts between two of f32, bf16, f16, f8e4m3 and f8e5m2. There are 40
// kinds: pairs of dtypes, each with reduce dtype f32 or none given. Each case visits 4 of them. Ops
// are as above.
using VisitCast = absl::FunctionRef<void(const Sharding& from, const Sharding& to,
                                         std::optional<DType> reduce_dtype)>;
int64_t ForEachCastCase(const SmallWorldOptions& options, VisitCast visit);

struct RandomPair {
  Sharding from;
  Sharding to;
};

// A pair that depends only on the arguments: a mesh of 1 to 4 dims, some of size 1, with at most 48
// ranks, half the time not in row-major order; a tensor of rank 0 to 5 with small dims, also 0 and
// 1; any placements and orders of cuts. The target is P only where the source is. REQUIRES: the
// dtype has the op and is not f4e2m1.
RandomPair RandomCase(uint64_t seed, DType dtype = DType::kF32, ReduceOp op = ReduceOp::kSum);

// The same on a given mesh.
RandomPair RandomCaseOn(const DeviceMesh& mesh, uint64_t seed, DType dtype = DType::kF32,
                        ReduceOp op = ReduceOp::kSum);

// Any sharding of the pair's tensor on its mesh, with P (sum) on any mesh dims: a possible
// intermediate state. Depends only on the arguments. REQUIRES: as RandomCase, with op sum.
Sharding RandomStop(const RandomPair& pair, uint64_t seed);

}  // namespace meshift::testkit

#endif  // MESHIFT_TESTING_SMALL_WORLD_H_
