// Implements CheckTimeouts and AtomicTimeouts::Set of meshift/engine.h: time-outs must be positive.
#include <tuple>

#include "base/status.h"
#include "meshift/engine.h"
#include "meshift/status.h"

namespace meshift {

absl::Status CheckTimeouts(const Timeouts& timeouts) {
  for (const auto& [name, timeout] :
       {std::tuple("setup", timeouts.setup), std::tuple("running", timeouts.running)}) {
    if (timeout > std::chrono::nanoseconds::zero()) continue;
    return InvalidArgument("a {} time-out of {} ns is not positive", name, timeout.count());
  }
  return absl::OkStatus();
}

absl::Status AtomicTimeouts::Set(const Timeouts& timeouts) {
  MESHIFT_RETURN_IF_ERROR(CheckTimeouts(timeouts));
  Store(timeouts);
  return absl::OkStatus();
}

}  // namespace meshift
