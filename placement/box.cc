// Boxes of meshift/sharding.h: counting, intersection, and positions in row-major order. Nothing is
// checked here; the header has the preconditions.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "meshift/sharding.h"
#include "placement/cuts.h"

namespace meshift {
namespace {

Interval Along(const Box& box, size_t i) { return {box.offset[i], box.offset[i] + box.size[i]}; }

}  // namespace

int64_t NumElements(absl::Span<const int64_t> shape) {
  int64_t product = 1;
  for (const int64_t size : shape) product *= size;
  return product;
}

std::string Box::ToString() const {
  std::string text = "[";
  for (size_t i = 0; i < size.size(); ++i) {
    text += fmt::format("{}{}:{}", i == 0 ? "" : ", ", offset[i], offset[i] + size[i]);
  }
  return text + "]";
}

Box Intersect(const Box& a, const Box& b) {
  // A box of another tensor rank is empty: of a scalar that a rank does not hold, for example.
  if (a.size.size() != b.size.size()) return a.IsEmpty() ? a : b;
  Box common = a;
  for (size_t i = 0; i < a.size.size(); ++i) {
    const Interval part = Intersect(Along(a, i), Along(b, i));
    common.offset[i] = part.begin;
    common.size[i] = part.Length();
  }
  return common;
}

int64_t CommonElements(const Box& a, const Box& b) {
  if (a.size.size() != b.size.size()) return 0;
  int64_t elements = 1;
  for (size_t k = 0; k < a.size.size(); ++k) elements *= CommonIndices(Along(a, k), Along(b, k));
  return elements;
}

bool Contains(const Box& outer, const Box& inner) {
  if (inner.IsEmpty()) return true;
  if (outer.size.size() != inner.size.size()) return false;
  for (size_t i = 0; i < inner.size.size(); ++i) {
    if (!Along(outer, i).Contains(Along(inner, i))) return false;
  }
  return true;
}

bool IsContiguousIn(const Box& inner, const Box& outer) {
  if (inner.NumElements() < 2) return true;
  // Contiguous means, from the outermost dim: dims of one index, one interval of any length, then
  // whole dims.
  size_t i = 0;
  while (inner.size[i] == 1) ++i;
  return std::equal(inner.size.begin() + i + 1, inner.size.end(), outer.size.begin() + i + 1);
}

int64_t OffsetIn(const Box& inner, const Box& outer) {
  int64_t position = 0;
  for (size_t i = 0; i < inner.size.size(); ++i) {
    position = position * outer.size[i] + (inner.offset[i] - outer.offset[i]);
  }
  return position;
}

}  // namespace meshift
