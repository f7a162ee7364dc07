// A small generator (splitmix64) with a state that may be shared under a lock.
#ifndef MESHIFT_TESTING_FAKE_GPU_RANDOM_H_
#define MESHIFT_TESTING_FAKE_GPU_RANDOM_H_

#include <cstdint>

namespace meshift::fake {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }

  // 0 <= result < bound; bound > 0.
  uint64_t Below(uint64_t bound) { return Next() % bound; }

 private:
  uint64_t state_;
};

}  // namespace meshift::fake

#endif  // MESHIFT_TESTING_FAKE_GPU_RANDOM_H_
