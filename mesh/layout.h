// A layout: a function from an index to an integer, given by sizes and strides, as in NVIDIA's
// CuTe, but in row-major order: the index counts through the modes with the last mode fastest.
//
//   MESHIFT_ASSIGN_OR_RETURN(Layout layout, Layout::Parse("(2,3):(12,1)"));
//   layout.Size();                      // 6
//   layout(4);                          // 13: index 4 is the coordinate (1, 1)
//   layout.Indices();                   // {0, 1, 2, 12, 13, 14}
//   Complement(layout, 24);             // (4):(3): shifts by 0, 3, 6 and 9 tile 0..23
//
// A group of a row-major mesh is a base plus a layout; the complement of the layout lists the bases
// of all groups of the partition. So most work on groups of any size takes O(modes):
// planner/cost/group_shape.h maps groups to domains, planner/plan/partition.h compares partitions.
//
// Laws are stated as @post conditions; layout_test.cc checks them on all small layouts. Functions
// that return a StatusOr refuse with INVALID_ARGUMENT. Internal to Meshift. A Layout is an
// immutable value. Safe for concurrent use.
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
  // Needs sizes >= 1, strides >= 0, and Size() and Cosize() below 2^63.
  static absl::StatusOr<Layout> Create(Modes modes);
  // The compact layout of `sizes`. @post layout(i) == i.
  static absl::StatusOr<Layout> RowMajor(absl::Span<const int64_t> sizes);
  // Reads the format of ToString: "(8,5):(5,1)", "(8):(5)", "():()".
  static absl::StatusOr<Layout> Parse(std::string_view text);

  int NumModes() const { return static_cast<int>(modes_.size()); }
  const Mode& mode(int m) const { return modes_[m]; }  // REQUIRES: 0 <= m < NumModes()
  const Modes& modes() const { return modes_; }

  int64_t Size() const;                     // number of indices: the product of the sizes
  int64_t Cosize() const;                   // the largest value, plus 1
  int64_t operator()(int64_t index) const;  // REQUIRES: 0 <= index < Size()
  std::vector<int64_t> Indices() const;     // the values at 0 .. Size()-1, in O(Size())
  // Whether all indices have different values. O(modes log modes) if the strides nest (each exceeds
  // the largest value of the modes with smaller strides), if a stride is 0, or if there are fewer
  // values than indices; else O(Size() log Size()).
  bool IsInjective() const;
  // The layout of some of the modes, in the given order. INVALID_ARGUMENT: a mode does not exist or
  // is given twice.
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

// The same function with the fewest modes.
// @post result(i) == layout(i), result.Size() == layout.Size().
// @post no mode has size 1, and no two adjacent modes can be merged.
Layout Coalesce(const Layout& layout);

// The shifts under which the values of `layout` tile 0 .. world_size-1.
// @post Concatenate(result, layout) is a bijection onto 0 .. world_size-1.
// @post result(i) < result(i + 1); result is coalesced.
// INVALID_ARGUMENT: world_size is below 1, or no tiling exists. By ascending stride, each stride of
// a mode of size > 1 must be a positive multiple of the reach (stride * size) of the one before,
// and world_size a multiple of the last reach.
absl::StatusOr<Layout> Complement(const Layout& layout, int64_t world_size);

// `a` after `b`.
// @post result(i) == a(b(i)), result.Size() == b.Size().
// @post each mode of b is one or more modes of result, in b's order.
// INVALID_ARGUMENT: a value of b is not an index of a; a mode of b does not divide a's (coalesced)
// modes evenly; or modes of b add up beyond one mode of a.
absl::StatusOr<Layout> Composition(const Layout& a, const Layout& b);

}  // namespace meshift

#endif  // MESHIFT_MESH_LAYOUT_H_
