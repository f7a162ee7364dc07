// Generates shardings for tests: all of a tensor on a mesh, random ones, and variants of a given
// one.
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

// Every sharding of `tensor`, with every order of cuts, in the order R, S(0), S(1), ..., P per mesh
// dim. None is ragged. REQUIRES: the dtype has the op and is not f4e2m1.
std::vector<Sharding> AllShardings(const DeviceMesh& mesh, const TensorType& tensor, ReduceOp op);

// `sharding` with another dtype and another op of its partial mesh dims; nullopt if that is
// invalid.
std::optional<Sharding> Recast(const Sharding& sharding, DType dtype, ReduceOp op);

// Sum three times out of four, else any op of the dtype; sum for f4e2m1, which has no ops.
ReduceOp SomeOp(DType dtype, uint64_t hash);

// 1 to 4 sizes with a product of at most `most`; about one in four is 1.
std::vector<int64_t> RandomSizes(int64_t most, Random& random);

// A shape of rank 0 to 5 with small dims, also 0 and 1.
Shape RandomShape(Random& random);

// Mesh dims marked in `may_be_partial` may be P, R or a shard; others R or a shard. Any order of
// cuts. REQUIRES: the dtype has the op and is not f4e2m1.
Sharding RandomSharding(const DeviceMesh& mesh, const TensorType& tensor,
                        const std::vector<bool>& may_be_partial, ReduceOp op, Random& random);

}  // namespace meshift::testkit

#endif  // MESHIFT_TESTING_SHARDINGS_H_
