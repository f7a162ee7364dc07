// Calls of eight threads over sixteen groups, in another order on every rank, on any engine of
// eight ranks. For tests.
//
//   // On every rank, at the same time:
//   EXPECT_TRUE(CheckTickets(engine, {.rounds = 10000, .seed = 1}).ok());
//   EXPECT_TRUE(CheckMissingTicket(another_engine).ok());
#ifndef MESHIFT_TESTING_INTERNAL_CONFORMANCE_TICKET_CHECK_H_
#define MESHIFT_TESTING_INTERNAL_CONFORMANCE_TICKET_CHECK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "meshift/engine.h"

namespace meshift {

struct TicketCheckOptions {
  int64_t rounds = 10000;
  uint64_t seed = 1;
};

// One redistributor, eight threads. In each round every thread makes one call: which of the round's
// eight tickets it has is drawn anew on every rank. Threads do not wait for each other between
// rounds, each waits for its own result. Tickets take turns among sixteen groups of each rank. An
// error where a result is wrong, a call fails, or there were not sixteen groups.
// REQUIRES: eight ranks.
absl::Status CheckTickets(Engine* engine, const TicketCheckOptions& options);

// Two redistributors over all ranks, a thread each, which make like calls with other values in any
// order among each other. An error where a result has the other's values, or a call fails. For
// engines that split freely. REQUIRES: eight ranks.
absl::Status CheckTwoRedistributors(Engine* engine, int64_t rounds);

// The last rank never comes with one ticket, whose call the others make. An error unless this rank
// gets DEADLINE_EXCEEDED that names the ticket, and each other one an error that names it too. The
// engine needs a control channel, and is of no use afterwards. REQUIRES: eight ranks.
absl::Status CheckMissingTicket(Engine* engine);

}  // namespace meshift

#endif  // MESHIFT_TESTING_INTERNAL_CONFORMANCE_TICKET_CHECK_H_
