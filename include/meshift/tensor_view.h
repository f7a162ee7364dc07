// A tensor in memory that someone else owns.
//
//   TensorView in = TensorView::Contiguous(data, DType::kBF16, {4096, 512});
//   TensorView transposed{
//       .data = data, .dtype = DType::kBF16, .shape = {512, 4096}, .strides = {1, 512}};
#ifndef MESHIFT_TENSOR_VIEW_H_
#define MESHIFT_TENSOR_VIEW_H_

#include <cstdint>
#include <string>

#include "comm/engine/device.h"
#include "placement/box.h"
#include "meshift/dtype.h"

namespace meshift {

// Does not own `data`, which must outlive every operation that was given the view. A source is only
// read, although `data` is not const.
struct TensorView {
  void* data = nullptr;  // of element (0, 0, ...); may be null where there are no elements
  DType dtype = DType::kF32;
  Shape shape;
  Shape strides;  // in elements, one per dim; may be negative or zero
  // As its owner says, for the engine to compare. Of the host, as it is unless something is said:
  // memory that the engine reaches, on an engine of a device too.
  Device device = {};

  // Row-major strides for `shape`.
  static TensorView Contiguous(void* data, DType dtype, Shape shape, Device device = {});
  // Whether the elements lie in one run in row-major order (strides of dims of size 1 do not
  // matter).
  bool IsContiguous() const;
  int64_t NumBytes() const;  // of the elements, without what lies between them
  // "bf16[4096,512]"
  std::string ToString() const;
};

}  // namespace meshift

#endif  // MESHIFT_TENSOR_VIEW_H_
