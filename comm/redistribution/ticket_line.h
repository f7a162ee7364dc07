// Orders calls of several threads by their tickets: 0, 1, 2, ... Internal to comm/redistribution.
//
//   MutexLock lock(mutex);
//   MESHIFT_RETURN_IF_ERROR(line.Enter(lock, ticket, timeout, health));
//   ... make the call; no other thread enters while the lock is held ...
//   line.Leave(ticket, /*made=*/true);
//
// All functions need the caller's lock, which Enter releases while it waits. Each successful Enter
// needs one Leave, and so does each call that IsOpenTo admits.
#ifndef MESHIFT_COMM_REDISTRIBUTION_TICKET_LINE_H_
#define MESHIFT_COMM_REDISTRIBUTION_TICKET_LINE_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "base/mutex.h"

namespace meshift::run_internal {

class TicketLine {
 public:
  using Timeout = absl::FunctionRef<std::chrono::nanoseconds()>;

  // Waits until all tickets before `ticket` have left. INVALID_ARGUMENT: the ticket is negative or
  // was used before, or only some calls have tickets. DEADLINE_EXCEEDED names the ticket that was
  // missing for `timeout()`. An error of `health` ends the waiting and is returned. Both functions
  // are called regularly while it waits, with the lock held. Without a ticket it does not wait.
  absl::Status Enter(MutexLock& lock, std::optional<int64_t> ticket, Timeout timeout,
                     absl::FunctionRef<absl::Status()> health);
  // True: Enter would only check `health`. False: Enter must be called.
  bool IsOpenTo(std::optional<int64_t> ticket) const { return !ticket && with_tickets_ == false; }
  // Ends the call. `made`: it was not refused. A refused call uses its ticket too.
  void Leave(std::optional<int64_t> ticket, bool made) {
    if (!ticket) {
      if (made) with_tickets_ = false;
      return;
    }
    with_tickets_ = true;
    ++next_;
    changed_.notify_all();
  }

 private:
  std::optional<bool> with_tickets_;  // whether calls have tickets; unset before the first call
  int64_t next_ = 0;
  std::condition_variable changed_;
};

}  // namespace meshift::run_internal

#endif  // MESHIFT_COMM_REDISTRIBUTION_TICKET_LINE_H_
