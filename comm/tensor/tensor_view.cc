#include "meshift/tensor_view.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <string>
#include <utility>

#include "comm/tensor/strides.h"
#include "meshift/dtype.h"
#include "meshift/sharding.h"

namespace meshift {

TensorView TensorView::Contiguous(void* data, DType dtype, Shape shape, Device device) {
  TensorView view;
  view.data = data;
  view.dtype = dtype;
  view.device = device;
  view.strides = RowMajorStrides(shape);
  view.shape = std::move(shape);
  return view;
}

TensorView TensorView::ReadOnly(const void* data, DType dtype, Shape shape, Device device) {
  TensorView view = Contiguous(const_cast<void*>(data), dtype, std::move(shape), device);
  view.read_only = true;
  return view;
}

bool TensorView::IsContiguous() const { return IsRowMajor(shape, strides); }

int64_t TensorView::NumBytes() const { return Bytes(dtype, NumElements(shape)); }

std::string TensorView::ToString() const {
  return fmt::format("{}[{}]", Name(dtype), fmt::join(shape, ","));
}

}  // namespace meshift
