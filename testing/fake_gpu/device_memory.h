// The memory of all devices, and the host memory that the driver has allocated or registered.
//
// Device addresses lie in a range that is reserved without access, so that the host traps when it
// touches one. The bytes lie in a second range at a constant distance, which only the stand-in
// uses. Fresh memory holds random bytes; freed addresses are reused as late as possible.
//
//   const uint64_t address = memory.Allocate(/*device=*/0, 4096, &random);
//   Allocation* allocation = memory.Find(address + 100);   // also when freed
//   std::memset(memory.Bytes(address), 0, 4096);
//
// Not thread-safe, except Bytes.
#ifndef MESHIFT_TESTING_FAKE_GPU_DEVICE_MEMORY_H_
#define MESHIFT_TESTING_FAKE_GPU_DEVICE_MEMORY_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "testing/fake_gpu/race_check.h"
#include "testing/fake_gpu/random.h"

namespace meshift::fake {

enum class MemoryKind { kDevice, kPool, kHost };

struct Allocation {
  uint64_t base = 0;
  uint64_t bytes = 0;
  int device = 0;  // for host memory: the device that was current
  MemoryKind kind = MemoryKind::kDevice;
  bool freed = false;
  bool lent_to_nccl = false;  // made by ncclMemAlloc
  uint64_t region = 0;        // begin of its address range
  uint64_t region_bytes = 0;
  uint64_t id = 0;
  AccessHistory history;
};

class DeviceMemory {
 public:
  DeviceMemory(int devices, uint64_t bytes_per_device);

  // Whether reserving the ranges worked.
  bool ok() const { return begin_ != 0; }

  // 0: out of memory.
  uint64_t Allocate(int device, uint64_t bytes, MemoryKind kind, Random* random);
  // Registers host memory as the driver's.
  void AddHost(uint64_t base, uint64_t bytes, int device);
  // Releases the bytes but keeps the addresses unused. Host memory is forgotten at once; the caller
  // frees it.
  void Free(Allocation* allocation);

  // The allocation that contains an address, maybe freed; null if none is remembered.
  Allocation* Find(uint64_t address);
  bool IsDevice(uint64_t address) const { return address >= begin_ && address < end_; }

  // The host address of the bytes of an address.
  char* Bytes(uint64_t address) const {
    return reinterpret_cast<char*>(IsDevice(address) ? address + distance_ : address);
  }

  uint64_t used(int device) const { return used_[static_cast<size_t>(device)]; }
  uint64_t total() const { return bytes_per_device_; }

  template <typename Visit>
  void ForEach(Visit visit) {
    for (auto& [base, allocation] : allocations_) visit(*allocation);
  }

 private:
  // 0: no range is free.
  uint64_t TakeRange(uint64_t bytes);

  uint64_t begin_ = 0;  // range of the device addresses
  uint64_t end_ = 0;
  uint64_t next_ = 0;  // the first address that was never used
  uint64_t distance_ = 0;
  uint64_t bytes_per_device_ = 0;
  uint64_t next_id_ = 1;
  std::vector<uint64_t> used_;
  std::map<uint64_t, std::unique_ptr<Allocation>> allocations_;  // by base; freed ones too
  // Bases of freed ranges by length, oldest first.
  std::map<uint64_t, std::deque<uint64_t>> freed_;
};

}  // namespace meshift::fake

#endif  // MESHIFT_TESTING_FAKE_GPU_DEVICE_MEMORY_H_
