// What an engine can reduce: an explicit input of planning, never asked of a live engine.
//
//   EngineCapabilities::Local().CanReduce(ReduceOp::kSum, DType::kBF16);   // true
#ifndef MESHIFT_PLANNER_CAPABILITIES_H_
#define MESHIFT_PLANNER_CAPABILITIES_H_

#include <array>
#include <cstdint>
#include <string>

#include "placement/dtype.h"
#include "placement/placement.h"

namespace meshift {

class EngineCapabilities {
 public:
  // The in-process engine: every op that is allowed on a dtype at all.
  static EngineCapabilities Local();
  // An engine that can reduce nothing yet; add with Allow.
  explicit EngineCapabilities(std::string name) : name_(std::move(name)) {}

  EngineCapabilities& Allow(ReduceOp op, DType dtype) {
    reduce_[static_cast<int>(op)] |= uint32_t{1} << static_cast<int>(dtype);
    return *this;
  }
  bool CanReduce(ReduceOp op, DType dtype) const {
    return (reduce_[static_cast<int>(op)] >> static_cast<int>(dtype) & 1) != 0;
  }
  // Whether the native min and max follow docs/design.md (-0 < +0, NaN wins, canonical), so that
  // they are exact in any order.
  bool min_max_exact = true;
  const std::string& name() const { return name_; }

 private:
  std::string name_;
  std::array<uint32_t, kNumReduceOps> reduce_ = {};  // a bit per dtype
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_CAPABILITIES_H_
