#include "comm/redistribution/ticket_line.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/status.h"
#include "meshift/status.h"

namespace meshift::run_internal {
namespace {

using Clock = std::chrono::steady_clock;

// The longest pause of a waiting thread between two checks of `health` and `timeout`.
constexpr std::chrono::milliseconds kLook(50);

}  // namespace

absl::Status TicketLine::Enter(MutexLock& lock, std::optional<int64_t> ticket, Timeout timeout,
                               absl::FunctionRef<absl::Status()> health) {
  if (ticket && *ticket < 0) return InvalidArgument("ticket {} is negative", *ticket);
  if (with_tickets_.value_or(ticket.has_value()) != ticket.has_value()) {
    return InvalidArgument("{}: either all calls of a redistributor have tickets, or none has",
                           ticket
                               ? fmt::format("ticket {} comes after calls without tickets", *ticket)
                               : "a call without a ticket comes after calls with tickets");
  }
  if (!ticket) return health();
  int64_t awaited = -1;
  Clock::time_point since;
  while (*ticket > next_) {
    MESHIFT_RETURN_IF_ERROR(health());
    if (awaited != next_) {
      awaited = next_;
      since = Clock::now();
    }
    const std::chrono::nanoseconds limit = timeout();
    const auto left = limit - (Clock::now() - since);
    if (left <= std::chrono::nanoseconds::zero()) {
      return absl::DeadlineExceededError(
          fmt::format("ticket {} did not come within {} s; ticket {} waits for it", awaited,
                      std::chrono::duration<double>(limit).count(), *ticket));
    }
    lock.WaitFor(changed_, std::min<std::chrono::nanoseconds>(left, kLook),
                 [&] { return awaited != next_; });
  }
  if (*ticket < next_) {
    return InvalidArgument("ticket {} was used before; the next one is {}", *ticket, next_);
  }
  return health();
}

}  // namespace meshift::run_internal
