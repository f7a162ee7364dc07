// Lets the calls of several threads pass in the order of their tickets. Internal.
//
//   MutexLock lock(mutex);
//   MESHIFT_RETURN_IF_ERROR(line.Enter(lock, ticket, timeout, health));
//   ... the call; nobody else enters as long as the lock is held ...
//   line.Leave(ticket, /*made=*/true);
//
// Guarded by the caller's lock, which is given up while a thread waits.
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

  // Waits until the tickets before `ticket` have left. Calls have tickets, or none has:
  // INVALID_ARGUMENT, and for a ticket that was used before or is negative. DEADLINE_EXCEEDED names
  // the ticket that was missing for `timeout()`. `health`: an error that ends the waiting. Both are
  // looked at now and then.
  absl::Status Enter(MutexLock& lock, std::optional<int64_t> ticket, Timeout timeout,
                     absl::FunctionRef<absl::Status()> health);
  // Whether Enter has nothing to do but to look at `health`.
  bool IsOpenTo(std::optional<int64_t> ticket) const { return !ticket && with_tickets_ == false; }
  // The call is `made`, or was refused, which uses up its ticket too.
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
  std::optional<bool> with_tickets_;  // calls have; not known before one was made
  int64_t next_ = 0;
  std::condition_variable changed_;
};

}  // namespace meshift::run_internal

#endif  // MESHIFT_COMM_REDISTRIBUTION_TICKET_LINE_H_
