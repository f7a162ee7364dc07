#include "comm/program/message_parts.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/container/inlined_vector.h"

namespace meshift::lowering_internal {
namespace {

// A choice of the coordinates on some mesh dims: what it adds to a member's index, and the interval
// of a tensor dim that it selects.
struct Choice {
  int64_t index = 0;
  Interval part;
};
struct Choices {
  int tensor_dim = -1;  // -1: the box does not depend on the choice
  absl::InlinedVector<Choice, 8> list;
};
using ChoiceLists = absl::InlinedVector<Choices, 4>;

// The choices of coordinates on the mesh dims of `cuts` that cut before the step, if the resulting
// piece of `dim` overlaps `mine`. Other coordinates are this rank's.
Choices ChoicesOf(const StepGeometry& geometry, const MovedDim& dim, const CutList& cuts,
                  const Members& members, absl::Span<const int64_t> me, const Interval& mine) {
  Coordinate at(me.begin(), me.end());
  MeshDims loop;
  for (const int d : cuts.mesh_dims) {
    if (!Has(geometry.cut_before(), d)) continue;
    loop.push_back(d);
    at[d] = 0;
  }
  Choices choices;
  choices.tensor_dim = dim.tensor_dim;
  while (true) {
    const Interval part = Intersect(mine, cuts.Piece(dim.parent, at));
    if (part.Length() > 0) {
      int64_t index = 0;
      for (const int d : loop) index += at[d] * members.stride(d);
      choices.list.push_back({index, part});
    }
    size_t i = loop.size();
    while (i > 0 && ++at[loop[i - 1]] == geometry.mesh().dim(loop[i - 1]).size) at[loop[--i]] = 0;
    if (i == 0) return choices;
  }
}

// Returns one part per combination of choices.
std::vector<Part> Combine(const StepGeometry& geometry, const Members& members,
                          absl::Span<const int64_t> me, const ChoiceLists& lists) {
  std::vector<Part> parts;
  size_t size = 1;
  for (const Choices& choices : lists) size *= choices.list.size();
  Box box = geometry.box_before();
  for (const MovedDim& dim : geometry.moved()) box.size[dim.tensor_dim] = 1;
  if (size == 0 || box.IsEmpty()) return parts;
  parts.reserve(size);
  int64_t base = 0;
  for (const int d : members.mesh_dims()) {
    if (!Has(geometry.cut_before(), d)) base += me[d] * members.stride(d);
  }
  absl::InlinedVector<size_t, 4> chosen(lists.size(), 0);
  bool sorted = true;
  while (true) {
    int64_t index = base;
    for (size_t i = 0; i < lists.size(); ++i) {
      const Choice& choice = lists[i].list[chosen[i]];
      index += choice.index;
      if (lists[i].tensor_dim < 0) continue;
      box.offset[lists[i].tensor_dim] = choice.part.begin;
      box.size[lists[i].tensor_dim] = choice.part.Length();
    }
    const int64_t number = members.NumberOf(index);
    sorted &= parts.empty() || parts.back().number < number;
    parts.push_back({number, box, 0});
    size_t i = lists.size();
    while (i > 0 && ++chosen[i - 1] == lists[i - 1].list.size()) chosen[--i] = 0;
    if (i == 0) break;
  }
  if (!sorted) {
    std::sort(parts.begin(), parts.end(),
              [](const Part& a, const Part& b) { return a.number < b.number; });
  }
  return parts;
}

}  // namespace

std::vector<Part> Senders(const StepGeometry& geometry, const Members& members,
                          absl::Span<const int64_t> me) {
  ChoiceLists lists;
  for (const MovedDim& dim : geometry.moved()) {
    lists.push_back(ChoicesOf(geometry, dim, dim.before, members, me, dim.After(me)));
  }
  return Combine(geometry, members, me, lists);
}

// A receiver has this rank's coordinates on all dims of the group that do not cut before. Its other
// coordinates are free. On dims that do not cut after, every choice is a receiver of a copy.
std::vector<Part> Receivers(const StepGeometry& geometry, const Members& members,
                            absl::Span<const int64_t> me) {
  ChoiceLists lists;
  for (const MovedDim& dim : geometry.moved()) {
    lists.push_back(ChoicesOf(geometry, dim, dim.after, members, me, dim.Before(me)));
  }
  for (const int d : members.mesh_dims()) {
    if (!Has(geometry.cut_before() & ~geometry.cut_after(), d)) continue;
    Choices& copies = lists.emplace_back();
    for (int64_t i = 0; i < geometry.mesh().dim(d).size; ++i) {
      copies.list.push_back({i * members.stride(d), {}});
    }
  }
  return Combine(geometry, members, me, lists);
}

bool AnyMemberNeedsData(const StepGeometry& geometry, const Members& members,
                        absl::Span<const int64_t> me) {
  Box still = geometry.box_before();
  for (const MovedDim& dim : geometry.moved()) still.size[dim.tensor_dim] = 1;
  if (still.IsEmpty()) return false;
  Coordinate at(me.begin(), me.end());
  for (int64_t index = 0; index < members.size(); ++index) {
    members.SetCoordinate(index, &at);
    bool empty = false;
    bool needs_data = false;
    for (const MovedDim& dim : geometry.moved()) {
      const Interval after = dim.After(at);
      empty |= after.Length() == 0;
      needs_data |= !dim.Before(at).Contains(after);
    }
    if (needs_data && !empty) return true;
  }
  return false;
}

}  // namespace meshift::lowering_internal
