// Counts what a thread allocates on the heap. For tests: linking it replaces operator new.
//
//   const int64_t before = NumAllocations();
//   ...
//   EXPECT_EQ(NumAllocations(), before);
#ifndef MESHIFT_TESTING_ALLOCATION_COUNT_H_
#define MESHIFT_TESTING_ALLOCATION_COUNT_H_

#include <cstdint>

namespace meshift {

// By operator new, on the calling thread, since it began.
int64_t NumAllocations();
// Their bytes, as they were asked for: also of what is free again.
int64_t AllocatedBytes();

}  // namespace meshift

#endif  // MESHIFT_TESTING_ALLOCATION_COUNT_H_
