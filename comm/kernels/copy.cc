#include "comm/kernels/copy.h"

#include <cstdint>
#include <cstring>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "comm/engine.h"
#include "placement/box.h"
#include "placement/dtype.h"

namespace meshift {
namespace {

// One row: `count` runs of `bytes` bytes. A constant number of bytes makes memcpy a move.
template <int kBytes>
void CopyRow(const char* src, int64_t src_stride, char* dst, int64_t dst_stride, int64_t count,
             int64_t bytes) {
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(dst + i * dst_stride, src + i * src_stride, kBytes > 0 ? kBytes : bytes);
  }
}

using CopyRowFunction = void (*)(const char*, int64_t, char*, int64_t, int64_t, int64_t);

CopyRowFunction CopyRowFor(int64_t bytes) {
  switch (bytes) {
    case 1:
      return CopyRow<1>;
    case 2:
      return CopyRow<2>;
    case 4:
      return CopyRow<4>;
    case 8:
      return CopyRow<8>;
    case 16:
      return CopyRow<16>;
    case 32:
      return CopyRow<32>;
    case 64:
      return CopyRow<64>;
    default:
      return CopyRow<0>;
  }
}

absl::Status CheckCopy(const BoxCopy& copy) {
  const size_t rank = copy.shape.size();
  if (copy.src_strides.size() != rank || copy.dst_strides.size() != rank) {
    return InvalidArgument("a copy of a rank-{} box has {} source and {} target strides", rank,
                           copy.src_strides.size(), copy.dst_strides.size());
  }
  for (const int64_t size : copy.shape) {
    if (size < 0) return InvalidArgument("size {} of a box to copy is negative", size);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<StridedCopy> StridedCopy::Create(const BoxCopy& copy, DType dtype) {
  if (absl::Status status = CheckCopy(copy); !status.ok()) return status;
  StridedCopy result;
  const int64_t elements = NumElements(copy.shape);
  if (elements == 0) return result;
  if (copy.src == nullptr || copy.dst == nullptr) {
    return InvalidArgument("the {} of a copy of {} elements is null",
                           copy.src == nullptr ? "source" : "target", elements);
  }
  result.src_ = static_cast<const char*>(copy.src);
  result.dst_ = static_cast<char*>(copy.dst);
  // Strides in bits until the innermost dims are merged, for packed elements.
  const int64_t bits = BitWidth(dtype);
  int64_t run = bits;
  int d = static_cast<int>(copy.shape.size()) - 1;
  for (; d >= 0; --d) {
    if (copy.shape[d] == 1) continue;
    if (copy.src_strides[d] * bits != run || copy.dst_strides[d] * bits != run) break;
    run *= copy.shape[d];
  }
  bool whole_bytes = run % 8 == 0;
  result.run_bytes_ = run / 8;
  for (int i = 0; i <= d; ++i) {
    const int64_t size = copy.shape[i];
    if (size == 1) continue;
    const int64_t src_bits = copy.src_strides[i] * bits;
    const int64_t dst_bits = copy.dst_strides[i] * bits;
    whole_bytes = whole_bytes && src_bits % 8 == 0 && dst_bits % 8 == 0;
    const int64_t src_stride = src_bits / 8;
    const int64_t dst_stride = dst_bits / 8;
    if (!result.shape_.empty() && result.src_strides_.back() == src_stride * size &&
        result.dst_strides_.back() == dst_stride * size) {
      result.shape_.back() *= size;
      result.src_strides_.back() = src_stride;
      result.dst_strides_.back() = dst_stride;
    } else {
      result.shape_.push_back(size);
      result.src_strides_.push_back(src_stride);
      result.dst_strides_.push_back(dst_stride);
    }
  }
  if (!whole_bytes) {
    return InvalidArgument("a copy of {} elements would cut a byte, which holds two", Name(dtype));
  }
  result.bytes_ = elements * bits / 8;
  result.units_ = result.shape_.empty() ? result.run_bytes_ : result.shape_[0];
  return result;
}

void StridedCopy::RunUnits(int64_t begin, int64_t end) const {
  if (begin >= end) return;
  if (shape_.empty()) {
    std::memcpy(dst_ + begin, src_ + begin, end - begin);
    return;
  }
  const CopyRowFunction copy_row = CopyRowFor(run_bytes_);
  const int last = static_cast<int>(shape_.size()) - 1;
  const char* src = src_ + begin * src_strides_[0];
  char* dst = dst_ + begin * dst_strides_[0];
  if (last == 0) {
    copy_row(src, src_strides_[0], dst, dst_strides_[0], end - begin, run_bytes_);
    return;
  }
  Shape index(shape_.size(), 0);
  index[0] = begin;
  while (true) {
    copy_row(src, src_strides_[last], dst, dst_strides_[last], shape_[last], run_bytes_);
    int d = last - 1;
    for (; d >= 0; --d) {
      src += src_strides_[d];
      dst += dst_strides_[d];
      if (++index[d] < (d == 0 ? end : shape_[d])) break;
      if (d == 0) return;
      src -= src_strides_[d] * shape_[d];
      dst -= dst_strides_[d] * shape_[d];
      index[d] = 0;
    }
  }
}

}  // namespace meshift
