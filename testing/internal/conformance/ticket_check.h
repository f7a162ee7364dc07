// Checks tickets on any engine of eight ranks: eight threads call over sixteen groups, in a
// different order on every rank. For tests.
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

// Uses one redistributor and eight threads. In each round every thread makes one call; each rank
// distributes the round's eight tickets to its threads at random. Threads do not wait for each
// other between rounds, but each waits for its own result. Tickets cycle through sixteen groups of
// each rank. An error if a result is wrong, a call fails, or there were not sixteen groups.
// REQUIRES: eight ranks.
absl::Status CheckTickets(Engine* engine, const TicketCheckOptions& options);

// Two redistributors over all ranks, each with a thread, make equal calls with different values in
// any relative order. An error if a result has the other's values, or a call fails. For engines
// that can split freely. REQUIRES: eight ranks.
absl::Status CheckTwoRedistributors(Engine* engine, int64_t rounds);

// The last rank does not make a call that the others make. An error unless this rank gets
// DEADLINE_EXCEEDED that names the ticket, and each other rank an error that names it. The engine
// needs a control channel, and cannot be used afterwards. REQUIRES: eight ranks.
absl::Status CheckMissingTicket(Engine* engine);

}  // namespace meshift

#endif  // MESHIFT_TESTING_INTERNAL_CONFORMANCE_TICKET_CHECK_H_
