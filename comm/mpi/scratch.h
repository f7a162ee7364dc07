// Host memory for peers' contributions until they are reduced, and a pool that keeps it for the
// next operation.
//
//   Scratch scratch = pool->Take(/*bytes=*/1 << 20);
//   ... scratch.data() ...
//   pool->GiveBack(std::move(scratch));
//
// The pool keeps each Scratch that is given back until the pool is destroyed, or until Take() needs
// a larger one in its place. A Scratch that is not given back frees its memory, except after
// Leak(). Internal to comm/mpi.
#ifndef MESHIFT_COMM_MPI_SCRATCH_H_
#define MESHIFT_COMM_MPI_SCRATCH_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "comm/engine/host_memory.h"

namespace meshift {

class Scratch {
 public:
  Scratch() = default;
  // `bytes` (above 0), aligned to 64 bytes; data() is null if memory is exhausted, or for more than
  // 256 GiB.
  static Scratch Allocate(int64_t bytes) {
    Scratch scratch;
    scratch.data_ = TryAllocateHost(bytes);
    scratch.size_ = scratch.data_ == nullptr ? 0 : bytes;
    return scratch;
  }
  char* data() const { return static_cast<char*>(data_.get()); }
  int64_t size() const { return size_; }  // bytes
  // Never frees the memory: MPI may still write to it.
  void Leak() { (void)data_.release(); }

 private:
  friend class ScratchPool;
  HostMemory data_;
  int64_t size_ = 0;
};

// Safe for concurrent use.
class ScratchPool {
 public:
  // As Scratch::Allocate, or larger.
  Scratch Take(int64_t bytes) {
    Scratch scratch;
    {
      const MutexLock lock(mutex_);
      if (!free_.empty()) {
        scratch = std::move(free_.back());
        free_.pop_back();
      }
    }
    return scratch.size_ < bytes ? Scratch::Allocate(bytes) : std::move(scratch);
  }
  void GiveBack(Scratch scratch) {
    if (scratch.data_ == nullptr) return;
    const MutexLock lock(mutex_);
    free_.push_back(std::move(scratch));
  }

 private:
  Mutex mutex_;
  std::vector<Scratch> free_ MESHIFT_GUARDED_BY(mutex_);
};

}  // namespace meshift

#endif  // MESHIFT_COMM_MPI_SCRATCH_H_
