// A tensor in memory that someone else owns.
//
//   TensorView in = TensorView::Contiguous(data, DType::kBF16, {4096, 512});
//   TensorView transposed{
//       .data = data, .dtype = DType::kBF16, .shape = {512, 4096}, .strides = {1, 512}};
#ifndef MESHIFT_TENSOR_VIEW_H_
#define MESHIFT_TENSOR_VIEW_H_

#include <cstdint>
#include <string>

#include "meshift/dtype.h"
#include "meshift/sharding.h"
#include "meshift/version.h"

namespace MESHIFT_API meshift {

// Where memory lives.
//
//   const Device device = {.kind = Device::Kind::kCuda, .index = 1};   // "cuda:1"

struct Device {
  enum class Kind : uint8_t { kHost, kCuda };
  Kind kind = Kind::kHost;
  int index = 0;  // the device's ordinal; 0 for the host
  friend bool operator==(const Device&, const Device&) = default;
};

// Does not own `data`, which must outlive every operation that was given the view.
struct TensorView {
  void* data = nullptr;  // of element (0, 0, ...); may be null where there are no elements
  DType dtype = DType::kF32;
  Shape shape;
  Shape strides;  // in elements, one per dim; may be negative or zero
  // As its owner says, for the engine to compare. Of the host, as it is unless something is said:
  // memory that the engine reaches, on an engine of a device too.
  Device device = {};
  // Of memory that must not be written: a source, but none that is consumed. Any other use of it is
  // refused.
  bool read_only = false;

  // Row-major strides for `shape`.
  static TensorView Contiguous(void* data, DType dtype, Shape shape, Device device = {});
  // The same, of memory that is only read.
  static TensorView ReadOnly(const void* data, DType dtype, Shape shape, Device device = {});
  // Whether the elements lie in one run in row-major order (strides of dims of size 1 do not
  // matter).
  bool IsContiguous() const;
  int64_t NumBytes() const;  // of the elements, without what lies between them
  // "bf16[4096,512]"
  std::string ToString() const;
};

}  // namespace meshift

#endif  // MESHIFT_TENSOR_VIEW_H_
