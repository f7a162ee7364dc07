// A process with two copies of NCCL: a copy of the stand-in under another name, loaded as well.
#include "comm/nccl/library_copies.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/status.h"
#include "comm/nccl/nccl_library.h"
#include "meshift/nccl_engine.h"

namespace meshift {
namespace {

// A log names the library's version, its file, and the plugins that are loaded.
TEST(LibraryCopiesTest, TheLibraryIsDescribedWithItsPlugins) {
  const auto nccl = NcclLibrary::Load().value();
  const std::string own = FileOf(reinterpret_cast<const void*>(nccl->GetVersion));
  const std::string without = "NCCL " + nccl->VersionText() + " of " + own + ", plugins: ";
  EXPECT_EQ(DescribeNccl(*nccl), without + "none");
  const std::string plugin = std::string(std::getenv("TEST_TMPDIR")) + "/libnccl-tuner-x.so";
  std::filesystem::copy_file(own, plugin);
  void* const loaded = dlopen(plugin.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(loaded, nullptr) << dlerror();
  EXPECT_EQ(DescribeNccl(*nccl), without + plugin);
  dlclose(loaded);
}

TEST(LibraryCopiesTest, ASecondCopyIsNamed) {
  const auto nccl = NcclLibrary::Load().value();
  const std::string own = FileOf(reinterpret_cast<const void*>(nccl->GetVersion));
  EXPECT_NE(own.find("libfake_nccl.so"), std::string::npos) << own;
  EXPECT_EQ(Message(CheckOneCopy(*nccl, nullptr)), "");
  EXPECT_EQ(Message(CheckOneCopy(*nccl, reinterpret_cast<const void*>(nccl->AllReduce))), "");

  const std::string copy = std::string(std::getenv("TEST_TMPDIR")) + "/libnccl.so.2";
  std::filesystem::copy_file(own, copy);
  void* const library = dlopen(copy.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  EXPECT_EQ(CheckOneCopy(*nccl, nullptr).ToString(),
            "FAILED_PRECONDITION: the process has two copies of NCCL, " + own + " and " + copy +
                ": the engine has loaded the first, and does not know which one made the lent "
                "communicator; set NcclLent::function");
  // Who says which one has made it is believed.
  EXPECT_EQ(Message(CheckOneCopy(*nccl, reinterpret_cast<const void*>(nccl->AllReduce))), "");
  int communicator = 0;  // never looked at
  EXPECT_EQ(NcclEngine::FromLent(
                {.communicator = &communicator, .function = dlsym(library, "ncclAllReduce")})
                .status()
                .ToString(),
            "FAILED_PRECONDITION: the lent communicator comes from the NCCL in " + copy +
                ", and the engine has loaded another copy, " + own +
                "; set NcclOptions::nccl_library to the first");
  EXPECT_EQ(CheckOneCopy(*nccl, &communicator).code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace meshift
