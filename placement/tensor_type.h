// A dtype with a global shape: "bf16[8192,8192]"; rank 0 is "f32[]".
//
//   MESHIFT_ASSIGN_OR_RETURN(TensorType type, TensorType::Parse("bf16[8192,8192]"));
//   Bytes(type.dtype, NumElements(type.shape));  // 134217728
#ifndef MESHIFT_PLACEMENT_TENSOR_TYPE_H_
#define MESHIFT_PLACEMENT_TENSOR_TYPE_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "placement/box.h"
#include "meshift/dtype.h"

namespace meshift {

inline constexpr int kMaxTensorRank = 16;

struct TensorType {
  DType dtype = DType::kF32;
  Shape shape;

  // At most kMaxTensorRank dims, each >= 0, at most 2^63 - 1 elements and bytes in all. Both hold
  // without the dims of size 0 too, so that no product of sizes overflows.
  static absl::StatusOr<TensorType> Create(DType dtype, Shape shape);
  // Reads what ToString prints, with spaces wherever one likes.
  static absl::StatusOr<TensorType> Parse(std::string_view text);
  std::string ToString() const;
  friend bool operator==(const TensorType&, const TensorType&) = default;
};

}  // namespace meshift

#endif  // MESHIFT_PLACEMENT_TENSOR_TYPE_H_
