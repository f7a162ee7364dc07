#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "meshift/planner_options.h"
#include "placement/op_table.h"

namespace meshift {

std::string_view Name(NativeInvariance invariance) {
  constexpr std::array<std::string_view, 3> kNames = {"none", "all_reduce", "reduce_scatter"};
  return kNames[static_cast<size_t>(invariance)];
}

EngineCapabilities EngineCapabilities::Full(std::string name) {
  // Every PlannerOptions begins with one of these.
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
