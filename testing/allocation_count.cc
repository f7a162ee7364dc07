#include "testing/allocation_count.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

thread_local int64_t num_allocations = 0;
thread_local int64_t allocated_bytes = 0;

void* Allocate(size_t size) noexcept {
  ++num_allocations;
  allocated_bytes += static_cast<int64_t>(size);
  return std::malloc(std::max<size_t>(size, 1));
}

void* Allocate(size_t size, std::align_val_t alignment) noexcept {
  ++num_allocations;
  allocated_bytes += static_cast<int64_t>(size);
  // The size is a multiple of the alignment, as C11 asks.
  const size_t align = std::max(static_cast<size_t>(alignment), sizeof(void*));
  return std::aligned_alloc(align, (std::max<size_t>(size, 1) + align - 1) / align * align);
}

void* OrThrow(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// All forms are replaced, since memory from one form may be freed by another: std::stable_sort
// allocates with the nothrow form, for example. By the standard the array forms call these, but a
// sanitizer would put its own in their place.
using Align = std::align_val_t;
using NoThrow = std::nothrow_t;

void* operator new(size_t size) { return OrThrow(Allocate(size)); }
void* operator new[](size_t size) { return OrThrow(Allocate(size)); }
void* operator new(size_t size, const NoThrow&) noexcept { return Allocate(size); }
void* operator new[](size_t size, const NoThrow&) noexcept { return Allocate(size); }
void* operator new(size_t size, Align align) { return OrThrow(Allocate(size, align)); }
void* operator new[](size_t size, Align align) { return OrThrow(Allocate(size, align)); }
void* operator new(size_t size, Align align, const NoThrow&) noexcept {
  return Allocate(size, align);
}
void* operator new[](size_t size, Align align, const NoThrow&) noexcept {
  return Allocate(size, align);
}

void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, const NoThrow&) noexcept { std::free(memory); }
void operator delete[](void* memory, const NoThrow&) noexcept { std::free(memory); }
void operator delete(void* memory, Align) noexcept { std::free(memory); }
void operator delete[](void* memory, Align) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, Align) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t, Align) noexcept { std::free(memory); }
void operator delete(void* memory, Align, const NoThrow&) noexcept { std::free(memory); }
void operator delete[](void* memory, Align, const NoThrow&) noexcept { std::free(memory); }

namespace meshift {

int64_t NumAllocations() { return num_allocations; }
int64_t AllocatedBytes() { return allocated_bytes; }

}  // namespace meshift
