// Redistributions in which a part of the mesh holds nothing: At on mesh dims of source, target or
// both.
//
//   ForEachOwnerCase({.shard = GetParam(), .num_shards = 16, .fraction = TestFraction()},
//                    [](const Sharding& from, const Sharding& to) { ... });
//   const RandomPair pair = RandomOwnerCase(seed);                // pair.from, pair.to
//   for (const ConformanceCase& c : OwnerCases(4, 2000)) { ... }  // the same for every engine
#ifndef MESHIFT_TESTING_OWNER_WORLD_H_
#define MESHIFT_TESTING_OWNER_WORLD_H_

#include <cstdint>
#include <vector>

#include "meshift/dtype.h"
#include "meshift/placement.h"
#include "meshift/sharding.h"
#include "testing/conformance_cases.h"
#include "testing/cross_world.h"
#include "testing/small_world.h"

namespace meshift::testkit {

// Visits, in a fixed order, each pair of the small world with At in place of R on one mesh dim of
// the source, of the target, or of both. At lists each single coordinate; on mesh dims of three
// ranks or more also the first and the last. Options as of ForEachSmallWorldCase. Returns the
// number of visited cases.
int64_t ForEachOwnerCase(const SmallWorldOptions& options, VisitPair visit);
// The same for tensors of rank 0.
int64_t ForEachScalarOwnerCase(const SmallWorldOptions& options, VisitPair visit);
// The same for the small world of two meshes.
int64_t ForEachOwnerCrossCase(const CrossWorldOptions& options, VisitPair visit);

// RandomCase and RandomCrossCase with At on about one mesh dim in three of each side, on one if
// there is none; three times in four of one coordinate. REQUIRES: as there, and the op is not avg.
RandomPair RandomOwnerCase(uint64_t seed, DType dtype = DType::kF32, ReduceOp op = ReduceOp::kSum);
RandomPair RandomOwnerCrossCase(uint64_t seed, DType dtype = DType::kF32,
                                ReduceOp op = ReduceOp::kSum);

// `count` cases that depend only on the arguments, on one mesh of 2 to `num_ranks` ranks, every
// fourth on two. Every dtype and op in turn, but avg. REQUIRES: num_ranks >= 2.
std::vector<ConformanceCase> OwnerCases(int64_t num_ranks, int64_t count);

}  // namespace meshift::testkit

#endif  // MESHIFT_TESTING_OWNER_WORLD_H_
