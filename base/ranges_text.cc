#include "base/ranges_text.h"

#include <fmt/format.h>

#include <cstddef>

namespace meshift {

std::string RangesText(absl::Span<const int64_t> numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    if (!text.empty()) text += ',';
    text += fmt::format("{}", numbers[i]);
    if (end - i > 1) text += fmt::format("-{}", numbers[end - 1]);
    i = end;
  }
  return text;
}

}  // namespace meshift
