// Shardings for tests: all of a tensor on a mesh, a random one, and others like one that is given.
//
//   AllShardings(mesh, TensorType{DType::kF32, {5, 3}}, ReduceOp::kSum);   // R,R; R,S(0); ...
//   Random random(7);
//   RandomSharding(mesh, tensor, /*may_be_partial=*/{true, true}, ReduceOp::kSum, random);
#ifndef MESHIFT_TESTING_SHARDINGS_H_
#define MESHIFT_TESTING_SHARDINGS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"
#include "meshift/sharding.h"
#include "testing/random.h"

namespace meshift::testkit {

// Every sharding of `tensor`, with every order of cuts, counting up: R, S(0), S(1), ..., P. None is
// ragged. REQUIRES: the dtype has the op and is not f4e2m1.
std::vector<Sharding> AllShardings(const DeviceMesh& mesh, const TensorType& tensor, ReduceOp op);

// `sharding` with another dtype, and another op of what is partial; nullopt where there is none.
std::optional<Sharding> Recast(const Sharding& sharding, DType dtype, ReduceOp op);

// Sum three times of four, else any op that the dtype has; any of f4e2m1, which has none.
ReduceOp SomeOp(DType dtype, uint64_t hash);

// 1 to 4 sizes with a product of at most `most`, one in four of them 1.
std::vector<int64_t> RandomSizes(int64_t most, Random& random);

// Of rank 0 to 5, with small dims, also 0 and 1.
Shape RandomShape(Random& random);

// The mesh dims of `may_be_partial` may be P, R or a shard; others R or a shard. Any order of cuts.
// REQUIRES: the dtype has the op and is not f4e2m1.
Sharding RandomSharding(const DeviceMesh& mesh, const TensorType& tensor,
                        const std::vector<bool>& may_be_partial, ReduceOp op, Random& random);

}  // namespace meshift::testkit

#endif  // MESHIFT_TESTING_SHARDINGS_H_
