#include "comm/tensor/strides.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "base/checked_math.h"
#include "meshift/sharding.h"

namespace meshift {
namespace {

// A dim of more than one element. The difference of two of its indices is in [-most, most].
struct Dim {
  int64_t stride = 0;  // > 0
  int64_t most = 0;
};
using Dims = absl::InlinedVector<Dim, 16>;

// Searches for two elements with the same position: differences of indices, not all zero, whose sum
// of difference * stride is 0.
class OverlapSearch {
 public:
  // `dims` must be sorted by descending stride.
  explicit OverlapSearch(const Dims& dims) : dims_(dims), reach_(dims.size() + 1, 0) {
    for (size_t i = dims.size(); i-- > 0;) {
      reach_[i] = reach_[i + 1] + dims[i].stride * dims[i].most;
    }
  }

  Overlap Run() {
    const bool found = Find(0, 0, /*all_zero=*/true);
    if (found) return Overlap::kYes;
    return visited_ > kMostVisits ? Overlap::kUnknown : Overlap::kNo;
  }

 private:
  static constexpr int kMostVisits = 1 << 16;

  // Whether differences in the dims [i, ...) exist that move `position` to 0.
  bool Find(size_t i, int64_t position, bool all_zero) {
    if (++visited_ > kMostVisits) return false;
    if (i == dims_.size()) return position == 0 && !all_zero;
    const Dim& dim = dims_[i];
    const int64_t rest = reach_[i + 1];
    // position + step * stride must be within [-rest, rest]. Differences with all signs inverted
    // are solutions too, so the first step other than 0 can be positive.
    const int64_t least = all_zero ? 0 : -dim.most;
    const int64_t from = std::max(least, -FloorDiv(position + rest, dim.stride));
    const int64_t to = std::min(dim.most, FloorDiv(rest - position, dim.stride));
    for (int64_t step = from; step <= to; ++step) {
      if (Find(i + 1, position + step * dim.stride, all_zero && step == 0)) return true;
      if (visited_ > kMostVisits) return false;
    }
    return false;
  }
  static int64_t FloorDiv(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

  const Dims& dims_;
  absl::InlinedVector<int64_t, 17> reach_;  // largest sum of stride * difference of dims [i, ...)
  int visited_ = 0;
};

}  // namespace

Shape RowMajorStrides(absl::Span<const int64_t> shape) {
  Shape strides(shape.size());
  int64_t stride = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= shape[d];
  }
  return strides;
}

bool IsRowMajor(absl::Span<const int64_t> shape, absl::Span<const int64_t> strides) {
  if (NumElements(shape) == 0) return true;
  int64_t stride = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    if (shape[d] == 1) continue;
    if (strides[d] != stride) return false;
    stride *= shape[d];
  }
  return true;
}

std::optional<StridedExtent> ExtentOf(absl::Span<const int64_t> shape,
                                      absl::Span<const int64_t> strides) {
  if (NumElements(shape) == 0) return StridedExtent{};
  constexpr int64_t kMost = INT64_MAX / 32;
  StridedExtent extent{0, 1};
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) continue;
    int64_t reach = 0;
    if (!CheckedMul(strides[d], shape[d] - 1, &reach)) return std::nullopt;
    int64_t& end = reach < 0 ? extent.low : extent.high;
    if (!CheckedAdd(end, reach, &end)) return std::nullopt;
    if (extent.low < -kMost || extent.high > kMost) return std::nullopt;
  }
  return extent;
}

Overlap FindOverlap(absl::Span<const int64_t> shape, absl::Span<const int64_t> strides) {
  if (NumElements(shape) == 0) return Overlap::kNo;
  Dims dims;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) continue;
    if (strides[d] == 0) return Overlap::kYes;
    dims.push_back({std::abs(strides[d]), shape[d] - 1});
  }
  std::sort(dims.begin(), dims.end(),
            [](const Dim& a, const Dim& b) { return a.stride > b.stride; });
  // The usual case, without a search: each stride exceeds the span of all smaller dims.
  int64_t span = 0;
  bool nested = true;
  for (size_t i = dims.size(); i-- > 0;) {
    nested = nested && dims[i].stride > span;
    span += dims[i].stride * dims[i].most;
  }
  return nested ? Overlap::kNo : OverlapSearch(dims).Run();
}

}  // namespace meshift
