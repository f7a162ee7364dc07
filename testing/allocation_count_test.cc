#include "testing/allocation_count.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <thread>

namespace meshift {
namespace {

// Memory allocated with `alignment` is aligned and counted once. Under ASan this also checks that
// each form of delete fits its form of new.
template <typename New, typename Delete>
void ExpectCounted(size_t alignment, const New& allocate, const Delete& free) {
  const int64_t before = NumAllocations();
  void* const memory = allocate();
  EXPECT_EQ(NumAllocations(), before + 1);
  ASSERT_NE(memory, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % alignment, 0);
  free(memory);
  EXPECT_EQ(NumAllocations(), before + 1);
}

TEST(AllocatedBytes, CountsWhatIsAskedFor) {
  const int64_t before = AllocatedBytes();
  ::operator delete(::operator new(300));
  ::operator delete (::operator new (7, std::align_val_t{256}), std::align_val_t{256});
  EXPECT_EQ(AllocatedBytes(), before + 307);
}

TEST(NumAllocations, CountsEveryFormOfNew) {
  constexpr std::align_val_t kAlign{256};
  for (const size_t size : {0, 1, 300}) {
    ExpectCounted(
        1, [&] { return ::operator new(size); }, [&](void* p) { ::operator delete(p, size); });
    ExpectCounted(
        1, [&] { return ::operator new[](size); }, [&](void* p) { ::operator delete[](p); });
    ExpectCounted(
        1, [&] { return ::operator new(size, std::nothrow); },
        [&](void* p) { ::operator delete(p); });
    ExpectCounted(
        1, [&] { return ::operator new[](size, std::nothrow); },
        [&](void* p) { ::operator delete[](p, std::nothrow); });
    ExpectCounted(
        256, [&] { return ::operator new(size, kAlign); },
        [&](void* p) { ::operator delete(p, size, kAlign); });
    ExpectCounted(
        256, [&] { return ::operator new[](size, kAlign); },
        [&](void* p) { ::operator delete[](p, kAlign); });
    ExpectCounted(
        256, [&] { return ::operator new(size, kAlign, std::nothrow); },
        [&](void* p) { ::operator delete(p, kAlign); });
    ExpectCounted(
        256, [&] { return ::operator new[](size, kAlign, std::nothrow); },
        [&](void* p) { ::operator delete[](p, kAlign, std::nothrow); });
  }
}

TEST(NumAllocations, IsOfTheCallingThread) {
  int64_t of_other = 0;
  std::thread other([&] {
    const int64_t start = NumAllocations();
    ::operator delete(::operator new(8));
    of_other = NumAllocations() - start;
  });
  const int64_t before = NumAllocations();
  other.join();
  EXPECT_EQ(NumAllocations(), before);
  EXPECT_EQ(of_other, 1);
}

}  // namespace
}  // namespace meshift
