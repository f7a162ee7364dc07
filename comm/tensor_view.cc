#include "comm/tensor_view.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <string>
#include <utility>

#include "placement/box.h"
#include "placement/dtype.h"

namespace meshift {

TensorView TensorView::Contiguous(void* data, DType dtype, Shape shape, Device device) {
  TensorView view;
  view.data = data;
  view.dtype = dtype;
  view.device = device;
  view.strides.resize(shape.size());
  int64_t stride = 1;
  for (int d = static_cast<int>(shape.size()) - 1; d >= 0; --d) {
    view.strides[d] = stride;
    stride *= shape[d];
  }
  view.shape = std::move(shape);
  return view;
}

bool TensorView::IsContiguous() const {
  if (NumElements(shape) == 0) return true;
  int64_t stride = 1;
  for (int d = static_cast<int>(shape.size()) - 1; d >= 0; --d) {
    if (shape[d] == 1) continue;
    if (strides[d] != stride) return false;
    stride *= shape[d];
  }
  return true;
}

int64_t TensorView::NumBytes() const { return Bytes(dtype, NumElements(shape)); }

std::string TensorView::ToString() const {
  return fmt::format("{}[{}]", Name(dtype), fmt::join(shape, ","));
}

}  // namespace meshift
