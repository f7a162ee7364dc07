#include "comm/redistribution/view_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/checked_math.h"
#include "base/status.h"
#include "comm/program/program.h"
#include "comm/tensor/strides.h"
#include "meshift/device_mesh.h"
#include "meshift/sharding.h"
#include "meshift/status.h"

namespace meshift {
namespace {

std::string Text(const TensorView& view) {
  return fmt::format("{} with strides ({})", view.ToString(), fmt::join(view.strides, ","));
}

// The strides in a normal form: empty if row-major; 0 for dims of size 1.
Shape NormalStrides(const TensorView& view) {
  if (view.IsContiguous()) return {};
  Shape strides = view.strides;
  for (size_t d = 0; d < strides.size(); ++d) {
    if (view.shape[d] == 1) strides[d] = 0;
  }
  return strides;
}

// Rounds half a byte up.
int64_t BytesOf(DType dtype, int64_t elements) {
  return BitWidth(dtype) < 8 ? CeilDiv(elements, 2) : Bytes(dtype, elements);
}

ABSL_ATTRIBUTE_HOT bool IsPlain(const TensorView& view, const PlainTensor& plain) {
  const size_t dims = plain.shape.size();
  if (plain.bytes < 0 || (view.data == nullptr && plain.bytes > 0) || view.dtype != plain.dtype ||
      view.shape.size() != dims || view.strides.size() != dims) {
    return false;
  }
  const int64_t* const sizes = plain.shape.data();
  const int64_t* const shape = view.shape.data();
  const int64_t* const strides = view.strides.data();
  int64_t stride = 1;
  for (size_t d = dims; d-- > 0;) {
    if (shape[d] != sizes[d] || strides[d] != stride) return false;
    stride *= sizes[d];
  }
  return true;
}

std::string DeviceText(const Device& device) {
  return fmt::format("{}:{}", device.kind == Device::Kind::kHost ? "host" : "cuda", device.index);
}

// The host is the default device of a view, so any engine accepts it.
bool MayBeOn(const Device& device, const TensorView& view) {
  return view.device == Device{} || view.device == device;
}

// Returns `view`, or an empty view of shape {0} if the rank is not in the tensor's mesh.
absl::StatusOr<TensorView> OwnView(std::string_view name, const TensorView& view, bool has,
                                   const Sharding& sharding, const Device& device, int64_t rank) {
  if (has) return view;
  const bool empty = std::find(view.shape.begin(), view.shape.end(), 0) != view.shape.end();
  if (view.data != nullptr && !empty) {
    return InvalidArgument("the {} is {}; rank {} holds nothing of it, since it is not in mesh {}",
                           name, view.ToString(), rank, sharding.mesh().ToString());
  }
  return TensorView::Contiguous(nullptr, sharding.dtype(), {0}, device);
}

}  // namespace

PlainTensor::PlainTensor(DType type, const Shape& dims) : dtype(type), shape(dims) {
  if (!ExtentOf(shape, RowMajorStrides(shape))) return;
  bytes = BytesOf(dtype, NumElements(shape));
}

bool ArePlain(const TensorView& source, const PlainTensor& plain_source, const TensorView& target,
              const PlainTensor& plain_target, const Device& device) {
  if (!IsPlain(source, plain_source) || !IsPlain(target, plain_target)) return false;
  if (target.read_only) return false;
  if (!(source.device == target.device) || !MayBeOn(device, source)) return false;
  const auto range = [](const TensorView& view, int64_t bytes) {
    const auto begin = reinterpret_cast<uintptr_t>(view.data);
    return bytes == 0 ? MemoryRange{} : MemoryRange{begin, begin + static_cast<uintptr_t>(bytes)};
  };
  return !range(source, plain_source.bytes).Overlaps(range(target, plain_target.bytes));
}

absl::Status CheckView(std::string_view name, const TensorView& view, DType dtype,
                       const Shape& shape, int64_t rank) {
  if (view.dtype != dtype || view.shape != shape) {
    return InvalidArgument("the {} is {}; rank {} holds {}[{}]", name, view.ToString(), rank,
                           Name(dtype), fmt::join(shape, ","));
  }
  if (view.strides.size() != view.shape.size()) {
    return InvalidArgument("the {} {}: the number of strides is {}; expected {}, one for each dim",
                           name, view.ToString(), view.strides.size(), view.shape.size());
  }
  if (!ExtentOf(view.shape, view.strides)) {
    return InvalidArgument("the {} {} exceeds the address range", name, Text(view));
  }
  return absl::OkStatus();
}

absl::Status CheckTarget(const TensorView& target) {
  switch (FindOverlap(target.shape, target.strides)) {
    case Overlap::kNo:
      return absl::OkStatus();
    case Overlap::kYes:
      return InvalidArgument("elements of the target {} overlap each other", Text(target));
    case Overlap::kUnknown:
      break;
  }
  return InvalidArgument(
      "cannot determine in reasonable time whether elements of the target {} overlap each other",
      Text(target));
}

MemoryRange RangeOf(const TensorView& view) {
  if (view.data == nullptr || NumElements(view.shape) == 0) return {};
  const StridedExtent extent = ExtentOf(view.shape, view.strides).value();
  const auto bytes = [&](int64_t elements) {
    return static_cast<uintptr_t>(BytesOf(view.dtype, elements));
  };
  const auto at = reinterpret_cast<uintptr_t>(view.data);
  return {at - bytes(-extent.low), at + bytes(extent.high)};
}

absl::StatusOr<LoweringOptions> LayoutsOf(const TensorView& source, const TensorView& target,
                                          bool consume_source) {
  LoweringOptions layouts;
  layouts.source_strides = NormalStrides(source);
  layouts.target_strides = NormalStrides(target);
  const MemoryRange in = RangeOf(source);
  const MemoryRange out = RangeOf(target);
  const bool known = source.data != nullptr && target.data != nullptr;
  if (known && in.Overlaps(out)) {
    if (in.begin != out.begin) {
      return InvalidArgument("the source and the target overlap, but begin at different addresses");
    }
    layouts.one_buffer = true;
  }
  layouts.consume_source = consume_source && !layouts.one_buffer &&
                           layouts.source_strides.empty() &&
                           reinterpret_cast<uintptr_t>(source.data) % kWorkspaceAlignment == 0;
  return layouts;
}

absl::StatusOr<MemoryRange> CheckWorkspace(const void* data, int64_t bytes, int64_t needed) {
  if (bytes < needed) {
    return InvalidArgument("the workspace has {} bytes; the plan needs {}", bytes, needed);
  }
  if (data == nullptr && needed > 0) {
    return InvalidArgument("the workspace is null; the plan needs {} bytes", needed);
  }
  const auto begin = reinterpret_cast<uintptr_t>(data);
  if (begin % kWorkspaceAlignment != 0) {
    return InvalidArgument("the workspace is not aligned to {} bytes", kWorkspaceAlignment);
  }
  return MemoryRange{begin, begin + static_cast<uintptr_t>(bytes)};
}

absl::Status CheckDisjoint(std::string_view name, const MemoryRange& tensor,
                           const MemoryRange& workspace) {
  if (!tensor.Overlaps(workspace)) return absl::OkStatus();
  return InvalidArgument("the {} and the workspace overlap", name);
}

absl::StatusOr<LoweringOptions> CheckViews(const Plan& plan, int64_t rank, const Device& device,
                                           const LocalShapes& shapes, const TensorView& source,
                                           const TensorView& target, bool consume_source) {
  if (!shapes.has_source || !shapes.has_target) [[unlikely]] {
    MESHIFT_ASSIGN_OR_RETURN(
        const TensorView own_source,
        OwnView("source", source, shapes.has_source, plan.from(), target.device, rank));
    MESHIFT_ASSIGN_OR_RETURN(
        const TensorView own_target,
        OwnView("target", target, shapes.has_target, plan.to(), own_source.device, rank));
    return CheckViews(
        plan, rank, device,
        {.source = shapes.source, .target = shapes.target, .has_source = true, .has_target = true},
        own_source, own_target, consume_source);
  }
  MESHIFT_RETURN_IF_ERROR(CheckView("source", source, plan.from().dtype(), shapes.source, rank));
  MESHIFT_RETURN_IF_ERROR(CheckView("target", target, plan.to().dtype(), shapes.target, rank));
  if (target.read_only) {
    return InvalidArgument("the target {} is in read-only memory", target.ToString());
  }
  if (consume_source && source.read_only) {
    return InvalidArgument("the source {} is in read-only memory and cannot be consumed",
                           source.ToString());
  }
  MESHIFT_RETURN_IF_ERROR(CheckTarget(target));
  if (!(source.device == target.device)) {
    return InvalidArgument("the source is on device {}, the target on device {}",
                           DeviceText(source.device), DeviceText(target.device));
  }
  if (!MayBeOn(device, source)) {
    return InvalidArgument("the tensors are on device {}, the engine is on device {}",
                           DeviceText(source.device), DeviceText(device));
  }
  return LayoutsOf(source, target, consume_source);
}

}  // namespace meshift
