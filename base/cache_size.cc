#include "base/cache_size.h"

#include <fstream>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "base/checked_math.h"

namespace meshift {
namespace {

std::string FirstWord(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

// Parses "491520K"; 0 if the text is not a size.
int64_t ParseSize(absl::string_view text) {
  int64_t unit = 1;
  if (absl::ConsumeSuffix(&text, "K")) {
    unit = int64_t{1} << 10;
  } else if (absl::ConsumeSuffix(&text, "M")) {
    unit = int64_t{1} << 20;
  }
  int64_t size = 0;
  if (!absl::SimpleAtoi(text, &size) || size < 0) return 0;
  return SaturatingMul(size, unit);
}

}  // namespace

int64_t LastLevelCacheBytes(const std::string& root) {
  int64_t bytes = 0;
  int highest = 0;
  for (int i = 0;; ++i) {
    const std::string cache = root + "/index" + std::to_string(i);
    int level = 0;
    if (!absl::SimpleAtoi(FirstWord(cache + "/level"), &level)) return bytes;
    if (level <= highest) continue;
    highest = level;
    bytes = ParseSize(FirstWord(cache + "/size"));
  }
}

}  // namespace meshift
