// Lists the messages of a plan's steps: which rank sends which box to which. Follows
// docs/plan_format.md and asks no engine.
//
//   MESHIFT_RETURN_IF_ERROR(CheckMessages(plan));   // at most 2^20 are listed
//   for (const RankMessage& m : MessagesOf(plan, /*step=*/0)) {
//     fmt::print("{} -> {}: {}\n", m.source, m.target, m.box.ToString());
//   }
#ifndef MESHIFT_CLI_MESSAGES_H_
#define MESHIFT_CLI_MESSAGES_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "meshift/plan.h"
#include "meshift/sharding.h"

namespace meshift::cli {

struct RankMessage {
  int64_t source = 0;  // ranks
  int64_t target = 0;
  Box box;  // global indices
  // The contribution that the message carries: the sender's coordinate on each partial mesh dim of
  // size > 1, by name. Empty: whole values.
  std::vector<std::pair<std::string, int64_t>> contribution;

  // "ddp=3,fsdp=0", or "-"
  std::string ContributionText() const;
};

// The messages of step `step`, ordered by the position of the target, then of the source; for a
// crossing by the target's rank. Empty for local steps and for reductions, whose messages the
// engine chooses. O(ranks * group size * dims). REQUIRES: 0 <= step < plan.steps().size().
std::vector<RankMessage> MessagesOf(const Plan& plan, int step);

// The most messages that are listed; they take some seconds and a GiB.
inline constexpr int64_t kMaxListedPairs = int64_t{1} << 20;
// INVALID_ARGUMENT if all steps together have more pairs of a sender and a receiver. Outside
// crossings, pairs of a rank with itself and pairs whose box is empty count too, although
// MessagesOf does not list them.
absl::Status CheckMessages(const Plan& plan);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_MESSAGES_H_
