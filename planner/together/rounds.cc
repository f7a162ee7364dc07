#include "planner/together/rounds.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/checked_math.h"
#include "base/status.h"
#include "meshift/status.h"

namespace meshift {
namespace {

// Appends a round, or repeats the last one if they are equal.
void Append(Round round, std::vector<Round>* rounds) {
  if (!rounds->empty() && rounds->back().parts == round.parts) {
    rounds->back().repeat = SaturatingAdd(rounds->back().repeat, round.repeat);
  } else {
    rounds->push_back(std::move(round));
  }
}

}  // namespace

absl::Status CheckBucket(int64_t bucket_bytes) {
  if (bucket_bytes >= 1) return absl::OkStatus();
  return InvalidArgument("a bucket has {} bytes; it must have 1 or more", bucket_bytes);
}

absl::StatusOr<std::vector<Round>> CutIntoRounds(absl::Span<const Plan> plans,
                                                 absl::Span<const int64_t> counts,
                                                 int64_t bucket_bytes) {
  MESHIFT_RETURN_IF_ERROR(CheckBucket(bucket_bytes));
  std::vector<Round> rounds;
  Round open;
  for (size_t i = 0; i < plans.size(); ++i) {
    const int64_t each = plans[i].total().workspace_bytes;
    if (each > bucket_bytes) {
      return InvalidArgument("plan {} has a workspace of {} bytes; a bucket has {}", i, each,
                             bucket_bytes);
    }
    int64_t left = counts[i];
    // Puts as many tensors as fit into the open round.
    const auto fill = [&] {
      const int64_t most = each == 0 ? left : (bucket_bytes - open.workspace_bytes) / each;
      const int64_t count = std::min(left, most);
      if (count == 0) return;
      open.parts.push_back({static_cast<int64_t>(i), count});
      open.workspace_bytes += count * each;
      left -= count;
    };
    fill();
    if (left == 0) continue;
    Append(std::exchange(open, {}), &rounds);
    // The last of the rounds that follow stays open.
    const int64_t full = (left - 1) / (bucket_bytes / each);
    if (full > 0) {
      const int64_t count = bucket_bytes / each;
      Append({.parts = {{static_cast<int64_t>(i), count}},
              .repeat = full,
              .workspace_bytes = count * each},
             &rounds);
      left -= full * count;
    }
    fill();
  }
  if (!open.parts.empty()) Append(std::move(open), &rounds);
  return rounds;
}

int64_t WorkspaceOf(const Round& round, absl::Span<const Plan> plans) {
  int64_t bytes = 0;
  for (const Round::Part& part : round.parts) {
    bytes =
        SaturatingAdd(bytes, SaturatingMul(plans[part.move].total().workspace_bytes, part.count));
  }
  return bytes;
}

void CountRounds(PlanLoads& loads, std::vector<Round>* rounds) {
  for (Round& round : *rounds) {
    for (const Round::Part& part : round.parts) loads.Add(part.move, part.count);
    round.busiest_ns = loads.BusiestNs();
    loads.Clear();
  }
}

}  // namespace meshift
