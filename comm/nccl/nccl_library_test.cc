// What loading NCCL says where it is missing, is something else, or is too old.
#include "comm/nccl/nccl_library.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "absl/status/status.h"
#include "base/status.h"

namespace meshift {
namespace {

class NcclLibraryTest : public testing::Test {
 protected:
  void TearDown() override { unsetenv("MESHIFT_NCCL_LIBRARY"); }
};

TEST_F(NcclLibraryTest, NoLibrary) {
  const auto nccl = NcclLibrary::Load("/nowhere/libnccl.so.2");
  EXPECT_EQ(nccl.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Message(nccl.status())
                .rfind("no NCCL library /nowhere/libnccl.so.2 (MESHIFT_NCCL_LIBRARY names another "
                       "file): ",
                       0),
            0U)
      << nccl.status();
}

TEST_F(NcclLibraryTest, TheEnvironmentNamesIt) {
  setenv("MESHIFT_NCCL_LIBRARY", "/nowhere/else.so", 1);
  EXPECT_NE(Message(NcclLibrary::Load().status()).find("/nowhere/else.so"), std::string::npos);
  // An option says more.
  EXPECT_NE(Message(NcclLibrary::Load("/nowhere/first.so").status()).find("/nowhere/first.so"),
            std::string::npos);
}

TEST_F(NcclLibraryTest, NoSuchFunction) {
  EXPECT_EQ(NcclLibrary::Load("libm.so.6").status().ToString(),
            "FAILED_PRECONDITION: the NCCL library libm.so.6 has no function ncclGetVersion");
}

TEST_F(NcclLibraryTest, TooOld) {
  const char* path = "comm/nccl/libold_nccl.so";
  EXPECT_EQ(NcclLibrary::Load(path).status().ToString(),
            "FAILED_PRECONDITION: the NCCL library comm/nccl/libold_nccl.so is of version 2.18.5; "
            "2.28.0 or newer is needed");
}

TEST_F(NcclLibraryTest, Versions) {
  EXPECT_EQ(NcclVersionText(22809), "2.28.9");
  EXPECT_EQ(NcclVersionText(2708), "2.7.8");
}

}  // namespace
}  // namespace meshift
