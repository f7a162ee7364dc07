#include "planner/plan/quantity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string>

#include "base/status.h"

namespace meshift {
namespace {

// `value` in the largest unit that is not above it and in which it has at most `decimals` decimals;
// 0 in the last unit.
std::string QuantityText(int64_t value, absl::Span<const Unit> units, int decimals) {
  const std::string_view sign = value < 0 ? "-" : "";
  const uint64_t magnitude = value < 0 ? -static_cast<uint64_t>(value) : value;
  for (const Unit& unit : units) {
    const auto size = static_cast<uint64_t>(unit.size);
    if (magnitude < size && size > 1) continue;
    std::string digits;
    unsigned __int128 rest = magnitude % size;
    while (rest != 0 && static_cast<int>(digits.size()) < decimals) {
      rest *= 10;
      digits += static_cast<char>('0' + static_cast<int>(rest / size));
      rest %= size;
    }
    if (rest != 0) continue;
    return fmt::format("{}{}{}{} {}", sign, magnitude / size, digits.empty() ? "" : ".", digits,
                       unit.name);
  }
  return fmt::format("{} {}", value, units[units.size() - 1].name);
}

// Takes a decimal number off the front of `text`: `digits` / `scale`, where scale is a power of
// ten.
bool TakeDecimal(std::string_view* text, unsigned __int128* digits, unsigned __int128* scale) {
  int count = 0;
  bool point = false;
  *digits = 0;
  *scale = 1;
  while (!text->empty() && (std::isdigit(static_cast<unsigned char>((*text)[0])) != 0 ||
                            (!point && count > 0 && (*text)[0] == '.'))) {
    if ((*text)[0] == '.') {
      point = true;
    } else {
      if (++count > 24) return false;
      *digits = *digits * 10 + static_cast<unsigned>((*text)[0] - '0');
      if (point) *scale *= 10;
    }
    text->remove_prefix(1);
  }
  return count > 0;
}

// digits / scale of `unit`, in the smallest unit. nullopt if it is above `limit` or not a whole
// number, or if it has more than 12 decimals in `unit`, not all 0.
std::optional<unsigned __int128> InLastUnit(unsigned __int128 digits, unsigned __int128 scale,
                                            const Unit& unit, unsigned __int128 limit) {
  // The whole part and the fraction apart, so that nothing overflows: 24 digits times 2^60 would.
  const auto size = static_cast<unsigned __int128>(unit.size);
  const unsigned __int128 whole = digits / scale;
  const unsigned __int128 fraction = digits % scale;
  if (whole > limit / size) return std::nullopt;
  unsigned __int128 value = whole * size;
  if (fraction != 0) {
    if (scale > static_cast<unsigned __int128>(1'000'000'000'000)) return std::nullopt;
    if (fraction * size % scale != 0) return std::nullopt;
    value += fraction * size / scale;
  }
  if (value > limit) return std::nullopt;
  return value;
}

}  // namespace

std::string ExactBytesText(int64_t bytes) { return QuantityText(bytes, kBytes, 2); }
std::string ExactTimeText(int64_t ns) { return QuantityText(ns, kTimes, 9); }

std::optional<int64_t> TakeQuantity(absl::Span<const Unit> units, std::string_view* text) {
  std::string_view rest = *text;
  const bool negative = !rest.empty() && rest[0] == '-';
  if (negative) rest.remove_prefix(1);
  unsigned __int128 digits = 0;
  unsigned __int128 scale = 1;
  if (!TakeDecimal(&rest, &digits, &scale) || rest.empty() || rest[0] != ' ') return std::nullopt;
  rest.remove_prefix(1);
  const std::string_view name = rest.substr(0, std::min(rest.find_first_of(" ,"), rest.size()));
  for (const Unit& unit : units) {
    if (unit.name != name) continue;
    const unsigned __int128 limit = (static_cast<unsigned __int128>(1) << 63) - (negative ? 0 : 1);
    const std::optional<unsigned __int128> value = InLastUnit(digits, scale, unit, limit);
    if (!value) return std::nullopt;
    rest.remove_prefix(name.size());
    *text = rest;
    return negative ? static_cast<int64_t>(-static_cast<uint64_t>(*value))
                    : static_cast<int64_t>(*value);
  }
  return std::nullopt;
}

absl::StatusOr<int64_t> ParseBytes(std::string_view text) {
  const size_t end = std::min(text.find_first_not_of("0123456789."), text.size());
  std::string_view unit = text.substr(end);
  if (!unit.empty() && unit[0] == ' ') unit.remove_prefix(1);
  const std::string whole =
      fmt::format("{} {}", text.substr(0, end), end == text.size() ? "B" : unit);
  std::string_view rest = whole;
  const std::optional<int64_t> value = TakeQuantity(kBytes, &rest);
  if (value && rest.empty()) return *value;
  return InvalidArgument("'{}' is not a number of bytes below 2^63, such as 4096 or 1.5 GiB", text);
}

}  // namespace meshift
