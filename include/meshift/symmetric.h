// A bounded pool of symmetric memory (comm/engine/symmetric_memory.h) of one communicator:
// registered buffers of equal size, cut into blocks.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto pool, SymmetricPool::Create(engine, communicator,
//                                                             {.buffer_bytes = 64 << 20}));
//   MESHIFT_ASSIGN_OR_RETURN(SymmetricBlock block, pool->Allocate(1 << 20));
//   pool->TensorAt(block.data);       // {.block = 1, .offset = 0}
//   MESHIFT_RETURN_IF_ERROR(pool->Free(block.number));
//
// Create and Reserve are collective: all members call them with the same arguments, in the same
// order; nothing else registers memory, so none of it is ever in the way of a call. Members that
// differ get FAILED_PRECONDITION, which names two and what they ask for.
//
// Allocate and Free wait for nobody and ask nobody, and give what the sequence of such calls before
// them makes them give. Members that make the same calls in the same order have blocks of the same
// numbers at the same places, which is what makes tensors symmetric; so do these like collectives.
// A redistributor's agreement compares places, and names the ranks that differ.
//
// Free a block once the calls that use it are done on this rank: then no member reads it any more.
// Destroy a pool before its communicator and its engine; where the engine's buffers end
// collectively (MPI), all members destroy theirs. Safe for concurrent use.
#ifndef MESHIFT_SYMMETRIC_H_
#define MESHIFT_SYMMETRIC_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "meshift/communicator.h"
#include "meshift/engine.h"
#include "comm/engine/symmetric_memory.h"
#include "comm/symmetric/symmetric_space.h"
#include "comm/symmetric/symmetric_use.h"

namespace meshift {

// Equal on all members.
struct SymmetricPoolOptions {
  int64_t buffer_bytes = int64_t{64} << 20;  // of each; rounded up to 4 KiB
  int64_t buffers = 1;                       // that Create makes
  int64_t max_buffers = 8;                   // ever
};

absl::Status CheckOptions(const SymmetricPoolOptions& options);  // INVALID_ARGUMENT, or OK

struct SymmetricBlock {
  int64_t number = 0;  // 1, 2, ..., never used again
  void* data = nullptr;
  int64_t bytes = 0;  // as asked for, rounded up to 256
  int64_t buffer = 0;
  int64_t offset = 0;
};

struct SymmetricPoolStats {
  int64_t buffers = 0;  // registered
  int64_t registered_bytes = 0;
  int64_t bytes_in_use = 0;
  int64_t high_water_bytes = 0;  // of bytes_in_use
  int64_t blocks = 0;
  int64_t allocations = 0;
  int64_t refused = 0;  // allocations
  // Fragmentation: how much is free, and the largest block that this could be.
  int64_t free_bytes = 0;
  int64_t largest_free = 0;
  int64_t free_ranges = 0;
  SymmetricCounts calls;  // of redistributors that named this pool
};

class SymmetricPool {
 public:
  static constexpr int64_t kAlignment = 256;

  // Collective. `engine` and `communicator` must outlive the pool. UNIMPLEMENTED, on all members,
  // where the engine has no symmetric memory for this communicator, saying why.
  static absl::StatusOr<std::unique_ptr<SymmetricPool>> Create(
      Engine* engine, Communicator* communicator, const SymmetricPoolOptions& options = {});

  // Collective: registers as many buffers as are missing to `buffers`. RESOURCE_EXHAUSTED beyond
  // max_buffers; nothing has changed then.
  absl::Status Reserve(int64_t buffers);

  // RESOURCE_EXHAUSTED says how much is free, and how large the largest block could be.
  absl::StatusOr<SymmetricBlock> Allocate(int64_t bytes);
  // INVALID_ARGUMENT where there is no such block.
  absl::Status Free(int64_t block);
  // NOT_FOUND where there is no such block. O(1).
  absl::StatusOr<SymmetricBlock> Find(int64_t block) const;
  // The block that `data` lies in, and where in it; block 0 where it lies in none. O(log n).
  SymmetricTensor TensorAt(const void* data) const;

  SymmetricPoolStats stats() const;
  Communicator* communicator() const { return communicator_; }
  // "symmetric pool of group 0-7"
  std::string ToString() const;

  // For redistributors: a block's place for calls, and the count of what became of a call.
  SymmetricPlace PlaceOf(const SymmetricBlock& block, int64_t offset) const;
  void CountHit() { hits_.fetch_add(1, std::memory_order_relaxed); }
  void CountMiss(SymmetricMiss miss) {
    misses_[static_cast<size_t>(miss)].fetch_add(1, std::memory_order_relaxed);
  }
  // The one that made the pool, which keeps it; a number that is its own there; the group's ranks.
  void SetOwner(std::shared_ptr<void> owner, int64_t id, std::vector<int64_t> ranks) {
    owner_ = std::move(owner);
    id_ = id;
    ranks_ = std::move(ranks);
  }
  const void* owner() const { return owner_.get(); }
  int64_t id() const { return id_; }
  const std::vector<int64_t>& ranks() const { return ranks_; }

 private:
  SymmetricPool(Engine* engine, Communicator* communicator, const SymmetricPoolOptions& options)
      : engine_(engine),
        communicator_(communicator),
        options_(options),
        space_(options.buffer_bytes) {}

  std::shared_ptr<void> owner_;  // destroyed last
  int64_t id_ = 0;
  std::vector<int64_t> ranks_;
  Engine* const engine_;
  Communicator* const communicator_;
  const SymmetricPoolOptions options_;

  Mutex growing_;  // held while others are waited for; `mutex_`, taken inside it, never is
  mutable Mutex mutex_;
  std::vector<std::unique_ptr<SymmetricBuffer>> buffers_ MESHIFT_GUARDED_BY(mutex_);
  std::map<uintptr_t, int64_t> by_address_ MESHIFT_GUARDED_BY(mutex_);  // buffers, by their begin
  SymmetricSpace space_ MESHIFT_GUARDED_BY(mutex_);
  absl::flat_hash_map<int64_t, SymmetricSpace::Range> blocks_ MESHIFT_GUARDED_BY(mutex_);
  // Blocks by buffer and offset.
  std::map<std::pair<int64_t, int64_t>, int64_t> by_place_ MESHIFT_GUARDED_BY(mutex_);
  int64_t high_water_ MESHIFT_GUARDED_BY(mutex_) = 0;
  int64_t allocations_ MESHIFT_GUARDED_BY(mutex_) = 0;
  int64_t refused_ MESHIFT_GUARDED_BY(mutex_) = 0;
  std::atomic<int64_t> hits_{0};
  std::array<std::atomic<int64_t>, kNumSymmetricMisses> misses_ = {};
};

}  // namespace meshift

#endif  // MESHIFT_SYMMETRIC_H_
