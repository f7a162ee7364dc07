// What a call says about its tensors and symmetric memory, and what became of it.
//
//   const SymmetricUse use{pool, pool->TensorAt(in.data), pool->TensorAt(out.data)};
//   redistribute({.from = from, .to = to, .source = in, .target = out, .symmetric = &use});
//   redistribute.stats().symmetric.hits;  // 1, or a miss with its reason
#ifndef MESHIFT_COMM_SYMMETRIC_SYMMETRIC_USE_H_
#define MESHIFT_COMM_SYMMETRIC_SYMMETRIC_USE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace meshift {

class SymmetricPool;  // meshift/symmetric.h

// A tensor's place in a pool: so many bytes behind the beginning of a block. Block 0: it has none.
struct SymmetricTensor {
  int64_t block = 0;
  int64_t offset = 0;
  friend bool operator==(const SymmetricTensor&, const SymmetricTensor&) = default;
};

// Equal on all ranks: what decides must not be what one rank's address happens to be.
struct SymmetricUse {
  SymmetricPool* pool = nullptr;
  SymmetricTensor source = {};
  SymmetricTensor target = {};
};

// Why a call that names a pool went the ordinary way. Each follows from what is equal on all
// members of the group.
enum class SymmetricMiss : uint8_t {
  kSource,     // the source has no block
  kTarget,     // the target has none
  kOperation,  // not one all-gather or reduce-scatter whose blocks lie one behind the other
  kGroup,      // of another group than the pool's
  kSize,       // the largest part does not fit into its block behind the offset
  kOverlap,    // source and target share memory
  kPromise,    // the plan's promise about bits would not be kept
  kEngine,     // the engine has no such symmetric call
  kList,       // a tensor of a list
};
inline constexpr size_t kNumSymmetricMisses = 9;
std::string_view Name(SymmetricMiss miss);  // "source", "target", ...

struct SymmetricCounts {
  int64_t hits = 0;
  std::array<int64_t, kNumSymmetricMisses> misses = {};
  int64_t Missed(SymmetricMiss miss) const { return misses[static_cast<size_t>(miss)]; }
  friend bool operator==(const SymmetricCounts&, const SymmetricCounts&) = default;
};

}  // namespace meshift

#endif  // MESHIFT_COMM_SYMMETRIC_SYMMETRIC_USE_H_
