#include "testing/fake_gpu/device_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace meshift::fake {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kAlignment = 512;  // cuMemAlloc promises 256 at least
constexpr uint64_t kRangeBytes = uint64_t{64} << 30;
// Guard pages before and after each allocation belong to none.
constexpr uint64_t kGuard = kPage;
// The number of freed ranges of one length that are kept unused.
constexpr size_t kQuarantine = 2048;

uint64_t RoundUp(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }

uint64_t Reserve(uint64_t bytes, int protection) {
  void* range =
      mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return range == MAP_FAILED ? 0 : reinterpret_cast<uint64_t>(range);
}

void FillWithGarbage(char* bytes, uint64_t count, Random* random) {
  uint64_t at = 0;
  for (; at + 8 <= count; at += 8) {
    const uint64_t garbage = random->Next();
    std::memcpy(bytes + at, &garbage, 8);
  }
  const uint64_t garbage = random->Next();
  std::memcpy(bytes + at, &garbage, count - at);
}

}  // namespace

DeviceMemory::DeviceMemory(int devices, uint64_t bytes_per_device)
    : bytes_per_device_(bytes_per_device), used_(static_cast<size_t>(devices), 0) {
  const uint64_t addresses = Reserve(kRangeBytes, PROT_NONE);
  const uint64_t bytes = Reserve(kRangeBytes, PROT_READ | PROT_WRITE);
  if (addresses == 0 || bytes == 0) return;
  begin_ = addresses;
  end_ = begin_ + kRangeBytes;
  next_ = begin_ + kGuard;
  distance_ = bytes - addresses;
}

uint64_t DeviceMemory::TakeRange(uint64_t bytes) {
  std::deque<uint64_t>& freed = freed_[bytes];
  const bool fresh = next_ + bytes <= end_;
  if (fresh && freed.size() < kQuarantine) return std::exchange(next_, next_ + bytes);
  if (freed.empty()) return 0;
  const auto found = allocations_.find(freed.front());
  freed.pop_front();
  const uint64_t region = found->second->region;
  allocations_.erase(found);
  return region;
}

uint64_t DeviceMemory::Allocate(int device, uint64_t bytes, MemoryKind kind, Random* random) {
  uint64_t& used = used_[static_cast<size_t>(device)];
  if (bytes > bytes_per_device_ || used + bytes > bytes_per_device_) return 0;
  const uint64_t offset = kAlignment * random->Below(kPage / kAlignment);
  // Powers of two make ranges easy to reuse.
  uint64_t region_bytes = 2 * kPage;
  while (region_bytes < RoundUp(offset + bytes, kPage) + kGuard) region_bytes *= 2;
  const uint64_t region = TakeRange(region_bytes);
  if (region == 0) return 0;
  auto allocation = std::make_unique<Allocation>();
  allocation->base = region + offset;
  allocation->bytes = bytes;
  allocation->device = device;
  allocation->kind = kind;
  allocation->region = region;
  allocation->region_bytes = region_bytes;
  allocation->id = next_id_++;
  used += bytes;
  FillWithGarbage(Bytes(allocation->base), bytes, random);
  const uint64_t base = allocation->base;
  allocations_[base] = std::move(allocation);
  return base;
}

void DeviceMemory::AddHost(uint64_t base, uint64_t bytes, int device) {
  auto allocation = std::make_unique<Allocation>();
  allocation->base = base;
  allocation->bytes = bytes;
  allocation->device = device;
  allocation->kind = MemoryKind::kHost;
  allocation->id = next_id_++;
  allocations_[base] = std::move(allocation);
}

void DeviceMemory::Free(Allocation* allocation) {
  if (allocation->kind == MemoryKind::kHost) {
    allocations_.erase(allocation->base);
    return;
  }
  allocation->freed = true;
  allocation->history = AccessHistory();
  used_[static_cast<size_t>(allocation->device)] -= allocation->bytes;
  madvise(Bytes(allocation->region), allocation->region_bytes, MADV_DONTNEED);
  freed_[allocation->region_bytes].push_back(allocation->base);
}

Allocation* DeviceMemory::Find(uint64_t address) {
  auto it = allocations_.upper_bound(address);
  if (it == allocations_.begin()) return nullptr;
  --it;
  Allocation* allocation = it->second.get();
  // A zero-sized access at the end belongs to the allocation that ends there.
  if (address > allocation->base + allocation->bytes) return nullptr;
  return allocation;
}

}  // namespace meshift::fake
