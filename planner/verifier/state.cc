#include "planner/verifier/state.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <string_view>

namespace meshift::verifier_internal {
namespace {

int64_t CeilQuotient(int64_t a, int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

// The distinct sizes > 0 of the pieces into which `cuts` divide `size`, descending. `ragged`: the
// sizes of the first cut, empty for ceil chunks.
absl::InlinedVector<int64_t, 4> PieceSizes(const MeshShape& mesh_shape, int64_t size,
                                           absl::Span<const int> cuts, const Sizes& ragged) {
  absl::InlinedVector<int64_t, 4> sizes;
  if (size > 0) sizes.push_back(size);
  if (!cuts.empty() && !ragged.empty()) {
    sizes.assign(ragged.begin(), ragged.end());
    sizes.erase(std::remove(sizes.begin(), sizes.end(), 0), sizes.end());
    std::sort(sizes.begin(), sizes.end(), std::greater<>());
    sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
    cuts.remove_prefix(1);
  }
  for (const int d : cuts) {
    absl::InlinedVector<int64_t, 4> pieces;
    for (const int64_t whole : sizes) {
      const int64_t chunk = CeilQuotient(whole, mesh_shape.sizes[d]);
      pieces.push_back(chunk);
      if (whole % chunk != 0) pieces.push_back(whole % chunk);
    }
    std::sort(pieces.begin(), pieces.end(), std::greater<>());
    pieces.erase(std::unique(pieces.begin(), pieces.end()), pieces.end());
    sizes = pieces;
  }
  return sizes;
}

}  // namespace

bool IsOwned(const Sharding& sharding, int d) {
  const Placement& placement = sharding.placement(d);
  if (sharding.mesh().dim(d).size == 1) return false;
  if (placement.IsAt()) return true;
  if (placement.IsRagged()) {
    const Sizes& sizes = placement.sizes();
    return std::count(sizes.begin(), sizes.end(), 0) + 1 == std::ssize(sizes);
  }
  if (!placement.IsShard()) return false;
  // The largest piece that the mesh dim cuts has one row.
  const absl::Span<const int> cuts = sharding.CutsOf(placement.tensor_dim());
  int64_t piece = sharding.shape()[placement.tensor_dim()];
  for (size_t i = 0; cuts[i] != d; ++i) {
    const int64_t n = sharding.mesh().dim(cuts[i]).size;
    const Sizes& sizes = sharding.placement(cuts[i]).sizes();
    piece = sizes.empty() ? CeilQuotient(piece, n) : *std::max_element(sizes.begin(), sizes.end());
  }
  return piece == 1;
}

MeshShape::MeshShape(const Sharding& sharding, OwnerDims o)
    : mesh(sharding.mesh()),
      shape(sharding.shape()),
      empty(std::find(shape.begin(), shape.end(), 0) != shape.end()),
      owners(std::move(o)) {
  shape.insert(shape.begin(), owners.num, 1);
  for (const DeviceMesh::Dim& dim : mesh.dims()) sizes.push_back(dim.size);
}

int64_t MeshShape::GroupSize(absl::Span<const int> mesh_dims) const {
  int64_t size = 1;
  for (const int d : mesh_dims) size *= sizes[d];
  return size;
}

Int128 BytesOfElements(DType dtype, Int128 elements) {
  return (elements * BitWidth(dtype) + 7) / 8;
}

std::string MeshShape::Names(absl::Span<const int> mesh_dims) const {
  std::string text;
  for (const int d : mesh_dims) {
    if (!text.empty()) text += ",";
    text += mesh.dim(d).name;
  }
  return text;
}

std::string MeshShape::DimText(int tensor_dim) const {
  if (IsOwnerDim(tensor_dim)) return "the owner";
  return fmt::format("tensor dim {}", tensor_dim - owners.num);
}

std::string DimState::ToString() const {
  switch (kind) {
    case Kind::kReplicated:
      return "R";
    case Kind::kCut:
      if (owned) return "At";
      return fmt::format("S({})", tensor_dim);
    case Kind::kPartial:
      break;
  }
  return op == ReduceOp::kSum ? "P" : fmt::format("P({})", Name(op));
}

State StateOf(const Sharding& sharding, const MeshShape& mesh_shape) {
  const DeviceMesh& mesh = sharding.mesh();
  State state{.dtype = sharding.dtype(), .dims = {}, .cuts = {}, .sizes = {}, .written = {}};
  state.dims.resize(mesh.NumDims());
  for (int d = 0; d < mesh.NumDims(); ++d) {
    if (mesh.dim(d).size == 1) continue;
    const Placement& placement = sharding.placement(d);
    const bool may_own =
        placement.IsAt() || placement.IsRagged() || Contains(mesh_shape.owners.ceil, d);
    if (mesh_shape.owners.num > 0 && may_own && IsOwned(sharding, d)) {
      state.dims[d] = {.kind = DimState::Kind::kCut, .owned = true};
    } else if (placement.IsShard()) {
      state.dims[d].kind = DimState::Kind::kCut;
      state.dims[d].tensor_dim = placement.tensor_dim();
    } else if (placement.IsPartial()) {
      state.dims[d].kind = DimState::Kind::kPartial;
      state.dims[d].op = placement.op();
    }
  }
  state.cuts.resize(mesh_shape.shape.size());
  state.sizes.resize(mesh_shape.shape.size());
  for (int k = 0; k < std::ssize(sharding.shape()); ++k) {
    const int t = mesh_shape.owners.num + k;
    Cuts written;
    for (const int d : sharding.CutsOf(k)) {
      if (mesh.dim(d).size == 1) continue;
      written.push_back(d);
      if (!state.dims[d].owned) state.cuts[t].push_back(d);
    }
    const auto sizes_of = [&](const Cuts& cuts) {
      return cuts.empty() ? Sizes() : sharding.placement(cuts.front()).sizes();
    };
    state.sizes[t] = sizes_of(state.cuts[t]);
    if (mesh_shape.owners.num > 0) state.written.emplace_back(written, sizes_of(written));
  }
  for (int d = 0; d < mesh.NumDims(); ++d) {
    if (!state.dims[d].owned) continue;
    const Placement& placement = sharding.placement(d);
    Sizes held(mesh.dim(d).size, 0);
    for (int64_t i = 0; i < std::ssize(held); ++i) {
      held[i] = placement.IsAt()       ? placement.Holds(i)
                : placement.IsRagged() ? placement.sizes()[i] > 0
                                       : i == 0;
    }
    state.cuts[mesh_shape.OwnerDim(d)] = {d};
    state.sizes[mesh_shape.OwnerDim(d)] = std::move(held);
  }
  return state;
}

int64_t NumOwners(const MeshShape& mesh_shape, const State& state, int d) {
  const Sizes& held = state.sizes[mesh_shape.OwnerDim(d)];
  return std::count(held.begin(), held.end(), 1);
}

Change ChangeOf(const MeshShape& mesh_shape, const State& before, const State& after) {
  Change change;
  for (size_t t = 0; t < before.cuts.size(); ++t) {
    const Cuts& b = before.cuts[t];
    const Cuts& a = after.cuts[t];
    const bool alike = before.sizes[t] == after.sizes[t];
    if (b == a && alike) continue;
    const auto split = alike ? std::mismatch(b.begin(), b.end(), a.begin(), a.end())
                             : std::pair(b.begin(), a.begin());
    CutChange& cut = change.cuts.emplace_back();
    cut.tensor_dim = static_cast<int>(t);
    cut.before.assign(split.first, b.end());
    cut.after.assign(split.second, a.end());
    cut.parents =
        PieceSizes(mesh_shape, mesh_shape.shape[t],
                   absl::MakeConstSpan(b.data(), split.first - b.begin()), before.sizes[t]);
    if (split.first == b.begin()) {
      cut.sizes_before = before.sizes[t];
      cut.sizes_after = after.sizes[t];
    }
    for (const Cuts* cuts : {&cut.before, &cut.after}) {
      for (const int d : *cuts) {
        if (!Contains(change.moving, d)) change.moving.push_back(d);
      }
    }
  }
  std::sort(change.moving.begin(), change.moving.end());
  return change;
}

int64_t LargestPiece(const MeshShape& mesh_shape, const State& state, int t) {
  absl::Span<const int> cuts = state.cuts[t];
  int64_t size = mesh_shape.shape[t];
  if (const Sizes& ragged = state.sizes[t]; !ragged.empty()) {
    size = *std::max_element(ragged.begin(), ragged.end());
    cuts.remove_prefix(1);
  }
  for (const int d : cuts) size = CeilQuotient(size, mesh_shape.sizes[d]);
  return size;
}

int64_t LargestLocal(const MeshShape& mesh_shape, const State& state) {
  int64_t elements = 1;
  for (size_t t = 0; t < state.cuts.size(); ++t) {
    elements *= LargestPiece(mesh_shape, state, static_cast<int>(t));
  }
  return elements;
}

namespace {

// The smallest piece of `size` indices. A ceil cut makes equal pieces, except the last one that is
// not empty, which may be shorter.
int64_t SmallestPieceOf(const MeshShape& mesh_shape, int64_t size, absl::Span<const int> cuts) {
  if (cuts.empty()) return size;
  const int64_t n = mesh_shape.sizes[cuts[0]];
  if (n == 1) return SmallestPieceOf(mesh_shape, size, cuts.subspan(1));
  const int64_t chunk = CeilQuotient(size, n);
  const int64_t rest = size - (n - 1) * chunk;
  if (rest <= 0) return 0;
  return std::min(SmallestPieceOf(mesh_shape, chunk, cuts.subspan(1)),
                  SmallestPieceOf(mesh_shape, rest, cuts.subspan(1)));
}

}  // namespace

int64_t SmallestLocal(const MeshShape& mesh_shape, const State& state) {
  int64_t elements = 1;
  for (size_t t = 0; t < state.cuts.size(); ++t) {
    const absl::Span<const int> cuts = state.cuts[t];
    int64_t smallest = mesh_shape.shape[t];
    if (state.sizes[t].empty()) {
      smallest = SmallestPieceOf(mesh_shape, smallest, cuts);
    } else {
      for (const int64_t size : state.sizes[t]) {
        smallest = std::min(smallest, SmallestPieceOf(mesh_shape, size, cuts.subspan(1)));
      }
    }
    elements *= smallest;
  }
  return elements;
}

bool Contains(absl::Span<const int> dims, int dim) {
  return std::find(dims.begin(), dims.end(), dim) != dims.end();
}

}  // namespace meshift::verifier_internal
