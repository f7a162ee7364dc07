// Compares redistributions on symmetric memory with ordinary ones, on any engine. For tests.
//
//   MESHIFT_RETURN_IF_ERROR(CheckSymmetric(engine, mesh, {.cases = 100, .seed = 1}));
#ifndef MESHIFT_TESTING_INTERNAL_CONFORMANCE_SYMMETRIC_CHECK_H_
#define MESHIFT_TESTING_INTERNAL_CONFORMANCE_SYMMETRIC_CHECK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"
#include "meshift/placement.h"

namespace meshift {

struct SymmetricCheckOptions {
  int cases = 100;
  uint64_t seed = 1;
  // Whether the engine supports blocks of unequal sizes; if not, these must be misses.
  bool uneven = true;
  // Whether to reduce values whose sums round, and arbitrary bits; else only 1 and 2.
  bool rounds = true;
  // The reductions that the engine supports there; null: all. Others must be misses.
  bool (*reduces)(DType dtype, ReduceOp op) = nullptr;
};

// Collective over all ranks of the mesh, which has two dims of size > 1. Makes random gathers and
// reduce-scatters of all dtypes and sizes, each both ways: the results must be equal bit for bit,
// and symmetric memory must be used where it is supported. Then makes one miss for each reason.
absl::Status CheckSymmetric(Engine* engine, const DeviceMesh& mesh,
                            const SymmetricCheckOptions& options);

}  // namespace meshift

#endif  // MESHIFT_TESTING_INTERNAL_CONFORMANCE_SYMMETRIC_CHECK_H_
