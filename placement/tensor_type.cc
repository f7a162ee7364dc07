// TensorType of meshift/sharding.h: its limits, parser and text, "bf16[8192,8192]".
#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "base/checked_math.h"
#include "base/status.h"
#include "meshift/sharding.h"
#include "meshift/status.h"
#include "placement/scanner.h"

namespace meshift {

absl::StatusOr<TensorType> TensorType::Create(DType dtype, Shape shape) {
  TensorType type{dtype, std::move(shape)};
  const Shape& sizes = type.shape;
  if (sizes.size() > kMaxTensorRank) {
    return InvalidArgument("{} has {} dims; at most {} are allowed", type.ToString(), sizes.size(),
                           kMaxTensorRank);
  }
  int64_t elements = 1;
  for (const int64_t size : sizes) {
    if (size < 0) return InvalidArgument("{}: size {} is negative", type.ToString(), size);
    if (!CheckedMul(elements, std::max<int64_t>(size, 1), &elements)) {
      return InvalidArgument("{} has more than 2^63 - 1 elements", type.ToString());
    }
  }
  // Elements of less than a byte cannot overflow: fewer bytes than elements.
  int64_t bytes = 0;
  if (!CheckedMul(elements, std::max(BitWidth(dtype) / 8, 1), &bytes)) {
    return InvalidArgument("{} has more than 2^63 - 1 bytes", type.ToString());
  }
  return type;
}

absl::StatusOr<TensorType> TensorType::Parse(std::string_view text) {
  Scanner scanner(text);
  MESHIFT_ASSIGN_OR_RETURN(const DType dtype, ParseDType(scanner.TakeName()));
  MESHIFT_RETURN_IF_ERROR(scanner.Expect("["));
  Shape shape;
  if (!scanner.Take("]")) {
    do {
      MESHIFT_ASSIGN_OR_RETURN(const int64_t size, scanner.ExpectInt());
      shape.push_back(size);
    } while (scanner.Take(","));
    MESHIFT_RETURN_IF_ERROR(scanner.Expect("]"));
  }
  MESHIFT_RETURN_IF_ERROR(scanner.ExpectEnd());
  return Create(dtype, std::move(shape));
}

std::string TensorType::ToString() const {
  // Usually at most one allocation: every plan prints its tensor.
  std::array<char, 20> digits;
  std::string text;
  text.reserve(8 + shape.size() * 8);
  text.append(Name(dtype)).push_back('[');
  for (size_t k = 0; k < shape.size(); ++k) {
    if (k > 0) text.push_back(',');
    text.append(digits.data(),
                std::to_chars(digits.data(), digits.data() + digits.size(), shape[k]).ptr);
  }
  text.push_back(']');
  return text;
}

}  // namespace meshift
