#include "comm/engine/shared_library.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"

namespace meshift {
namespace {

constexpr char kVariable[] = "MESHIFT_TEST_LIBRARY";
constexpr SharedLibrary::Source kMath = {
    .what = "maths", .file = "libm.so.6", .variable = kVariable};
constexpr SharedLibrary::Source kAbsent = {.what = "abacus",
                                           .file = "/nowhere/libabacus.so",
                                           .variable = kVariable,
                                           .needs = "beads are needed"};

class SharedLibraryTest : public testing::Test {
 protected:
  void TearDown() override { unsetenv(kVariable); }
  std::string PathOf(const SharedLibrary::Source& source, const std::string& path = "") {
    const absl::StatusOr<SharedLibrary> library = SharedLibrary::Load(source, path);
    return library.ok() ? library->path() : Message(library.status());
  }
};

TEST_F(SharedLibraryTest, FindsFunctions) {
  const absl::StatusOr<SharedLibrary> library = SharedLibrary::Load(kMath);
  ASSERT_TRUE(library.ok()) << library.status();
  double (*floor)(double) = nullptr;
  ASSERT_EQ(Message(library->Find("floor", &floor)), "");
  EXPECT_EQ(floor(2.5), 2.0);
  floor = nullptr;
  library->FindOptional("floor", &floor);
  ASSERT_NE(floor, nullptr);
  EXPECT_EQ(floor(-2.5), -3.0);
}

TEST_F(SharedLibraryTest, NamesTheFunctionThatIsMissing) {
  const absl::StatusOr<SharedLibrary> library = SharedLibrary::Load(kMath);
  ASSERT_TRUE(library.ok()) << library.status();
  const auto never = +[] {};
  void (*function)() = never;
  EXPECT_EQ(library->Find("carry_one", &function).ToString(),
            "FAILED_PRECONDITION: the maths library libm.so.6 has no function carry_one");
  EXPECT_EQ(function, nullptr);
  function = never;
  library->FindOptional("carry_one", &function);
  EXPECT_EQ(function, nullptr);
}

TEST_F(SharedLibraryTest, NamesTheLibraryThatIsMissing) {
  const absl::Status status = SharedLibrary::Load(kAbsent).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Message(status).rfind(
                "cannot load the abacus library /nowhere/libabacus.so (beads are needed; "
                "set MESHIFT_TEST_LIBRARY to load another file): ",
                0),
            0U)
      << status;
  EXPECT_NE(Message(status).find("No such file"), std::string::npos) << status;
}

TEST_F(SharedLibraryTest, APathGoesBeforeTheVariableAndThatBeforeTheFile) {
  EXPECT_EQ(PathOf(kMath), "libm.so.6");
  ASSERT_EQ(setenv(kVariable, "", 1), 0);
  EXPECT_EQ(PathOf(kMath), "libm.so.6");
  ASSERT_EQ(setenv(kVariable, "libc.so.6", 1), 0);
  EXPECT_EQ(PathOf(kMath), "libc.so.6");
  EXPECT_EQ(PathOf(kMath, "libm.so.6"), "libm.so.6");
}

}  // namespace
}  // namespace meshift
