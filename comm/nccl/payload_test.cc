// Payloads and their scales (testing/payload_check.h) on the NCCL engine over the stand-in
// libraries: ranks are threads.
#include <gtest/gtest.h>

#include "base/status.h"
#include "meshift/nccl_engine.h"
#include "testing/internal/nccl/nccl_threads.h"
#include "testing/payload_check.h"

namespace meshift {
namespace {

TEST(NcclPayloadTest, ScalesGoWithTheirPayload) {
  auto ranks = NcclThreads::Create(4, {}, /*seed=*/1);
  ASSERT_TRUE(ranks.ok()) << ranks.status();
  (*ranks)->Run(
      [](NcclEngine& engine, int64_t) { EXPECT_EQ(Message(testkit::CheckPayloads(&engine)), ""); });
  *ranks = nullptr;
  EXPECT_EQ(TheFake()->record_leaks(), 0);
  EXPECT_EQ(Violations(), "");
}

}  // namespace
}  // namespace meshift
