#include "comm/kernels/copy.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "comm/kernels/copy_rows.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"
#include "meshift/sharding.h"
#include "meshift/status.h"

namespace meshift {
namespace {

// In elements: a smaller dim does not make a transposing copy worthwhile.
constexpr int64_t kMinTransposeSize = 4;

absl::Status CheckCopy(const Shape& shape, const Shape& src_strides, const Shape& dst_strides) {
  const size_t rank = shape.size();
  if (src_strides.size() != rank || dst_strides.size() != rank) {
    return InvalidArgument("a copy of a rank-{} box has {} source and {} target strides", rank,
                           src_strides.size(), dst_strides.size());
  }
  for (const int64_t size : shape) {
    if (size < 0) return InvalidArgument("size {} of a box to copy is negative", size);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<StridedCopy> StridedCopy::Create(const BoxCopy& copy, DType dtype) {
  StridedCopy result;
  MESHIFT_RETURN_IF_ERROR(result.Reset(copy, dtype));
  return result;
}

absl::Status StridedCopy::Reset(const BoxCopy& copy, DType dtype) {
  MESHIFT_RETURN_IF_ERROR(SetLayout(copy.shape, copy.src_strides, copy.dst_strides, dtype));
  if (bytes_ > 0 && (copy.src == nullptr || copy.dst == nullptr)) {
    return InvalidArgument("the {} of a copy of {} elements is null",
                           copy.src == nullptr ? "source" : "target", NumElements(copy.shape));
  }
  SetAddresses(static_cast<const char*>(copy.src), static_cast<char*>(copy.dst));
  return absl::OkStatus();
}

absl::Status StridedCopy::SetLayout(const Shape& shape, const Shape& src_strides,
                                    const Shape& dst_strides, DType dtype) {
  MESHIFT_RETURN_IF_ERROR(CheckCopy(shape, src_strides, dst_strides));
  SetAddresses(nullptr, nullptr);
  shape_.clear();
  src_strides_.clear();
  dst_strides_.clear();
  run_bytes_ = bytes_ = units_ = 0;
  const int64_t elements = NumElements(shape);
  if (elements == 0) return absl::OkStatus();
  // The dims of more than one element, by descending stride in the target. Strides are in bits
  // until the innermost dims are merged, since f4e2m1 elements are packed.
  const int64_t bits = BitWidth(dtype);
  absl::InlinedVector<int, 8> order;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1) continue;
    order.push_back(static_cast<int>(i));
    // Insertion sort: there are few dims, mostly sorted, and std::stable_sort would allocate.
    for (size_t j = order.size() - 1; j > 0; --j) {
      if (std::abs(dst_strides[order[j - 1]]) >= std::abs(dst_strides[order[j]])) break;
      std::swap(order[j - 1], order[j]);
    }
  }
  int64_t run = bits;
  while (!order.empty()) {
    const int d = order.back();
    if (src_strides[d] * bits != run || dst_strides[d] * bits != run) break;
    run *= shape[d];
    order.pop_back();
  }
  bool whole_bytes = run % 8 == 0;
  run_bytes_ = run / 8;
  for (const int i : order) {
    const int64_t size = shape[i];
    const int64_t src_bits = src_strides[i] * bits;
    const int64_t dst_bits = dst_strides[i] * bits;
    whole_bytes = whole_bytes && src_bits % 8 == 0 && dst_bits % 8 == 0;
    const int64_t src_stride = src_bits / 8;
    const int64_t dst_stride = dst_bits / 8;
    if (!shape_.empty() && src_strides_.back() == src_stride * size &&
        dst_strides_.back() == dst_stride * size) {
      shape_.back() *= size;
      src_strides_.back() = src_stride;
      dst_strides_.back() = dst_stride;
    } else {
      shape_.push_back(size);
      src_strides_.push_back(src_stride);
      dst_strides_.push_back(dst_stride);
    }
  }
  if (!whole_bytes) {
    return InvalidArgument("a copy of {} elements would cut a byte, which holds two", Name(dtype));
  }
  bytes_ = elements * bits / 8;
  units_ = shape_.empty() ? run_bytes_ : shape_[0];
  return absl::OkStatus();
}

int StridedCopy::DenseInSource() const {
  const int last = static_cast<int>(shape_.size()) - 1;
  const bool power_of_two = (run_bytes_ & (run_bytes_ - 1)) == 0;
  if (last < 1 || run_bytes_ > 16 || !power_of_two) return -1;
  if (dst_strides_[last] != run_bytes_ || shape_[last] < kMinTransposeSize) return -1;
  for (int d = 0; d < last; ++d) {
    if (src_strides_[d] == run_bytes_ && shape_[d] >= kMinTransposeSize) return d;
  }
  return -1;
}

void StridedCopy::ExecuteUnits(int64_t begin, int64_t end, int64_t stream_bytes) const {
  if (begin >= end) return;
  if (shape_.empty()) {
    CopyRun(src_ + begin, dst_ + begin, end - begin, bytes_ >= stream_bytes);
    return;
  }
  // An inner loop copies a plane of one or two dims; this loops over the other dims.
  const int last = static_cast<int>(shape_.size()) - 1;
  const int dense = DenseInSource();
  const bool stream = dense < 0 && bytes_ >= stream_bytes && MayStreamRuns();
  const auto size_of = [&](int d) { return d == 0 ? end - begin : shape_[d]; };
  const auto copy_plane = [&](const char* src, char* dst) {
    if (dense >= 0) {
      CopyTransposed({src, src_strides_[last], dst, dst_strides_[dense], size_of(last),
                      size_of(dense), run_bytes_});
    } else {
      CopyRuns({src, src_strides_[last], dst, dst_strides_[last], size_of(last), run_bytes_},
               stream);
    }
  };
  const char* src = src_ + begin * src_strides_[0];
  char* dst = dst_ + begin * dst_strides_[0];
  Shape index(shape_.size(), 0);
  int d = 0;
  while (d >= 0) {
    copy_plane(src, dst);
    for (d = last - 1; d >= 0; --d) {
      if (d == dense) continue;
      src += src_strides_[d];
      dst += dst_strides_[d];
      if (++index[d] < size_of(d)) break;
      src -= src_strides_[d] * size_of(d);
      dst -= dst_strides_[d] * size_of(d);
      index[d] = 0;
    }
  }
  if (stream) EndStreaming();
}

bool StridedCopy::MayStreamRuns() const {
  int64_t strides = 0;
  for (const int64_t stride : dst_strides_) strides |= stride;
  return MayStream(dst_, strides, run_bytes_);
}

}  // namespace meshift
