#include "placement/op_table.h"

#include <string_view>

#include "absl/status/status.h"
#include "base/status.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"

namespace meshift {
namespace {

// The reason why `op` of `dtype` is refused; empty if it is allowed.
std::string_view Refusal(ReduceOp op, DType dtype) {
  if (dtype == DType::kF4E2M1) return "f4e2m1 is a storage format and cannot be reduced";
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
    case ReduceOp::kProduct:
      if (dtype == DType::kBool) return "bool allows only 'and', 'or', 'xor', 'min' and 'max'";
      break;
    case ReduceOp::kMin:
    case ReduceOp::kMax:
      if (IsComplex(dtype)) return "complex numbers have no order";
      break;
    case ReduceOp::kAnd:
    case ReduceOp::kOr:
    case ReduceOp::kXor:
      if (IsFloat(dtype) || IsComplex(dtype)) return "'and', 'or' and 'xor' need bool or integers";
      break;
  }
  return "";
}

}  // namespace

absl::Status CheckReduce(ReduceOp op, DType dtype) {
  const std::string_view refusal = Refusal(op, dtype);
  if (refusal.empty()) return absl::OkStatus();
  return InvalidArgument("{} of {} is refused: {}", Name(op), Name(dtype), refusal);
}

}  // namespace meshift
