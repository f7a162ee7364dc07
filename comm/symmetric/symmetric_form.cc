#include "comm/symmetric/symmetric_form.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "comm/program/step_geometry.h"
#include "meshift/device_mesh.h"
#include "meshift/sharding.h"
#include "placement/op_table.h"

namespace meshift {
namespace {

using lowering_internal::Members;
using Kind = SymmetricCall::Kind;

SymmetricForm Miss(SymmetricMiss miss) {
  SymmetricForm form;
  form.miss = miss;
  return form;
}

// Whether `parts` are contiguous pieces of `whole` that follow each other and cover it.
bool Fill(const Box& whole, const std::vector<Box>& parts) {
  int64_t end = 0;
  for (const Box& part : parts) {
    if (part.IsEmpty()) continue;
    if (!Contains(whole, part) || !IsContiguousIn(part, whole) || OffsetIn(part, whole) != end) {
      return false;
    }
    end += part.NumElements();
  }
  return end == whole.NumElements();
}

// Whether exactly one group of the step computes each value.
bool IsSingleSourced(const Plan& plan, const Step& step) {
  const DeviceMesh& mesh = plan.from().mesh();
  for (int d = 0; d < mesh.NumDims(); ++d) {
    if (mesh.dim(d).size == 1 || std::count(step.mesh_dims.begin(), step.mesh_dims.end(), d) > 0) {
      continue;
    }
    if (plan.from().placement(d).IsReplicate()) return false;
  }
  return true;
}

// Whether the plan's promise allows a symmetric reduce-scatter, which adds in an order that the
// plan has not fixed. Sets needs_same_bits.
bool AllowsSums(const Plan& plan, const Step& step, SymmetricForm* form) {
  if (IsExact(form->reduction.op, form->dtype)) return true;
  // The plan fixes another order: that of the partial coordinates.
  if (step.reduce_order == ReduceOrder::kAscending) return false;
  const Reproducibility promise = std::max(plan.asked(), plan.kept());
  form->needs_same_bits = promise >= Reproducibility::kBatchInvariant;
  return promise < Reproducibility::kReplicas || IsSingleSourced(plan, step);
}

}  // namespace

SymmetricForm SymmetricFormOf(const Plan& plan, int64_t rank) {
  const Sharding& from = plan.from();
  const Sharding& to = plan.to();
  if (plan.steps().size() != 1 || !(from.mesh() == to.mesh()) || from.dtype() != to.dtype()) {
    return Miss(SymmetricMiss::kOperation);
  }
  const Step& step = plan.steps()[0];
  const bool scatters = step.op == StepOp::kReduceScatter;
  if (!scatters && step.op != StepOp::kAllGather && step.op != StepOp::kExchange) {
    return Miss(SymmetricMiss::kOperation);
  }
  const DeviceMesh& mesh = from.mesh();
  const std::optional<Coordinate> me = mesh.CoordinateOf(rank);
  if (!me) return Miss(SymmetricMiss::kGroup);
  Coordinate at = *me;
  const Members members(mesh, step.mesh_dims, at);
  const auto self = members.NumberOf(members.IndexOf(at));
  SymmetricForm form;
  form.member = static_cast<int>(self);
  form.kind = scatters ? Kind::kReduceScatter : Kind::kAllGather;
  // The sharding in which all members hold the same box, and the one in which each holds a part.
  const Sharding& whole = scatters ? from : to;
  const Sharding& cut = scatters ? to : from;
  const Box box = whole.BoxAt(at);
  std::vector<Box> parts;
  bool same = true;
  for (int64_t number = 0; number < members.size(); ++number) {
    members.SetCoordinate(members.IndexOfNumber(number), &at);
    form.ranks.push_back(mesh.RankAt(at));
    same = same && whole.BoxAt(at) == box;
    parts.push_back(cut.BoxAt(at));
  }
  if (!same || box.IsEmpty() || !Fill(box, parts)) {
    return Miss(SymmetricMiss::kOperation);
  }
  const DType dtype = from.dtype();
  form.dtype = scatters ? dtype : DType::kU8;
  int64_t largest = 0;
  for (const Box& part : parts) {
    const int64_t bytes = Bytes(dtype, part.NumElements());
    form.counts.push_back(scatters ? part.NumElements() : bytes);
    largest = std::max(largest, bytes);
  }
  const int64_t all = Bytes(dtype, box.NumElements());
  const int64_t own = Bytes(dtype, parts[self].NumElements());
  form.source_bytes = scatters ? all : largest;
  form.target_bytes = scatters ? largest : all;
  form.bytes_sent = scatters ? all - own : own * (members.size() - 1);
  if (scatters) {
    if (!step.reduce_op || BitWidth(dtype) < 8) {
      return Miss(SymmetricMiss::kOperation);
    }
    form.reduction = {.op = *step.reduce_op, .divisor = step.divisor.value_or(1)};
    if (!AllowsSums(plan, step, &form)) return Miss(SymmetricMiss::kPromise);
  }
  return form;
}

}  // namespace meshift
