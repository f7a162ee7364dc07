#include "comm/record/tick_clock.h"

#include <fstream>
#include <string>

namespace meshift {
namespace {

// Whether the kernel keeps time by the counter. It does so only if the counter's rate is constant
// and equal on all cores.
bool KernelCountsTicks() {
#if defined(__x86_64__)
  std::ifstream file("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  std::string name;
  return (file >> name) && name == "tsc";
#else
  return false;
#endif
}

}  // namespace

TickClock::TickClock()
    : counts_(KernelCountsTicks()), first_ticks_(Now()), first_ns_(SteadyNowNs()) {}

TickClock::Reading TickClock::Read() const {
  Reading reading{.ns = SteadyNowNs(), .ticks = Now()};
  if (!counts_) return {.ns = reading.ns, .ticks = reading.ns};
  const int64_t ticks = reading.ticks - first_ticks_;
  if (ticks > 0) {
    reading.ns_per_tick = static_cast<double>(reading.ns - first_ns_) / static_cast<double>(ticks);
  }
  return reading;
}

}  // namespace meshift
