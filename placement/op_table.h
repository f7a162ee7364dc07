// CheckReduce: whether a reduction exists for a dtype. Engines may support fewer
// (EngineCapabilities of meshift/planner_options.h).
//
//   CheckReduce(ReduceOp::kMax, DType::kF32);  // OK
//   CheckReduce(ReduceOp::kMax, DType::kC64);  // "max of c64 is refused: ..."
//
// Internal to Meshift. A pure function; safe for concurrent use.
#ifndef MESHIFT_PLACEMENT_OP_TABLE_H_
#define MESHIFT_PLACEMENT_OP_TABLE_H_

#include "absl/status/status.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"

namespace meshift {

// OK if values of `dtype` can be reduced with `op`; else INVALID_ARGUMENT with the reason.
absl::Status CheckReduce(ReduceOp op, DType dtype);

}  // namespace meshift

#endif  // MESHIFT_PLACEMENT_OP_TABLE_H_
