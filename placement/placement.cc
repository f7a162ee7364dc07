#include "meshift/placement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/status.h"
#include "meshift/dtype.h"

namespace meshift {
namespace {

// In the order of the enum.
constexpr std::array<std::string_view, kNumReduceOps> kOpNames = {
    "sum", "avg", "min", "max", "product", "and", "or", "xor",
};

}  // namespace

std::string_view Name(ReduceOp op) { return kOpNames[static_cast<size_t>(op)]; }

absl::StatusOr<ReduceOp> ParseReduceOp(std::string_view name) {
  for (size_t i = 0; i < kOpNames.size(); ++i) {
    if (kOpNames[i] == name) return static_cast<ReduceOp>(i);
  }
  return InvalidArgument(
      "unknown reduce op '{}'; expected one of: sum, avg, min, max, product, and, or, xor", name);
}

bool IsExact(ReduceOp op, DType dtype) {
  switch (op) {
    case ReduceOp::kMin:
    case ReduceOp::kMax:
    case ReduceOp::kAnd:
    case ReduceOp::kOr:
    case ReduceOp::kXor:
      return true;
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
    case ReduceOp::kProduct:
      break;
  }
  return IsInteger(dtype) || dtype == DType::kBool;
}

std::string Placement::ToString() const {
  std::string text;
  AppendTo(&text);
  return text;
}

// Must be fast: plans print many placements.
void Placement::AppendTo(std::string* text) const {
  switch (kind_) {
    case Kind::kReplicate:
      *text += 'R';
      return;
    case Kind::kPartial:
      *text += 'P';
      if (op_ != ReduceOp::kSum) text->append("(").append(Name(op_)).append(")");
      return;
    case Kind::kAt:
      fmt::format_to(std::back_inserter(*text), "At({})",
                     fmt::join(sizes_.begin(), sizes_.end(), ","));
      return;
    case Kind::kShard:
      break;
  }
  if (tensor_dim_ >= 0 && tensor_dim_ < 10) {
    const std::array<char, 4> shard = {'S', '(', static_cast<char>('0' + tensor_dim_), ')'};
    text->append(shard.data(), shard.size());
  } else {
    *text += "S(" + std::to_string(tensor_dim_) + ")";
  }
  if (IsRagged()) {
    fmt::format_to(std::back_inserter(*text), "{{{}}}",
                   fmt::join(sizes_.begin(), sizes_.end(), ","));
  }
}

}  // namespace meshift
