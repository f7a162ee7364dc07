// A best-fit allocator of ranges in buffers of equal size, without the memory itself. Internal to
// SymmetricPool (meshift/symmetric.h). Not thread-safe.
//
//   SymmetricSpace space(/*buffer_bytes=*/1 << 20);
//   space.AddBuffers(2);
//   std::optional<SymmetricSpace::Range> taken = space.Take(4096);
//   space.GiveBack(*taken);
//
// Take() uses the smallest free range that is large enough; among equal ones the first. The results
// depend only on the sequence of calls, so ranks that make the same calls get the same ranges. Does
// not align: the caller rounds sizes up. Take and GiveBack need O(log(free ranges)).
#ifndef MESHIFT_COMM_SYMMETRIC_SYMMETRIC_SPACE_H_
#define MESHIFT_COMM_SYMMETRIC_SYMMETRIC_SPACE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <tuple>

namespace meshift {

class SymmetricSpace {
 public:
  struct Range {
    int64_t buffer = 0;  // number, from 0
    int64_t offset = 0;  // bytes
    int64_t bytes = 0;
    friend bool operator==(const Range&, const Range&) = default;
  };

  explicit SymmetricSpace(int64_t buffer_bytes) : buffer_bytes_(buffer_bytes) {}
  void AddBuffers(int64_t count);
  // nullopt if no free range is large enough. REQUIRES: bytes > 0.
  std::optional<Range> Take(int64_t bytes);
  // REQUIRES: a range that Take returned, and that was not given back since.
  void GiveBack(const Range& range);

  int64_t num_buffers() const { return num_buffers_; }
  int64_t free_bytes() const { return free_bytes_; }
  int64_t largest_free() const { return by_size_.empty() ? 0 : std::get<0>(*by_size_.rbegin()); }
  int64_t num_free_ranges() const { return static_cast<int64_t>(by_place_.size()); }

 private:
  using Place = std::pair<int64_t, int64_t>;  // buffer, offset
  void Add(const Place& place, int64_t bytes);
  void Remove(std::map<Place, int64_t>::iterator at);

  const int64_t buffer_bytes_;
  int64_t num_buffers_ = 0;
  int64_t free_bytes_ = 0;
  std::map<Place, int64_t> by_place_;                        // bytes of each free range
  std::set<std::tuple<int64_t, int64_t, int64_t>> by_size_;  // the same, as bytes, buffer, offset
};

}  // namespace meshift

#endif  // MESHIFT_COMM_SYMMETRIC_SYMMETRIC_SPACE_H_
