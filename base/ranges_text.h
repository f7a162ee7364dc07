// Writes a list of numbers, such as ranks, as text, with consecutive numbers as ranges.
//
//   RangesText({0, 1, 2, 7});   // "0-2,7"; of an empty list ""
#ifndef MESHIFT_BASE_RANGES_TEXT_H_
#define MESHIFT_BASE_RANGES_TEXT_H_

#include <cstdint>
#include <string>

#include "absl/types/span.h"

namespace meshift {

// Keeps the given order; each run of two or more consecutive ascending numbers becomes a range.
// REQUIRES: numbers from 0 to INT64_MAX - 1.
std::string RangesText(absl::Span<const int64_t> numbers);

}  // namespace meshift

#endif  // MESHIFT_BASE_RANGES_TEXT_H_
