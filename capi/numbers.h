// Converts between the numbers of meshift/c.h and C++ enums. Internal to capi.
//
//   NumberOf(DType::kBF16);                      // MESHIFT_DTYPE_BF16
//   DTypeOf("dtype", MESHIFT_DTYPE_BF16);        // DType::kBF16, or INVALID_ARGUMENT
#ifndef MESHIFT_CAPI_NUMBERS_H_
#define MESHIFT_CAPI_NUMBERS_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "comm/program/program.h"
#include "meshift/c.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"
#include "meshift/plan.h"

namespace meshift::capi {

// The enums count from 0, the numbers from 1; 0 means none. This holds for the enums that
// numbers.cc compares. Do not use NumberOf for codes and reduction orders: their numbers are equal
// on both sides.
template <typename Enum>
constexpr int32_t NumberOf(Enum value) {
  return static_cast<int32_t>(value) + 1;
}
template <typename Enum>
constexpr int32_t NumberOf(const std::optional<Enum>& value) {
  return value ? NumberOf(*value) : 0;
}

// INVALID_ARGUMENT, with `name`, the argument's name: `number` is not a dtype.
absl::StatusOr<DType> DTypeOf(std::string_view name, meshift_dtype number);
// The same, but 0 gives nullopt.
absl::StatusOr<std::optional<DType>> OptionalDTypeOf(std::string_view name, meshift_dtype number);

}  // namespace meshift::capi

#endif  // MESHIFT_CAPI_NUMBERS_H_
