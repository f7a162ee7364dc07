// If a launcher makes only one device visible to each rank, the engine uses that one, whatever the
// rank's number on the host.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/control/socket.h"
#include "meshift/bootstrap.h"
#include "meshift/nccl_engine.h"
#include "testing/internal/nccl/nccl_threads.h"

namespace meshift {
namespace {

// A job of one rank whose LOCAL_RANK is 3.
absl::StatusOr<std::unique_ptr<Bootstrap>> FourthOfItsHost() {
  const std::string port = std::to_string(Listening::Open(0)->port());
  return Bootstrap::FromTorchrun(Bootstrap::kDefaultTimeout, [port](const char* name) {
    const std::string variable = name;
    if (variable == "RANK") return "0";
    if (variable == "WORLD_SIZE") return "1";
    if (variable == "LOCAL_RANK") return "3";
    if (variable == "MASTER_ADDR") return "127.0.0.1";
    return variable == "MASTER_PORT" ? port.c_str() : nullptr;
  });
}

TEST(OneDeviceTest, TheOnlyDeviceIsTheRanks) {
  ASSERT_NE(TheFake(), nullptr);
  const auto bootstrap = FourthOfItsHost();
  ASSERT_TRUE(bootstrap.ok()) << bootstrap.status();
  const auto engine = NcclEngine::Create(bootstrap->get());
  ASSERT_TRUE(engine.ok()) << engine.status();
  EXPECT_EQ((*engine)->device(), 0);
  NcclOptions third;
  third.device = 3;
  EXPECT_EQ(NcclEngine::Create(bootstrap->get(), third).status().ToString(),
            "INVALID_ARGUMENT: CUDA device 3 is not one of the 1 that this process sees");
}

}  // namespace
}  // namespace meshift
