// How a run is handed source and target, which the memory that it takes depends on.
//
//   PlannerOptions{.max_memory = 1 << 30, .buffers = Buffers::kOne}
//   ParseBuffers("consumed")                // Buffers::kConsumed
#ifndef MESHIFT_PLANNER_PLAN_BUFFERS_H_
#define MESHIFT_PLANNER_PLAN_BUFFERS_H_

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/status.h"

namespace meshift {

enum class Buffers : uint8_t {
  kTwo,       // each in its own
  kConsumed,  // likewise; the source is given up, and its memory takes pieces once it was read
  kOne,       // both begin at one address
};

inline std::string_view Name(Buffers buffers) {
  if (buffers == Buffers::kTwo) return "two";
  return buffers == Buffers::kOne ? "one" : "consumed";
}

// INVALID_ARGUMENT where the name is none of the three.
inline absl::StatusOr<Buffers> ParseBuffers(std::string_view name) {
  for (const Buffers buffers : {Buffers::kTwo, Buffers::kConsumed, Buffers::kOne}) {
    if (Name(buffers) == name) return buffers;
  }
  return InvalidArgument("'{}' is no way to hand over buffers; known are two, consumed, one", name);
}

}  // namespace meshift

#endif  // MESHIFT_PLANNER_PLAN_BUFFERS_H_
