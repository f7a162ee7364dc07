// Counts the heap allocations of a thread. For tests only: linking it replaces operator new.
//
//   const int64_t before = NumAllocations();
//   ...
//   EXPECT_EQ(NumAllocations(), before);
#ifndef MESHIFT_TESTING_ALLOCATION_COUNT_H_
#define MESHIFT_TESTING_ALLOCATION_COUNT_H_

#include <cstdint>

namespace meshift {

// The number of allocations by operator new on the calling thread since the thread began.
int64_t NumAllocations();
// The sum of their requested bytes. Freed memory stays counted.
int64_t AllocatedBytes();

}  // namespace meshift

#endif  // MESHIFT_TESTING_ALLOCATION_COUNT_H_
