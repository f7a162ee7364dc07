#include "testing/fake_gpu/race_check.h"

#include <algorithm>
#include <iterator>

namespace meshift::fake {
namespace {

bool Ordered(const Operation& earlier, const VectorClock& clock) {
  return earlier.stream == 0 || clock.At(earlier.stream) >= earlier.number;
}

}  // namespace

void AccessHistory::Split(uint64_t at) {
  auto it = segments_.upper_bound(at);
  if (it == segments_.begin()) return;
  --it;
  if (it->first == at || it->second.end <= at) return;
  Segment right = it->second;
  it->second.end = at;
  segments_.emplace(at, std::move(right));
}

std::optional<Race> AccessHistory::Apply(uint64_t begin, uint64_t end, bool write,
                                         const Operation& who, const VectorClock& clock) {
  std::optional<Race> race;
  if (begin >= end) return race;
  Split(begin);
  Split(end);
  uint64_t at = begin;
  auto it = segments_.lower_bound(begin);
  while (at < end) {
    if (it == segments_.end() || it->first > at) {
      // A gap: no earlier access.
      const uint64_t to = it == segments_.end() ? end : std::min(end, it->first);
      it = segments_.emplace_hint(it, at, Segment{.end = to, .writer = {}, .readers = {}});
    }
    Segment& segment = it->second;
    const auto conflict = [&](const Operation& earlier, bool earlier_wrote) {
      if (race.has_value() || earlier == who || Ordered(earlier, clock)) return;
      race = Race{.earlier = earlier,
                  .earlier_wrote = earlier_wrote,
                  .begin = it->first,
                  .end = segment.end};
    };
    conflict(segment.writer, true);
    if (write) {
      for (const Operation& reader : segment.readers) conflict(reader, false);
      segment.writer = who;
      segment.readers.clear();
    } else {
      // Later operations ordered after this one are also ordered after these readers.
      std::erase_if(segment.readers,
                    [&](const Operation& reader) { return Ordered(reader, clock); });
      segment.readers.push_back(who);
    }
    at = segment.end;
    ++it;
  }
  Merge(begin, end);
  return race;
}

void AccessHistory::Merge(uint64_t begin, uint64_t end) {
  auto it = segments_.lower_bound(begin);
  if (it != segments_.begin()) --it;
  while (it != segments_.end() && it->first <= end) {
    const auto next = std::next(it);
    if (next == segments_.end()) return;
    if (it->second.end == next->first && it->second.writer == next->second.writer &&
        it->second.readers == next->second.readers) {
      it->second.end = next->second.end;
      segments_.erase(next);
    } else {
      it = next;
    }
  }
}

}  // namespace meshift::fake
