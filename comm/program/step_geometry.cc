#include "comm/program/step_geometry.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/status.h"

namespace meshift::lowering_internal {

Members::Members(const DeviceMesh& mesh, absl::Span<const int> mesh_dims,
                 absl::Span<const int64_t> me)
    : mesh_(mesh), mesh_dims_(mesh_dims.begin(), mesh_dims.end()) {
  for (const int d : mesh_dims) size_ *= mesh.dim(d).size;
  if (mesh.IsRowMajor()) return;
  std::vector<int64_t> ranks(size_);
  Coordinate at(me.begin(), me.end());
  for (int64_t index = 0; index < size_; ++index) {
    SetCoordinate(index, &at);
    ranks[index] = mesh.RankAt(at);
  }
  if (std::is_sorted(ranks.begin(), ranks.end())) return;
  indices_.resize(size_);
  std::iota(indices_.begin(), indices_.end(), 0);
  std::sort(indices_.begin(), indices_.end(),
            [&](int64_t a, int64_t b) { return ranks[a] < ranks[b]; });
  numbers_.resize(size_);
  for (int64_t number = 0; number < size_; ++number) numbers_[indices_[number]] = number;
}

int64_t Members::stride(int d) const {
  int64_t stride = 1;
  for (size_t i = mesh_dims_.size(); i-- > 0;) {
    if (mesh_dims_[i] == d) return stride;
    stride *= mesh_.dim(mesh_dims_[i]).size;
  }
  return 0;
}

int64_t Members::IndexOf(absl::Span<const int64_t> at) const {
  int64_t index = 0;
  for (const int d : mesh_dims_) index = index * mesh_.dim(d).size + at[d];
  return index;
}

void Members::SetCoordinate(int64_t index, Coordinate* at) const {
  for (size_t i = mesh_dims_.size(); i-- > 0;) {
    const int64_t n = mesh_.dim(mesh_dims_[i]).size;
    (*at)[mesh_dims_[i]] = index % n;
    index /= n;
  }
}

int64_t GroupNumber(const DeviceMesh& mesh, absl::Span<const int> mesh_dims,
                    absl::Span<const int64_t> me) {
  int64_t number = 0;
  for (int d = 0; d < mesh.NumDims(); ++d) {
    if (std::find(mesh_dims.begin(), mesh_dims.end(), d) != mesh_dims.end()) continue;
    number = number * mesh.dim(d).size + me[d];
  }
  return number;
}

absl::StatusOr<StepGeometry> StepGeometry::Create(const Sharding& before, const Step& step,
                                                  absl::Span<const int64_t> me) {
  const Sharding& after = step.after;
  StepGeometry geometry;
  geometry.mesh_ = &after.mesh();
  const int rank = static_cast<int>(after.shape().size());
  geometry.box_before_ = Box{Shape(rank), Shape(rank)};
  geometry.box_after_ = geometry.box_before_;
  const auto set = [](Box* box, int t, const Interval& interval) {
    box->offset[t] = interval.begin;
    box->size[t] = interval.Length();
  };
  for (int t = 0; t < rank; ++t) {
    StepCuts cuts = CutsOfStep(before, after, t);
    MovedDim moved{.tensor_dim = t,
                   .parent = cuts.common.Piece({0, after.shape()[t]}, me),
                   .before = std::move(cuts.before),
                   .after = std::move(cuts.after)};
    set(&geometry.box_before_, t, moved.Before(me));
    set(&geometry.box_after_, t, moved.After(me));
    if (moved.before.size() == 0 && moved.after.size() == 0) continue;
    for (const int d : moved.before.mesh_dims) geometry.cut_before_ |= MeshMask{1} << d;
    for (const int d : moved.after.mesh_dims) geometry.cut_after_ |= MeshMask{1} << d;
    geometry.moved_.push_back(std::move(moved));
  }
  // The cuts do not say what an At of several coordinates leaves out.
  for (const auto& [sharding, box] :
       {std::pair(&before, &geometry.box_before_), std::pair(&after, &geometry.box_after_)}) {
    if (!sharding->HoldsAt(me)) *box = sharding->BoxAt(me);
  }
  MeshMask named = 0;
  for (const int d : step.mesh_dims) named |= MeshMask{1} << d;
  for (int d = 0; d < after.mesh().NumDims(); ++d) {
    if (Has((geometry.cut_before_ | geometry.cut_after_) & ~named, d)) {
      return InvalidArgument("mesh dim {} changes, but is not among the mesh dims of {}",
                             after.mesh().dim(d).name, step.ToString());
    }
  }
  return geometry;
}

Box StepGeometry::BoxAt(absl::Span<const int64_t> at, CutList MovedDim::*cuts) const {
  Box box = box_before_;
  for (const MovedDim& dim : moved_) {
    const Interval piece = (dim.*cuts).Piece(dim.parent, at);
    box.offset[dim.tensor_dim] = piece.begin;
    box.size[dim.tensor_dim] = piece.Length();
  }
  return box;
}

}  // namespace meshift::lowering_internal
