// Redistributions on symmetric memory against the ordinary ones, on any engine: for tests.
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
  // Whether the engine does blocks of unequal sizes; else these must be misses.
  bool uneven = true;
  // Reductions of values whose sums are rounded, and of bits that are any; else of 1 and 2.
  bool rounds = true;
  // Which reductions the engine does there; null: all. Others must be misses.
  bool (*reduces)(DType dtype, ReduceOp op) = nullptr;
};

// All ranks of the mesh, which has two dims of size > 1, call it. Random gathers and
// reduce-scatters of all dtypes and sizes, each made twice: results are equal bit for bit, and what
// should go by symmetric memory does. Then one miss of each reason.
absl::Status CheckSymmetric(Engine* engine, const DeviceMesh& mesh,
                            const SymmetricCheckOptions& options);

}  // namespace meshift

#endif  // MESHIFT_TESTING_INTERNAL_CONFORMANCE_SYMMETRIC_CHECK_H_
