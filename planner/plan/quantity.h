// Writes bytes and times as exact text with a unit, and reads such text.
//
//   ExactBytesText(1572864);                 // "1.5 MiB"
//   ParseBytes("1.5 MiB").value();           // 1572864; "1.5MiB" and "1572864" give the same
//
// Nothing is rounded: a value that needs more than two decimals in a unit (nine for times) gets a
// smaller unit. Bytes are whole, times whole nanoseconds. The parsers accept at most 24 digits, and
// at most 12 decimals unless all are 0. Pure functions; safe for concurrent use.
#ifndef MESHIFT_PLANNER_PLAN_QUANTITY_H_
#define MESHIFT_PLANNER_PLAN_QUANTITY_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace meshift {

struct Unit {
  std::string_view name;
  int64_t size;  // in bytes, or in ns
};
// The largest unit comes first.
inline constexpr std::array<Unit, 7> kBytes = {{{"EiB", int64_t{1} << 60},
                                                {"PiB", int64_t{1} << 50},
                                                {"TiB", int64_t{1} << 40},
                                                {"GiB", int64_t{1} << 30},
                                                {"MiB", int64_t{1} << 20},
                                                {"KiB", int64_t{1} << 10},
                                                {"B", 1}}};
inline constexpr std::array<Unit, 4> kTimes = {
    {{"s", 1'000'000'000}, {"ms", 1'000'000}, {"us", 1000}, {"ns", 1}}};

// "1.5 MiB", "8178893 B"; "24.997 us".
std::string ExactBytesText(int64_t bytes);
std::string ExactTimeText(int64_t ns);

// A whole number of bytes, 0 .. 2^63 - 1: digits, optionally with a decimal point, then a unit of
// kBytes or none, after at most one space. INVALID_ARGUMENT names the text.
absl::StatusOr<int64_t> ParseBytes(std::string_view text);

// Takes a number, which may be negative, a space and one of `units` off the front of `text`, up to
// a space, a comma or its end. Returns the value in the last unit, which has size 1. nullopt, with
// `text` unchanged, if `text` does not begin so, or the value is not a whole number of the last
// unit in 64 bits.
std::optional<int64_t> TakeQuantity(absl::Span<const Unit> units, std::string_view* text);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_PLAN_QUANTITY_H_
