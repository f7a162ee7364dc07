// Seeded random numbers that are the same with every compiler and library, unlike those of
// <random>'s distributions.
//
//   Random random(7);
//   random.Below(6);          // 0 .. 5
//   random.Shuffle(list);
#ifndef MESHIFT_TESTING_RANDOM_H_
#define MESHIFT_TESTING_RANDOM_H_

#include <cstdint>
#include <utility>

namespace meshift::testkit {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Next() {  // splitmix64
    uint64_t x = state_ += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  }
  // 0 .. n-1. REQUIRES: 0 < n < 2^31.
  int64_t Below(int64_t n) { return static_cast<int64_t>((Next() >> 33) * n >> 31); }
  bool OneIn(int64_t n) { return Below(n) == 0; }

  template <typename List>
  void Shuffle(List& list) {
    for (auto i = static_cast<int64_t>(list.size()); i > 1; --i) {
      std::swap(list[i - 1], list[Below(i)]);
    }
  }

 private:
  uint64_t state_;
};

}  // namespace meshift::testkit

#endif  // MESHIFT_TESTING_RANDOM_H_
