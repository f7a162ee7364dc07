// Computes the bytes that one member of a collective call sends, by docs/plan_format.md (an engine
// may send more or less). All sizes are in bytes, at least 0. Results saturate at INT64_MAX.
//
//   AllReduceBytes(800, 40);        // 1560: a ring sends 2 * 800 * 39 / 40
//   BlockBytes(100, 4);             // 300: reduce-scatter and all-gather of blocks of 100 bytes
//   RaggedBytes(170, 50);           // 120: the same, of blocks of 50, 0 and 120 bytes
#ifndef MESHIFT_COMM_PROGRAM_BYTE_COUNT_H_
#define MESHIFT_COMM_PROGRAM_BYTE_COUNT_H_

#include <cstdint>

#include "base/checked_math.h"

namespace meshift {

// An all-reduce of `bytes` among `n` members, rounded up. REQUIRES: n >= 1.
inline int64_t AllReduceBytes(int64_t bytes, int64_t n) {
  return MulDivCeil(bytes, 2 * (n - 1), n);
}

// A reduce-scatter or an all-gather of blocks of `block_bytes` among `n` members. REQUIRES: n >= 1.
inline int64_t BlockBytes(int64_t block_bytes, int64_t n) {
  return SaturatingMul(block_bytes, n - 1);
}

// The same for blocks of unequal sizes, `all_bytes` together, and the member whose own block has
// `block_bytes`. REQUIRES: block_bytes <= all_bytes.
inline int64_t RaggedBytes(int64_t all_bytes, int64_t block_bytes) {
  return all_bytes - block_bytes;
}

}  // namespace meshift

#endif  // MESHIFT_COMM_PROGRAM_BYTE_COUNT_H_
