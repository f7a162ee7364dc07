// A call's turn in the order of all calls of a redistributor. Internal.
#ifndef MESHIFT_COMM_REDISTRIBUTION_RUN_TURN_H_
#define MESHIFT_COMM_REDISTRIBUTION_RUN_TURN_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "comm/redistribution/run_core.h"

namespace meshift::run_internal {

// The lock of issuing, taken in the order of tickets.
class MESHIFT_THREAD_ANNOTATION_(scoped_lockable) RunTurn {
 public:
  explicit RunTurn(RunCore& core) MESHIFT_THREAD_ANNOTATION_(acquire_capability(core.issuing_))
      : core_(core), lock_(core.issuing_), num_runs_(core.num_runs_) {}
  ~RunTurn() MESHIFT_THREAD_ANNOTATION_(release_capability()) {
    if (entered_) core_.line_.Leave(ticket_, core_.num_runs_ > num_runs_);
  }
  RunTurn(const RunTurn&) = delete;
  RunTurn& operator=(const RunTurn&) = delete;

  // Waits for it; as TicketLine::Enter. (The analysis does not see that the lock is core's.)
  absl::Status Enter(std::optional<int64_t> ticket)
      MESHIFT_THREAD_ANNOTATION_(no_thread_safety_analysis) {
    const auto health = [this, &ticket] {
      // Who has the ticket that is missing may wait for work of earlier calls.
      if (ticket && core_.callers_ != nullptr) core_.callers_->Advance();
      return core_.Health();
    };
    absl::Status status = core_.line_.Enter(
        lock_, ticket, [this] { return core_.TicketTimeout(); }, health);
    entered_ = status.ok();
    ticket_ = ticket;
    // Without the ticket that is missing no later call can be made.
    if (!entered_ && absl::IsDeadlineExceeded(status)) return core_.Fail(status, /*tell=*/true);
    return status;
  }

 private:
  RunCore& core_;
  MutexLock lock_;
  int64_t num_runs_;
  std::optional<int64_t> ticket_;
  bool entered_ = false;
};

}  // namespace meshift::run_internal

#endif  // MESHIFT_COMM_REDISTRIBUTION_RUN_TURN_H_
