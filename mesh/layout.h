// A layout: a function from an index to an integer, given by sizes and strides, as in NVIDIA's
// CuTe, but in row-major order: the index counts through the modes with the last mode fastest.
//
//   MESHIFT_ASSIGN_OR_RETURN(Layout layout, Layout::Parse("(2,3):(12,1)"));
//   layout.Size();                      // 6
//   layout(4);                          // 13: index 4 is the coordinate (1, 1)
//   layout.Indices();                   // {0, 1, 2, 12, 13, 14}
//   Complement(layout, 24);             // (4):(3): {0, 3, 6, 9} shifts tile 0..23
//
// A group of a row-major mesh is a base plus a layout; its complement lists the bases of all groups
// of its partition. So groups of any size cost O(modes): how they lie on domains
// (planner/cost/group_shape.h), and which partitions are equal (planner/plan/partition.h).
//
// Laws are given as @post conditions; layout_test.cc checks them on all small layouts.
// A Layout is an immutable value. Safe for concurrent use.
#ifndef MESHIFT_MESH_LAYOUT_H_
#define MESHIFT_MESH_LAYOUT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace meshift {

class Layout {
 public:
  struct Mode {
    int64_t size = 1;
    int64_t stride = 0;
    friend bool operator==(const Mode&, const Mode&) = default;
    template <typename H>
    friend H AbslHashValue(H h, const Mode& mode) {
      return H::combine(std::move(h), mode.size, mode.stride);
    }
  };
  using Modes = absl::InlinedVector<Mode, 4>;

  // No modes: one index, 0 -> 0.
  Layout() = default;
  // Sizes >= 1, strides >= 0, Size() and Cosize() below 2^63; else INVALID_ARGUMENT.
  static absl::StatusOr<Layout> Create(Modes modes);
  // The compact layout of `sizes`. @post layout(i) == i.
  static absl::StatusOr<Layout> RowMajor(absl::Span<const int64_t> sizes);
  // Reads what ToString prints: "(8,5):(5,1)", "(8):(5)", "():()".
  static absl::StatusOr<Layout> Parse(std::string_view text);

  int NumModes() const { return static_cast<int>(modes_.size()); }
  const Mode& mode(int m) const { return modes_[m]; }  // REQUIRES: 0 <= m < NumModes()
  const Modes& modes() const { return modes_; }

  int64_t Size() const;                     // how many indices: the product of the sizes
  int64_t Cosize() const;                   // the largest value, plus 1
  int64_t operator()(int64_t index) const;  // REQUIRES: 0 <= index < Size()
  std::vector<int64_t> Indices() const;     // the values at 0 .. Size()-1
  // Whether no two indices have one value. O(modes) where the strides nest (each is beyond what the
  // modes of smaller stride reach), where one is 0, and where there are fewer values than indices;
  // O(Size() log Size()) else.
  bool IsInjective() const;
  // The layout of some of the modes, in the order given. INVALID_ARGUMENT: no such mode, or twice.
  absl::StatusOr<Layout> Select(absl::Span<const int> modes) const;

  std::string ToString() const;
  friend bool operator==(const Layout&, const Layout&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const Layout& layout) {
    return H::combine(std::move(h), layout.modes_);
  }

 private:
  explicit Layout(Modes modes) : modes_(std::move(modes)) {}
  Modes modes_;
};

// The modes of `outer`, then those of `inner`.
// @post result(i * inner.Size() + j) == outer(i) + inner(j).
absl::StatusOr<Layout> Concatenate(const Layout& outer, const Layout& inner);

// The same function in the fewest modes.
// @post result(i) == layout(i), result.Size() == layout.Size().
// @post no mode has size 1, and no two neighbours could be one mode.
Layout Coalesce(const Layout& layout);

// The shifts under which the values of `layout` tile 0 .. world_size-1.
// @post Concatenate(result, layout) is a bijection onto 0 .. world_size-1.
// @post result(i) < result(i + 1); result is coalesced.
// INVALID_ARGUMENT where no layout is such a tiling: by ascending stride, each stride must be a
// multiple of the reach (stride * size) of the one before, and world_size of the last reach.
absl::StatusOr<Layout> Complement(const Layout& layout, int64_t world_size);

// `a` after `b`.
// @post result(i) == a(b(i)), result.Size() == b.Size().
// @post each mode of b is one or more modes of result, in b's order.
// INVALID_ARGUMENT where b's values leave a's indices, or where a mode of b does not cut a's modes
// (coalesced) evenly, or two of b's modes add up beyond one of a's.
absl::StatusOr<Layout> Composition(const Layout& a, const Layout& b);

}  // namespace meshift

#endif  // MESHIFT_MESH_LAYOUT_H_
