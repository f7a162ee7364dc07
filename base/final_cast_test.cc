#include "base/final_cast.h"

#include <gtest/gtest.h>

#include <memory>

namespace meshift {
namespace {

struct Base {
  virtual ~Base() = default;
};
struct Other {
  virtual ~Other() = default;
  int other = 1;
};
struct Plain final : Base {};
// Base is not at its beginning.
struct Joined final : Other, Base {
  int joined = 2;
};

// Not inlined: the compiler is not to know which it is.
[[gnu::noinline]] std::unique_ptr<Base> Make(bool joined) {
  if (joined) return std::make_unique<Joined>();
  return std::make_unique<Plain>();
}

TEST(FinalCastTest, TellsClassesApart) {
  const std::unique_ptr<Base> plain = Make(/*joined=*/false);
  const std::unique_ptr<Base> joined = Make(/*joined=*/true);
  EXPECT_EQ(FinalCast<Plain>(plain.get()), dynamic_cast<Plain*>(plain.get()));
  EXPECT_NE(FinalCast<Plain>(plain.get()), nullptr);
  EXPECT_EQ(FinalCast<Joined>(plain.get()), nullptr);
  EXPECT_EQ(FinalCast<Plain>(joined.get()), nullptr);
  ASSERT_NE(FinalCast<Joined>(joined.get()), nullptr);
  EXPECT_EQ(FinalCast<Joined>(joined.get())->joined, 2);
  EXPECT_EQ(FinalCast<Plain>(static_cast<Base*>(nullptr)), nullptr);
}

TEST(FinalCastTest, KeepsConst) {
  const std::unique_ptr<const Base> joined = Make(/*joined=*/true);
  EXPECT_EQ(FinalCast<const Joined>(joined.get())->joined, 2);
  EXPECT_EQ(FinalCast<const Plain>(joined.get()), nullptr);
}

}  // namespace
}  // namespace meshift
