#include "comm/engine/host_memory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>

#include "absl/status/statusor.h"

namespace meshift {
namespace {

TEST(HostMemoryTest, IsAlignedAndNeverNull) {
  for (const int64_t bytes : {0, 1, 63, 64, 65, 1 << 20}) {
    const absl::StatusOr<HostMemory> memory = AllocateHost(bytes, 0);
    ASSERT_TRUE(memory.ok()) << memory.status();
    ASSERT_NE(memory->get(), nullptr) << bytes;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory->get()) % 64, 0U) << bytes;
    std::memset(memory->get(), 7, bytes);
  }
}

TEST(HostMemoryTest, MuchMemoryBeginsWithAHugePage) {
  for (const int64_t bytes : {512 << 10, (2 << 20) + 1, 5 << 20}) {
    const HostMemory memory = TryAllocateHost(bytes);
    ASSERT_NE(memory, nullptr) << bytes;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.get()) % (2 << 20), 0U) << bytes;
    std::memset(memory.get(), 7, bytes);
  }
  EXPECT_EQ(TryAllocateHost(std::numeric_limits<int64_t>::max()), nullptr);
}

TEST(HostMemoryTest, Refusals) {
  EXPECT_EQ(AllocateHost(-1, 0).status().ToString(),
            "INVALID_ARGUMENT: cannot allocate -1 bytes; expected at least 0");
  EXPECT_EQ(AllocateHost(std::numeric_limits<int64_t>::max(), 3).status().ToString(),
            "RESOURCE_EXHAUSTED: rank 3 cannot allocate 9223372036854775807 bytes");
}

}  // namespace
}  // namespace meshift
