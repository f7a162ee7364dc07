// Which rank sends what in a step of a plan, by the rules of docs/plan_format.md alone.
//
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
  // Which contribution travels: the sender's coordinate on each mesh dim that is partial, by name.
  // Empty: whole values.
  std::vector<std::pair<std::string, int64_t>> contribution;

  // "ddp=3,fsdp=0", or "-"
  std::string ContributionText() const;
};

// The messages of step `step`, by the position of the target, then of the source; of a crossing to
// another mesh by the target's rank. None for local steps and for reductions, whose traffic is the
// engine's own. O(ranks * group size * dims).
std::vector<RankMessage> MessagesOf(const Plan& plan, int step);

// What is listed within some seconds and a GiB.
inline constexpr int64_t kMaxListedPairs = int64_t{1} << 20;
// INVALID_ARGUMENT where the steps together have more pairs of a sender and a receiver.
absl::Status CheckMessages(const Plan& plan);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_MESSAGES_H_
