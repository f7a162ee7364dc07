#include "comm/program/packed_plan.h"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/status.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"
#include "meshift/sharding.h"
#include "meshift/status.h"

namespace meshift {
namespace {

absl::StatusOr<Sharding> ShardingOfBytes(const Sharding& sharding) {
  if (sharding.dtype() != DType::kF4E2M1) {
    return InvalidArgument("f4e2m1 cannot become {}", Name(sharding.dtype()));
  }
  TensorType tensor{DType::kU8, sharding.shape()};
  tensor.shape.back() /= 2;
  std::vector<Placement> placements(sharding.placements().begin(), sharding.placements().end());
  for (Placement& placement : placements) {
    const bool halves = placement.IsShard() && placement.IsRagged() &&
                        placement.tensor_dim() + 1 == static_cast<int>(tensor.shape.size());
    if (!halves) continue;
    Placement::Sizes sizes = placement.sizes();
    for (int64_t& size : sizes) size /= 2;
    placement = Placement::RaggedShard(placement.tensor_dim(), std::move(sizes));
  }
  std::vector<Cuts> cuts;
  for (size_t t = 0; t < tensor.shape.size(); ++t) {
    const absl::Span<const int> of = sharding.CutsOf(static_cast<int>(t));
    cuts.emplace_back(of.begin(), of.end());
  }
  return Sharding::Create(sharding.mesh(), std::move(tensor), std::move(placements),
                          std::move(cuts));
}

}  // namespace

absl::StatusOr<Plan> PlanOfBytes(const Plan& plan) {
  PlanFields fields = plan.fields();
  MESHIFT_ASSIGN_OR_RETURN(fields.from, ShardingOfBytes(fields.from));
  MESHIFT_ASSIGN_OR_RETURN(fields.to, ShardingOfBytes(fields.to));
  for (Step& step : fields.steps) {
    MESHIFT_ASSIGN_OR_RETURN(step.after, ShardingOfBytes(step.after));
    if (step.wire_dtype == DType::kF4E2M1) step.wire_dtype = DType::kU8;
  }
  return Plan::FromParts(std::move(fields), plan.fingerprint());
}

absl::StatusOr<Shape> StridesOfBytes(const Shape& shape, const Shape& strides) {
  Shape bytes = strides;
  // Lower() checks the number of strides. A tensor without elements has no bytes to cut.
  if (strides.size() != shape.size() || NumElements(shape) == 0) return bytes;
  for (size_t d = 0; d < shape.size(); ++d) {
    const bool last = d + 1 == shape.size();
    if (shape[d] == 1 || (last ? strides[d] == 1 : strides[d] % 2 == 0)) {
      if (!last) bytes[d] = strides[d] / 2;
      continue;
    }
    return InvalidArgument(
        "stride {} of dim {} would cut a byte of f4e2m1, which holds two elements", strides[d], d);
  }
  return bytes;
}

}  // namespace meshift
