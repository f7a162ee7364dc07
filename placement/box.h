// A box of global indices: for each tensor dim a half-open interval [offset, offset + size).
//
//   Box box{{4, 0}, {2, 8}};            // rows 4..5, columns 0..7
//   box.NumElements();                  // 16
//   Intersect(box, {{5, 4}, {9, 2}});   // {{5, 4}, {1, 2}}
//
// A local tensor is the row-major (C order) content of its rank's box.
#ifndef MESHIFT_PLACEMENT_BOX_H_
#define MESHIFT_PLACEMENT_BOX_H_

#include <cstdint>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"

namespace meshift {

using Shape = absl::InlinedVector<int64_t, 5>;

// The product of the sizes; 1 for a rank-0 shape.
int64_t NumElements(absl::Span<const int64_t> shape);

struct Box {
  Shape offset;
  Shape size;

  int64_t NumElements() const { return meshift::NumElements(size); }
  bool IsEmpty() const { return NumElements() == 0; }
  // "[4:6, 0:8]"
  std::string ToString() const;
  friend bool operator==(const Box&, const Box&) = default;
};

// The common part; where there is none, a box with a size of 0. REQUIRES: equal ranks.
Box Intersect(const Box& a, const Box& b);
int64_t CommonElements(const Box& a, const Box& b);  // of that part
// Whether every element of `inner` is in `outer` (always true of an empty one).
bool Contains(const Box& outer, const Box& inner);
// Whether `inner`'s elements lie in one run, in order, in the row-major content of `outer`; a box
// of fewer than two elements does. REQUIRES: Contains(outer, inner).
bool IsContiguousIn(const Box& inner, const Box& outer);
// The position of inner's first element in the row-major content of outer.
// REQUIRES: Contains(outer, inner) and !inner.IsEmpty().
int64_t OffsetIn(const Box& inner, const Box& outer);

}  // namespace meshift

#endif  // MESHIFT_PLACEMENT_BOX_H_
