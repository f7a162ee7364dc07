// The operations that an operation is ordered after: for each stream, the number of its operations.
//
//   clock.Join(event_clock);          // a stream waits for an event
//   clock.Raise(stream.id, 7);        // its 7th operation is issued
//   if (clock.At(other.id) >= 3) ...  // ordered after the other stream's 3rd operation
#ifndef MESHIFT_TESTING_FAKE_GPU_VECTOR_CLOCK_H_
#define MESHIFT_TESTING_FAKE_GPU_VECTOR_CLOCK_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace meshift::fake {

class VectorClock {
 public:
  uint64_t At(uint32_t stream) const {
    const auto it = Find(stream);
    return it != entries_.end() && it->first == stream ? it->second : 0;
  }

  void Raise(uint32_t stream, uint64_t to) {
    const auto it = Find(stream);
    if (it != entries_.end() && it->first == stream) {
      entries_[it - entries_.begin()].second = std::max(it->second, to);
    } else {
      entries_.insert(it, {stream, to});
    }
  }

  void Join(const VectorClock& other) {
    if (&other == this || other.entries_.empty()) return;
    size_t mine = 0;
    for (const Entry& theirs : other.entries_) {
      while (mine < entries_.size() && entries_[mine].first < theirs.first) ++mine;
      if (mine < entries_.size() && entries_[mine].first == theirs.first) {
        entries_[mine].second = std::max(entries_[mine].second, theirs.second);
      } else {
        entries_.insert(entries_.begin() + static_cast<std::ptrdiff_t>(mine), theirs);
      }
    }
  }

  // Whether this is ordered after everything that `other` is ordered after.
  bool Covers(const VectorClock& other) const {
    return std::all_of(other.entries_.begin(), other.entries_.end(),
                       [&](const Entry& entry) { return At(entry.first) >= entry.second; });
  }

 private:
  using Entry = std::pair<uint32_t, uint64_t>;

  std::vector<Entry>::const_iterator Find(uint32_t stream) const {
    return std::lower_bound(entries_.begin(), entries_.end(), stream,
                            [](const Entry& entry, uint32_t id) { return entry.first < id; });
  }

  std::vector<Entry> entries_;  // by stream
};

}  // namespace meshift::fake

#endif  // MESHIFT_TESTING_FAKE_GPU_VECTOR_CLOCK_H_
