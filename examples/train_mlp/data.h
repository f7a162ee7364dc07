// The synthetic regression: inputs, targets and initial weights as functions of their indices, so
// that every rank makes its own part.
#ifndef MESHIFT_EXAMPLES_TRAIN_MLP_DATA_H_
#define MESHIFT_EXAMPLES_TRAIN_MLP_DATA_H_

#include <cmath>
#include <cstdint>

namespace meshift {

// In [-1, 1), from a hash (SplitMix64's finalizer).
inline float Noise(uint64_t stream, int64_t i, int64_t j) {
  uint64_t x = stream << 48 ^ static_cast<uint64_t>(i) << 20 ^ static_cast<uint64_t>(j);
  x = (x + 0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  x ^= x >> 31;
  return static_cast<float>(x >> 40) / static_cast<float>(1 << 23) - 1.0F;
}

// Feature `j` of sample `i`, and target `k` of the sample whose features are `x`.
inline float Input(int64_t i, int64_t j) { return Noise(1, i, j); }
inline float Target(const float* x, int64_t inputs, int64_t k) {
  float sum = 0.3F;
  for (int64_t j = 0; j < inputs; ++j) sum += Noise(2, k, j) * x[j];
  return std::sin(sum / 2);
}

// Row `i`, column `j` of weight number `layer`, which has `columns` columns.
inline float FirstWeight(int layer, int64_t i, int64_t j, int64_t columns) {
  return Noise(2 + layer, i, j) / std::sqrt(static_cast<float>(columns));
}

}  // namespace meshift

#endif  // MESHIFT_EXAMPLES_TRAIN_MLP_DATA_H_
