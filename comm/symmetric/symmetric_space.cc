#include "comm/symmetric/symmetric_space.h"

#include <iterator>
#include <utility>

namespace meshift {

void SymmetricSpace::Add(const Place& place, int64_t bytes) {
  by_place_.emplace(place, bytes);
  by_size_.emplace(bytes, place.first, place.second);
  free_bytes_ += bytes;
}

void SymmetricSpace::Remove(std::map<Place, int64_t>::iterator at) {
  const auto& [place, bytes] = *at;
  by_size_.erase({bytes, place.first, place.second});
  free_bytes_ -= bytes;
  by_place_.erase(at);
}

void SymmetricSpace::AddBuffers(int64_t count) {
  for (int64_t i = 0; i < count; ++i) Add({num_buffers_++, 0}, buffer_bytes_);
}

std::optional<SymmetricSpace::Range> SymmetricSpace::Take(int64_t bytes) {
  const auto found = by_size_.lower_bound({bytes, 0, 0});
  if (found == by_size_.end()) return std::nullopt;
  const auto [size, buffer, offset] = *found;
  Remove(by_place_.find({buffer, offset}));
  if (size > bytes) Add({buffer, offset + bytes}, size - bytes);
  return Range{buffer, offset, bytes};
}

void SymmetricSpace::GiveBack(const Range& range) {
  Place place{range.buffer, range.offset};
  int64_t bytes = range.bytes;
  const auto next = by_place_.lower_bound(place);
  if (next != by_place_.end() && next->first == Place{range.buffer, range.offset + bytes}) {
    bytes += next->second;
    Remove(next);
  }
  if (const auto after = by_place_.lower_bound(place); after != by_place_.begin()) {
    const auto before = std::prev(after);
    const auto& [at, size] = *before;
    if (at.first == place.first && at.second + size == place.second) {
      place.second = at.second;
      bytes += size;
      Remove(before);
    }
  }
  Add(place, bytes);
}

}  // namespace meshift
