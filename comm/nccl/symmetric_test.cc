// Redistributions on symmetric memory of the NCCL engine, over the stand-in libraries.
#include "meshift/symmetric.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "base/status.h"
#include "comm/nccl/native_reduction.h"
#include "meshift/device_mesh.h"
#include "meshift/engine.h"
#include "meshift/nccl_engine.h"
#include "testing/internal/conformance/symmetric_check.h"
#include "testing/internal/nccl/nccl_threads.h"

namespace meshift {
namespace {

bool IsNative(DType dtype, ReduceOp op) {
  return NativeReductionOf(dtype, {.op = op, .divisor = 2}).has_value();
}

TEST(NcclSymmetricTest, DoesWhatTheOrdinaryCallDoes) {
  const DeviceMesh mesh = DeviceMesh::Parse("a=2,b=2").value();
  for (uint64_t seed = 1; seed <= 2; ++seed) {
    auto ranks = NcclThreads::Create(4, {}, seed);
    ASSERT_TRUE(ranks.ok()) << ranks.status();
    (*ranks)->Run([&](NcclEngine& engine, int64_t) {
      EXPECT_EQ(
          Message(CheckSymmetric(
              &engine, mesh,
              {.cases = 40, .seed = seed, .uneven = false, .rounds = false, .reduces = IsNative})),
          "");
    });
    EXPECT_GE(TheFake()->call_count("symmetric"), 40);
    *ranks = nullptr;
    EXPECT_EQ(TheFake()->call_count("ncclCommWindowRegister"),
              TheFake()->call_count("ncclCommWindowDeregister"));
    EXPECT_EQ(TheFake()->call_count("ncclMemAlloc"), TheFake()->call_count("ncclMemFree"));
    EXPECT_EQ(Violations(), "");
  }
}

TEST(NcclSymmetricTest, MembersThatDifferAreNamed) {
  auto ranks = NcclThreads::Create(2);
  ASSERT_TRUE(ranks.ok()) << ranks.status();
  (*ranks)->Run([&](NcclEngine& engine, int64_t rank) {
    const auto pool =
        SymmetricPool::Create(&engine, engine.world(), {.buffer_bytes = 4096 * (1 + rank)});
    EXPECT_EQ(pool.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_NE(
        Message(pool.status())
            .find("rank 0 asks for 1 buffers of 4096 bytes from number 0 on, and rank 1 for 1 "
                  "buffers of 8192 bytes"),
        std::string::npos)
        << pool.status();
  });
  EXPECT_EQ(Violations(), "");
}

// If one member has no memory, all members get an error, and the engine still works.
TEST(NcclSymmetricTest, AMemberWithoutMemoryIsNamed) {
  auto ranks = NcclThreads::Create(2);
  ASSERT_TRUE(ranks.ok()) << ranks.status();
  TheFake()->fail("ncclMemAlloc", 1, 1);
  (*ranks)->Run([&](NcclEngine& engine, int64_t) {
    const auto pool = SymmetricPool::Create(&engine, engine.world(), {.buffer_bytes = 4096});
    EXPECT_EQ(pool.status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_NE(Message(pool.status()).find("has no symmetric memory: 4096 bytes"), std::string::npos)
        << pool.status();
    const auto again = SymmetricPool::Create(&engine, engine.world(), {.buffer_bytes = 4096});
    EXPECT_TRUE(again.ok()) << again.status();
  });
  *ranks = nullptr;
  EXPECT_EQ(Violations(), "");
}

// Blocks of unequal sizes, and sums that NCCL cannot do, are UNIMPLEMENTED.
TEST(NcclSymmetricTest, SaysWhatItCannot) {
  auto ranks = NcclThreads::Create(2);
  ASSERT_TRUE(ranks.ok()) << ranks.status();
  (*ranks)->Run([&](NcclEngine& engine, int64_t) {
    using Support = Communicator::SymmetricSupport;
    const auto support = [&](SymmetricCall::Kind kind, DType dtype, int64_t second) {
      const std::vector<int64_t> counts = {4, second};
      return engine.world()->SupportOf({.kind = kind, .dtype = dtype, .counts = counts});
    };
    using Kind = SymmetricCall::Kind;
    EXPECT_EQ(support(Kind::kAllGather, DType::kU8, 4), Support::kSameBits);
    EXPECT_EQ(support(Kind::kAllGather, DType::kU8, 5), Support::kNone);
    EXPECT_EQ(support(Kind::kReduceScatter, DType::kI32, 4), Support::kSameBits);
    EXPECT_EQ(support(Kind::kReduceScatter, DType::kF32, 4), Support::kOtherBits);
    EXPECT_EQ(support(Kind::kReduceScatter, DType::kF8E4M3, 4), Support::kNone);
  });
  *ranks = nullptr;
  EXPECT_EQ(Violations(), "");
}

}  // namespace
}  // namespace meshift
