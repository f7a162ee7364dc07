// SymmetricPool: a bounded pool of symmetric memory (meshift/engine.h) of one communicator. It
// divides registered buffers of equal size into blocks.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto pool, SymmetricPool::Create(engine, communicator,
//                                                             {.buffer_bytes = 64 << 20}));
//   MESHIFT_ASSIGN_OR_RETURN(SymmetricBlock block, pool->Allocate(1 << 20));
//   pool->TensorAt(block.data);       // {.block = 1, .offset = 0}
//   MESHIFT_RETURN_IF_ERROR(pool->Free(block.number));
//
// Create and Reserve are collective: all members call them with the same arguments in the same
// order. Only these two register memory, each at most 2^38 bytes at once. Members that request
// different buffers get FAILED_PRECONDITION, which names two members and their requests.
//
// Allocate and Free are local and deterministic: the result depends only on the options and on the
// earlier calls of Reserve, Allocate and Free. So members that make the same calls in the same
// order get blocks with equal numbers at equal places, which makes their tensors symmetric. The
// agreement of a redistributor compares the places in the calls that it covers, and names ranks
// that differ.
//
// A block may be freed once the calls that use it are done on this rank: then no member reads it.
// Destroy a pool before its communicator and its engine. If that is collective for the engine
// (MPI), all members must do so. Safe for concurrent use.
#ifndef MESHIFT_SYMMETRIC_H_
#define MESHIFT_SYMMETRIC_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshift/communicator.h"
#include "meshift/engine.h"
#include "meshift/version.h"

namespace MESHIFT_API meshift {

// SymmetricUse: where the tensors of a call are in symmetric memory. SymmetricMiss: why a call did
// not use it.
//
//   const SymmetricUse use{pool.get(), pool->TensorAt(in.data), pool->TensorAt(out.data)};
//   redistribute({.from = from, .to = to, .source = in, .target = out, .symmetric = &use});
//   redistribute.stats().symmetric.hits;  // 1, or a miss with its reason

class SymmetricPool;

// A tensor's place in a pool: `offset` bytes after the start of a block. Block 0: not in the pool.
struct SymmetricTensor {
  int64_t block = 0;
  int64_t offset = 0;
  friend bool operator==(const SymmetricTensor&, const SymmetricTensor&) = default;
};

// Equal on all ranks, because it decides which path a call takes. The pool is one that
// Redistributor::MakeSymmetricPool of the same redistributor made; others are refused.
struct SymmetricUse {
  SymmetricPool* pool = nullptr;
  SymmetricTensor source = {};
  SymmetricTensor target = {};
};

// Why a call that names a pool did not use symmetric memory. The reason is equal on all members of
// the group.
enum class SymmetricMiss : uint8_t {
  kSource,     // the source has no block
  kTarget,     // the target has none
  kOperation,  // not a single all-gather, reduce-scatter or gathering exchange of contiguous blocks
  kGroup,      // not the pool's group
  kSize,       // the largest part does not fit into its block after the offset, or the offset is
               // not a multiple of 16
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

// Equal on all members.
struct SymmetricPoolOptions {
  int64_t buffer_bytes = int64_t{64} << 20;  // of each buffer: 1 to 2^38; rounded up to 4 KiB
  int64_t buffers = 1;                       // number that Create registers: 1 to max_buffers
  int64_t max_buffers = 8;                   // limit on their number: at most 4096
};

absl::Status CheckOptions(const SymmetricPoolOptions& options);  // INVALID_ARGUMENT, or OK

struct SymmetricBlock {
  int64_t number = 0;  // 1, 2, ..., never reused
  void* data = nullptr;
  int64_t bytes = 0;   // the requested size, rounded up to 256
  int64_t buffer = 0;  // the buffer's number
  int64_t offset = 0;  // in bytes, from the start of the buffer
};

struct SymmetricPoolStats {
  int64_t buffers = 0;  // registered
  int64_t registered_bytes = 0;
  int64_t bytes_in_use = 0;
  int64_t high_water_bytes = 0;  // peak of bytes_in_use
  int64_t blocks = 0;            // in use
  int64_t allocations = 0;       // that succeeded, since Create
  int64_t refused = 0;           // allocations that failed with RESOURCE_EXHAUSTED
  // Fragmentation: free bytes, and the largest block that could be allocated.
  int64_t free_bytes = 0;
  int64_t largest_free = 0;
  int64_t free_ranges = 0;
  SymmetricCounts calls;  // calls of redistributors that named this pool
};

class SymmetricPool {
 public:
  ~SymmetricPool();
  static constexpr int64_t kAlignment = 256;

  // Collective. `engine` and `communicator` must outlive the pool. INVALID_ARGUMENT: an option, or
  // more than 2^38 bytes in all. UNIMPLEMENTED, on all members: the engine has no symmetric memory
  // for this communicator; the message says why. Otherwise errors of Engine::AllocateSymmetric.
  static absl::StatusOr<std::unique_ptr<SymmetricPool>> Create(
      Engine* engine, Communicator* communicator, const SymmetricPoolOptions& options = {});

  // Collective: registers further buffers until there are `buffers`. RESOURCE_EXHAUSTED, without
  // effect: `buffers` exceeds max_buffers. Other errors as those of Create.
  absl::Status Reserve(int64_t buffers);

  // A block lies in one buffer. INVALID_ARGUMENT: `bytes` is not in 1..2^38. RESOURCE_EXHAUSTED:
  // the message has the free bytes and the size of the largest possible block. O(log n).
  absl::StatusOr<SymmetricBlock> Allocate(int64_t bytes);
  // Does not check whether work still uses the block. INVALID_ARGUMENT: the block does not exist.
  absl::Status Free(int64_t block);
  // NOT_FOUND: the block does not exist. O(1).
  absl::StatusOr<SymmetricBlock> Find(int64_t block) const;
  // The block that contains `data`, and the offset in it; block 0 if none does. O(log n).
  SymmetricTensor TensorAt(const void* data) const;

  SymmetricPoolStats stats() const;
  Communicator* communicator() const { return communicator_; }
  // "the symmetric pool of ", and the communicator's text.
  std::string ToString() const;

  // For redistributors: a block's place for calls, and the counters of hits and misses.
  SymmetricPlace PlaceOf(const SymmetricBlock& block, int64_t offset) const;
  void CountHit();
  void CountMiss(SymmetricMiss miss);
  // For the maker of the pool: `owner` is kept alive by the pool, `id` is unique in it, `ranks` are
  // the group's.
  void SetOwner(std::shared_ptr<void> owner, int64_t id, std::vector<int64_t> ranks) {
    owner_ = std::move(owner);
    id_ = id;
    ranks_ = std::move(ranks);
  }
  const void* owner() const { return owner_.get(); }
  int64_t id() const { return id_; }
  const std::vector<int64_t>& ranks() const { return ranks_; }

 private:
  struct State;
  SymmetricPool(Engine* engine, Communicator* communicator, const SymmetricPoolOptions& options);

  std::shared_ptr<void> owner_;  // destroyed last
  int64_t id_ = 0;
  std::vector<int64_t> ranks_;
  Engine* const engine_;
  Communicator* const communicator_;
  const SymmetricPoolOptions options_;
  const std::unique_ptr<State> state_;
};

}  // namespace meshift

#endif  // MESHIFT_SYMMETRIC_H_
