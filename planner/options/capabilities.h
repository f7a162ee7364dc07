// What an engine can reduce, and promises of it: an explicit input of planning. The planner never
// asks an engine; a Redistributor hands on what Engine::Capabilities() says, unless its options do.
//
//   EngineCapabilities::Local().CanReduce(ReduceOp::kSum, DType::kBF16);   // true
//   EngineCapabilities::Of("nccl").native_invariance;                      // kNone
#ifndef MESHIFT_PLANNER_OPTIONS_CAPABILITIES_H_
#define MESHIFT_PLANNER_OPTIONS_CAPABILITIES_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "meshift/dtype.h"
#include "meshift/placement.h"

namespace meshift {

// Which of an engine's own reductions give an element bits that depend on its contributions and on
// how its group lies on the topology alone: not on its position, the count, or what else is sent.
enum class NativeInvariance : uint8_t {
  kNone,
  kAllReduce,
  kReduceScatter,  // all_reduce and reduce_scatter, with equal bits
};
std::string_view Name(NativeInvariance invariance);  // "none", "all_reduce", "reduce_scatter"

class EngineCapabilities {
 public:
  // Every op that is allowed on a dtype at all: so is each engine of this project, which reduces by
  // kernels of its own what its library does not. Nothing is known of its own reductions.
  static EngineCapabilities Full(std::string name);
  // The in-process engine, which combines contributions element by element: kReduceScatter.
  static EngineCapabilities Local() { return Of("local"); }
  // NCCL, whose ring combines an element in an order that depends on where it lies: kNone. An
  // engine that runs may know more of its environment (NcclEngine::Capabilities).
  static EngineCapabilities Nccl() { return Of("nccl"); }
  // Of an engine of this project, by its name: "local", "mpi" (which adds as local does), "nccl".
  static EngineCapabilities Of(std::string name);
  // An engine that can reduce nothing yet; add with Allow.
  explicit EngineCapabilities(std::string name) : name_(std::move(name)) {}

  EngineCapabilities& Allow(ReduceOp op, DType dtype) {
    reduce_[static_cast<int>(op)] |= uint32_t{1} << static_cast<int>(dtype);
    return *this;
  }
  bool CanReduce(ReduceOp op, DType dtype) const {
    return (reduce_[static_cast<int>(op)] >> static_cast<int>(dtype) & 1) != 0;
  }
  // Whether the native min and max follow docs/dtypes.md (-0 < +0, NaN wins, canonical), so that
  // they are exact in any order.
  bool min_max_exact = true;
  NativeInvariance native_invariance = NativeInvariance::kNone;
  // What that rests on, or what is in its way, for plans' `why`: "rank 3: NCCL_ALGO is not set";
  // equal on all ranks, as the rest. May be empty.
  std::string native_why = {};
  const std::string& name() const { return name_; }
  friend bool operator==(const EngineCapabilities&, const EngineCapabilities&) = default;

 private:
  std::string name_;
  std::array<uint32_t, kNumReduceOps> reduce_ = {};  // a bit per dtype
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_OPTIONS_CAPABILITIES_H_
