// Errors of loading NCCL: no library, another library, or a version that is too old.
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
  EXPECT_EQ(
      Message(nccl.status())
          .rfind("cannot load the NCCL library /nowhere/libnccl.so.2 (set MESHIFT_NCCL_LIBRARY "
                 "to load another file): ",
                 0),
      0U)
      << nccl.status();
}

TEST_F(NcclLibraryTest, TheEnvironmentNamesIt) {
  setenv("MESHIFT_NCCL_LIBRARY", "/nowhere/else.so", 1);
  EXPECT_NE(Message(NcclLibrary::Load().status()).find("/nowhere/else.so"), std::string::npos);
  // A given path has precedence over the variable.
  EXPECT_NE(Message(NcclLibrary::Load("/nowhere/first.so").status()).find("/nowhere/first.so"),
            std::string::npos);
}

TEST_F(NcclLibraryTest, NoSuchFunction) {
  EXPECT_EQ(NcclLibrary::Load("libm.so.6").status().ToString(),
            "FAILED_PRECONDITION: the NCCL library libm.so.6 has no function ncclGetVersion");
}

TEST_F(NcclLibraryTest, TooOld) {
  const char* path = "testing/internal/nccl/libold_nccl.so";
  EXPECT_EQ(NcclLibrary::Load(path).status().ToString(),
            "FAILED_PRECONDITION: the NCCL library testing/internal/nccl/libold_nccl.so is of "
            "version 2.18.5; "
            "2.28.0 or newer is needed");
}

TEST_F(NcclLibraryTest, ResultsHaveCodes) {
  const auto nccl = NcclLibrary::Load("testing/fake_gpu/libfake_nccl.so");
  ASSERT_TRUE(nccl.ok()) << nccl.status();
  const auto code = [&](int result) {
    const absl::Status status = (*nccl)->Check(static_cast<ncclResult_t>(result), "ncclAllReduce");
    EXPECT_EQ(Message(status).rfind("ncclAllReduce: ", 0), status.ok() ? std::string::npos : 0U);
    return status.code();
  };
  EXPECT_EQ(code(ncclSuccess), absl::StatusCode::kOk);
  EXPECT_EQ(code(ncclInProgress), absl::StatusCode::kOk);
  EXPECT_EQ(code(ncclInvalidArgument), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(ncclInvalidUsage), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(code(ncclSystemError), absl::StatusCode::kUnavailable);
  EXPECT_EQ(code(ncclRemoteError), absl::StatusCode::kUnavailable);
  EXPECT_EQ(code(ncclInternalError), absl::StatusCode::kInternal);
  EXPECT_EQ(code(8), absl::StatusCode::kDeadlineExceeded);  // ncclTimeout, since 2.30
}

TEST_F(NcclLibraryTest, Versions) {
  EXPECT_EQ(NcclVersionText(22809), "2.28.9");
  EXPECT_EQ(NcclVersionText(2708), "2.7.8");
}

}  // namespace
}  // namespace meshift
