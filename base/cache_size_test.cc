#include "base/cache_size.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace meshift {
namespace {

namespace fs = std::filesystem;

class CacheSizeTest : public testing::Test {
 protected:
  CacheSizeTest() { fs::remove_all(root_); }
  void Add(int index, const std::string& level, const std::string& size) {
    const fs::path cache = root_ / ("index" + std::to_string(index));
    fs::create_directories(cache);
    std::ofstream(cache / "level") << level << "\n";
    std::ofstream(cache / "size") << size << "\n";
  }
  int64_t Bytes() const { return LastLevelCacheBytes(root_.string()); }

 private:
  const fs::path root_ = fs::path(testing::TempDir()) / "cache";
};

TEST_F(CacheSizeTest, IsThatOfTheHighestLevel) {
  Add(0, "1", "48K");
  Add(1, "1", "64K");
  Add(2, "3", "491520K");
  Add(3, "2", "2M");
  EXPECT_EQ(Bytes(), int64_t{480} << 20);
}

TEST_F(CacheSizeTest, SizesHaveUnits) {
  Add(0, "1", "512");
  EXPECT_EQ(Bytes(), 512);
  Add(1, "2", "3M");
  EXPECT_EQ(Bytes(), int64_t{3} << 20);
  Add(2, "3", "9223372036854775807K");
  EXPECT_EQ(Bytes(), INT64_MAX);
}

TEST_F(CacheSizeTest, IsNothingWhereTheSystemDoesNotSay) {
  EXPECT_EQ(Bytes(), 0);
  Add(0, "1", "");
  EXPECT_EQ(Bytes(), 0);
  Add(1, "2", "large");
  EXPECT_EQ(Bytes(), 0);
  Add(2, "3", "-4K");
  EXPECT_EQ(Bytes(), 0);
}

TEST(CacheSize, OfThisMachineIsFoundWhereItSays) {
  const fs::path cache = "/sys/devices/system/cpu/cpu0/cache/index0";
  if (!fs::exists(cache / "level") || !fs::exists(cache / "size")) {
    GTEST_SKIP() << "this system does not say";
  }
  EXPECT_GT(LastLevelCacheBytes(), 0);
}

}  // namespace
}  // namespace meshift
