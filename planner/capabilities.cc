#include "planner/capabilities.h"

#include "placement/op_table.h"

namespace meshift {

EngineCapabilities EngineCapabilities::Local() {
  EngineCapabilities local("local");
  for (int op = 0; op < kNumReduceOps; ++op) {
    for (int dtype = 0; dtype < kNumDTypes; ++dtype) {
      if (CheckReduce(static_cast<ReduceOp>(op), static_cast<DType>(dtype)).ok()) {
        local.Allow(static_cast<ReduceOp>(op), static_cast<DType>(dtype));
      }
    }
  }
  return local;
}

}  // namespace meshift
