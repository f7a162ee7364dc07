#include "comm/local/symmetric.h"

#include <fmt/format.h>

#include "base/checked_math.h"
#include "base/status.h"

namespace meshift {

absl::StatusOr<std::shared_ptr<const LocalSymmetricSet>> LocalSymmetricSet::Create(
    int64_t group, int members, const SymmetricRequest& request) {
  constexpr int64_t kAlignment = 4096;  // bytes, a page
  std::shared_ptr<LocalSymmetricSet> set(new LocalSymmetricSet(group, members, request));
  for (int64_t i = 0; i < request.count * members; ++i) {
    void* const data = std::aligned_alloc(kAlignment, RoundUp(request.bytes, kAlignment));
    if (data == nullptr) {
      return absl::ResourceExhaustedError(
          fmt::format("no memory for {} of {} members", request.ToString(), members));
    }
    set->data_.emplace_back(data);
  }
  return std::shared_ptr<const LocalSymmetricSet>(std::move(set));
}

absl::StatusOr<std::shared_ptr<const LocalSymmetricSet>> LocalSymmetricSets::Get(
    const Group& group, int member, const SymmetricRequest& request) {
  const MutexLock lock(mutex_);
  PendingRequests& pending = groups_[group.id()];
  pending.calls.resize(group.size());
  const auto index = static_cast<size_t>(pending.calls[member]++ - pending.first);
  if (index == pending.entries.size()) {
    pending.entries.push_back(
        {member, request, LocalSymmetricSet::Create(group.id(), group.size(), request), 0});
  }
  Entry& entry = pending.entries[index];
  if (!(entry.request == request)) {
    return FailedPrecondition("{}: rank {} asks for {}, and rank {} for {}", group.ToString(),
                              group.ranks()[entry.first_member], entry.request.ToString(),
                              group.ranks()[member], request.ToString());
  }
  auto set = entry.set;
  // Each member makes its requests in order, so the first entry is complete first.
  if (++entry.members == group.size()) {
    pending.entries.pop_front();
    ++pending.first;
  }
  return set;
}

}  // namespace meshift
