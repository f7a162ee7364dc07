// How long calls may take before they count as hung.
//
//   MESHIFT_RETURN_IF_ERROR(engine->SetTimeouts({.running = std::chrono::minutes(2)}));
//
// In two phases: what comes first on a communicator makes connections, and waits for ranks that
// still load their models; what comes later does not.
#ifndef MESHIFT_COMM_ENGINE_TIMEOUTS_H_
#define MESHIFT_COMM_ENGINE_TIMEOUTS_H_

#include <atomic>
#include <chrono>
#include <cstdint>

#include "absl/status/status.h"

namespace meshift {

struct Timeouts {
  std::chrono::nanoseconds setup = std::chrono::minutes(10);    // the first call of each kind
  std::chrono::nanoseconds running = std::chrono::minutes(10);  // all others
  // Both phases alike.
  static Timeouts Of(std::chrono::nanoseconds both) { return {.setup = both, .running = both}; }
  friend bool operator==(const Timeouts&, const Timeouts&) = default;
};

// INVALID_ARGUMENT names the one that is not positive.
absl::Status CheckTimeouts(const Timeouts& timeouts);

// Time-outs that are set while other threads use them.
class AtomicTimeouts {
 public:
  AtomicTimeouts() : AtomicTimeouts(Timeouts{}) {}
  explicit AtomicTimeouts(const Timeouts& timeouts) { Store(timeouts); }
  Timeouts Get() const {
    return {.setup = std::chrono::nanoseconds(setup_ns()),
            .running = std::chrono::nanoseconds(running_ns())};
  }
  int64_t setup_ns() const { return setup_ns_.load(std::memory_order_relaxed); }
  int64_t running_ns() const { return running_ns_.load(std::memory_order_relaxed); }
  // As CheckTimeouts; then nothing changes.
  absl::Status Set(const Timeouts& timeouts);

 private:
  void Store(const Timeouts& timeouts) {
    setup_ns_.store(timeouts.setup.count(), std::memory_order_relaxed);
    running_ns_.store(timeouts.running.count(), std::memory_order_relaxed);
  }

  std::atomic<int64_t> setup_ns_;
  std::atomic<int64_t> running_ns_;
};

}  // namespace meshift

#endif  // MESHIFT_COMM_ENGINE_TIMEOUTS_H_
