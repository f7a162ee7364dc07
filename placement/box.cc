#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "meshift/sharding.h"

namespace meshift {

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
  Box common = a;
  for (size_t i = 0; i < a.size.size(); ++i) {
    const int64_t begin = std::max(a.offset[i], b.offset[i]);
    const int64_t end = std::min(a.offset[i] + a.size[i], b.offset[i] + b.size[i]);
    common.offset[i] = begin;
    common.size[i] = std::max<int64_t>(end - begin, 0);
  }
  return common;
}

int64_t CommonElements(const Box& a, const Box& b) {
  int64_t elements = 1;
  for (size_t k = 0; k < a.size.size(); ++k) {
    const int64_t end = std::min(a.offset[k] + a.size[k], b.offset[k] + b.size[k]);
    elements *= std::max<int64_t>(end - std::max(a.offset[k], b.offset[k]), 0);
  }
  return elements;
}

bool Contains(const Box& outer, const Box& inner) {
  if (inner.IsEmpty()) return true;
  for (size_t i = 0; i < inner.size.size(); ++i) {
    if (inner.offset[i] < outer.offset[i]) return false;
    if (inner.offset[i] + inner.size[i] > outer.offset[i] + outer.size[i]) return false;
  }
  return true;
}

bool IsContiguousIn(const Box& inner, const Box& outer) {
  if (inner.NumElements() < 2) return true;
  // Outermost first: dims of one index, then one interval of any length, then whole dims.
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
