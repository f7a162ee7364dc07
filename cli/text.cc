#include "cli/text.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"

namespace meshift::cli {

std::string BytesText(int64_t bytes) {
  constexpr std::array<const char*, 6> kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  size_t unit = 0;
  int64_t size = 1024;
  // A number that would round up to 1024 of a unit is shown in the next.
  while (unit + 1 < kUnits.size() &&
         static_cast<double>(bytes) / static_cast<double>(size) >= 1023.95) {
    size *= 1024;
    ++unit;
  }
  if (bytes % size == 0) return fmt::format("{} {}", bytes / size, kUnits[unit]);
  return fmt::format("{:.1f} {}", static_cast<double>(bytes) / static_cast<double>(size),
                     kUnits[unit]);
}

std::string TimeText(int64_t ns) {
  const auto value = static_cast<double>(ns);
  if (ns < 1000) return fmt::format("{} ns", ns);
  if (value < 999.95e3) return fmt::format("{:.1f} us", value / 1e3);
  if (value < 999.95e6) return fmt::format("{:.1f} ms", value / 1e6);
  return fmt::format("{:.1f} s", value / 1e9);
}

std::string CountText(int64_t count, const std::string& noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string RanksText(absl::Span<const int64_t> ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (!text.empty()) text += ",";
    text +=
        end - i == 1 ? fmt::format("{}", ranks[i]) : fmt::format("{}-{}", ranks[i], ranks[end - 1]);
    i = end;
  }
  return text;
}

}  // namespace meshift::cli
