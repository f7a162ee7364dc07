// TensorView: a typed, strided view of memory that the caller owns.
//
//   TensorView in = TensorView::Contiguous(data, DType::kBF16, {4096, 512});
//   TensorView transposed{
//       .data = data, .dtype = DType::kBF16, .shape = {512, 4096}, .strides = {1, 512}};
//
// A view is a plain struct that checks nothing. Each call that takes one says what it refuses, with
// INVALID_ARGUMENT. A Redistributor refuses a view that does not match the sharding.
#ifndef MESHIFT_TENSOR_VIEW_H_
#define MESHIFT_TENSOR_VIEW_H_

#include <cstdint>
#include <string>

#include "meshift/dtype.h"
#include "meshift/sharding.h"
#include "meshift/version.h"

namespace MESHIFT_API meshift {

// The device of a memory address.
//
//   const Device device = {.kind = Device::Kind::kCuda, .index = 1};   // "cuda:1"

struct Device {
  enum class Kind : uint8_t { kHost, kCuda };
  Kind kind = Kind::kHost;
  int index = 0;  // the device's ordinal; 0 for the host
  friend bool operator==(const Device&, const Device&) = default;
};

// Does not own `data`, which must outlive every operation that uses the view.
struct TensorView {
  // The address of element (0, 0, ...). May be null if NumBytes() is 0, and in Prepare() and
  // WorkspaceBytes().
  void* data = nullptr;
  DType dtype = DType::kF32;
  Shape shape;
  Shape strides;  // in elements, one per dim; may be negative or zero
  // The device of `data`, equal for source and target. A call compares this field, but does not ask
  // where the memory is. The default, the host, also stands for any memory that the engine can
  // access, on a GPU engine too.
  Device device = {};
  // A call refuses this view as its target, or as a source that is consumed. If source and target
  // are one buffer, and the target is not read-only, the run overwrites the source even if the
  // source is read-only.
  bool read_only = false;

  // A view with row-major strides for `shape`.
  static TensorView Contiguous(void* data, DType dtype, Shape shape, Device device = {});
  // The same with read_only set.
  static TensorView ReadOnly(const void* data, DType dtype, Shape shape, Device device = {});
  // Whether the elements are contiguous in row-major order (strides of dims of size 1 do not
  // matter).
  bool IsContiguous() const;
  int64_t NumBytes() const;  // of the elements, without gaps between them
  // "bf16[4096,512]"
  std::string ToString() const;
};

}  // namespace meshift

#endif  // MESHIFT_TENSOR_VIEW_H_
