// Implements EngineCapabilities of meshift/planner_options.h: the reductions that each engine of
// this project offers. Asks no engine, and refuses no name: an unknown one gets all reductions.
#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "meshift/planner_options.h"
#include "placement/op_table.h"

namespace meshift {

EngineCapabilities EngineCapabilities::Full(std::string name) {
  // Computed once: every PlannerOptions copies one.
  static const std::array<uint32_t, kNumReduceOps> kAllowed = [] {
    EngineCapabilities allowed("");
    for (int op = 0; op < kNumReduceOps; ++op) {
      for (int dtype = 0; dtype < kNumDTypes; ++dtype) {
        if (CheckReduce(static_cast<ReduceOp>(op), static_cast<DType>(dtype)).ok()) {
          allowed.Allow(static_cast<ReduceOp>(op), static_cast<DType>(dtype));
        }
      }
    }
    return allowed.reduce_;
  }();
  EngineCapabilities full(std::move(name));
  full.reduce_ = kAllowed;
  return full;
}

EngineCapabilities EngineCapabilities::Of(std::string name) {
  EngineCapabilities engine = Full(std::move(name));
  if (engine.name() == "local" || engine.name() == "mpi") {
    engine.native_invariance = NativeInvariance::kReduceScatter;
  }
  return engine;
}

}  // namespace meshift
