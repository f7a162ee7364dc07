#include "meshift/dlpack.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "base/checked_math.h"
#include "base/status.h"
#include "comm/tensor/strides.h"
#include "meshift/dtype.h"
#include "meshift/sharding.h"
#include "meshift/status.h"

namespace meshift {
namespace {

// Values of DLDataTypeCode since dlpack.h 1.1 (https://github.com/dmlc/dlpack); bool is older.
constexpr uint8_t kDlBool = 6;
constexpr uint8_t kDlFloat8E4M3Fn = 10;
constexpr uint8_t kDlFloat8E5M2 = 12;
constexpr uint8_t kDlFloat4E2M1Fn = 17;

struct Code {
  DType dtype;
  uint8_t code;
};
constexpr Code kCodes[] = {
    {DType::kBool, kDlBool},         {DType::kI8, kDLInt},
    {DType::kI16, kDLInt},           {DType::kI32, kDLInt},
    {DType::kI64, kDLInt},           {DType::kU8, kDLUInt},
    {DType::kU16, kDLUInt},          {DType::kU32, kDLUInt},
    {DType::kU64, kDLUInt},          {DType::kF16, kDLFloat},
    {DType::kBF16, kDLBfloat},       {DType::kF32, kDLFloat},
    {DType::kF64, kDLFloat},         {DType::kF8E4M3, kDlFloat8E4M3Fn},
    {DType::kF8E5M2, kDlFloat8E5M2}, {DType::kF4E2M1, kDlFloat4E2M1Fn},
    {DType::kC64, kDLComplex},       {DType::kC128, kDLComplex},
};

absl::StatusOr<DType> DTypeOf(const DLDataType& type) {
  for (const Code& known : kCodes) {
    if (known.code != type.code || BitWidth(known.dtype) != type.bits) continue;
    const bool pairs = known.dtype == DType::kF4E2M1 && type.lanes == 2;
    if (type.lanes == 1 || pairs) return known.dtype;
  }
  return Unimplemented("unsupported DLPack dtype: type code {}, {} bits, {} lanes", type.code,
                       type.bits, type.lanes);
}

absl::StatusOr<Device> DeviceOf(const DLDevice& device) {
  switch (device.device_type) {
    case kDLCPU:
    case kDLCUDAHost:
      return Device{};
    case kDLCUDA:
      if (device.device_id < 0) {
        return InvalidArgument("a DLPack tensor has CUDA device {}, which is negative",
                               device.device_id);
      }
      return Device{.kind = Device::Kind::kCuda, .index = device.device_id};
    default:
      return Unimplemented("unsupported DLPack device type {}; expected CPU or CUDA",
                           static_cast<int>(device.device_type));
  }
}

// Converts a view of pairs of f4e2m1 (2 lanes) to a view of single elements.
absl::Status SplitPairs(TensorView* view) {
  if (view->shape.empty()) {
    return InvalidArgument("a DLPack tensor of pairs of f4e2m1 has no dims");
  }
  int64_t& size = view->shape.back();
  if (size > 1 && view->strides.back() != 1) {
    return InvalidArgument(
        "a DLPack tensor of pairs of f4e2m1 has stride {} in its last dim; it must be 1",
        view->strides.back());
  }
  bool fits = CheckedMul(size, 2, &size);
  for (int64_t& stride : view->strides) fits = fits && CheckedMul(stride, 2, &stride);
  view->strides.back() = 1;
  if (!fits) return InvalidArgument("a DLPack tensor exceeds the address range");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TensorView> FromDlpack(const DLTensor* tensor) {
  if (tensor == nullptr) return InvalidArgument("the DLPack tensor is null");
  const int dims = tensor->ndim;
  if (dims < 0) return InvalidArgument("a DLPack tensor has {} dims; it must have 0 or more", dims);
  if (dims > 0 && tensor->shape == nullptr) {
    return InvalidArgument("a DLPack tensor of {} dims has no shape", dims);
  }
  TensorView view;
  MESHIFT_ASSIGN_OR_RETURN(view.dtype, DTypeOf(tensor->dtype));
  MESHIFT_ASSIGN_OR_RETURN(view.device, DeviceOf(tensor->device));
  int64_t elements = tensor->dtype.lanes;  // elements per item
  bool fits = true;
  for (int d = 0; d < dims; ++d) {
    const int64_t size = tensor->shape[d];
    if (size < 0)
      return InvalidArgument("a DLPack tensor has size {} in dim {}; it must be 0 or more", size,
                             d);
    fits = fits && CheckedMul(elements, std::max<int64_t>(size, 1), &elements);
    view.shape.push_back(size);
  }
  if (!fits) return InvalidArgument("a DLPack tensor exceeds the address range");
  if (tensor->strides == nullptr) {
    view.strides = RowMajorStrides(view.shape);
  } else {
    view.strides.assign(tensor->strides, tensor->strides + dims);
  }
  if (tensor->dtype.lanes == 2) MESHIFT_RETURN_IF_ERROR(SplitPairs(&view));
  if (!ExtentOf(view.shape, view.strides)) {
    return InvalidArgument("a DLPack tensor exceeds the address range");
  }
  if (tensor->data != nullptr) view.data = static_cast<char*>(tensor->data) + tensor->byte_offset;
  return view;
}

absl::Status ToDlpack(const TensorView& view, absl::Span<int64_t> shape,
                      absl::Span<int64_t> strides, DLTensor* tensor) {
  const size_t dims = view.shape.size();
  if (view.strides.size() != dims) {
    return InvalidArgument(
        "the tensor {}: the number of strides is {}; expected {}, one for each dim",
        view.ToString(), view.strides.size(), dims);
  }
  if (shape.size() < dims || strides.size() < dims) {
    return InvalidArgument(
        "the tensor {} has {} dims, but there is room for {} sizes and {} strides", view.ToString(),
        dims, shape.size(), strides.size());
  }
  const auto* const known = std::find_if(std::begin(kCodes), std::end(kCodes),
                                         [&](const Code& c) { return c.dtype == view.dtype; });
  std::copy(view.shape.begin(), view.shape.end(), shape.begin());
  std::copy(view.strides.begin(), view.strides.end(), strides.begin());
  const bool cuda = view.device.kind == Device::Kind::kCuda;
  tensor->data = view.data;
  tensor->device.device_type = cuda ? kDLCUDA : kDLCPU;
  tensor->device.device_id = cuda ? view.device.index : 0;
  tensor->ndim = static_cast<int>(dims);
  tensor->dtype.code = known->code;
  tensor->dtype.bits = static_cast<uint8_t>(BitWidth(view.dtype));
  tensor->dtype.lanes = 1;
  tensor->shape = shape.data();
  tensor->strides = strides.data();
  tensor->byte_offset = 0;
  return absl::OkStatus();
}

}  // namespace meshift
