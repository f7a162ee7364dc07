// Finds data races by the order of calls, whatever the timing: remembers the last writer and
// readers of each byte of an allocation. An access must be ordered (by stream order, events or the
// host) after every earlier access of the same byte if one of the two writes.
//
//   AccessHistory history;
//   if (auto race = history.Apply(0, 64, /*write=*/true, {.stream = 2, .number = 5}, clock)) ...
//
// Accesses are applied in the order in which the host issues operations. Not thread-safe.
#ifndef MESHIFT_TESTING_FAKE_GPU_RACE_CHECK_H_
#define MESHIFT_TESTING_FAKE_GPU_RACE_CHECK_H_

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "testing/fake_gpu/vector_clock.h"

namespace meshift::fake {

// The `number`th operation of a stream; stream 0 means none.
struct Operation {
  uint32_t stream = 0;
  uint64_t number = 0;
  const char* name = "";

  bool operator==(const Operation& other) const {
    return stream == other.stream && number == other.number;
  }
};

struct Race {
  Operation earlier;
  bool earlier_wrote = false;
  uint64_t begin = 0;  // first byte of the conflict
  uint64_t end = 0;
};

class AccessHistory {
 public:
  // Records an access of [begin, end) by `who`, which is ordered after `clock`. Returns the first
  // earlier access that it races with.
  std::optional<Race> Apply(uint64_t begin, uint64_t end, bool write, const Operation& who,
                            const VectorClock& clock);

 private:
  struct Segment {
    uint64_t end = 0;
    Operation writer;
    std::vector<Operation> readers;
  };
  using Segments = std::map<uint64_t, Segment>;

  // Splits the segment at `at`.
  void Split(uint64_t at);
  void Merge(uint64_t begin, uint64_t end);

  Segments segments_;  // by begin; other bytes were not accessed yet
};

}  // namespace meshift::fake

#endif  // MESHIFT_TESTING_FAKE_GPU_RACE_CHECK_H_
