#include "placement/cuts.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <iterator>

namespace meshift {

int64_t NumPieces(absl::Span<const Cut> cuts) {
  int64_t pieces = 1;
  for (const Cut& cut : cuts) pieces = SaturatingMul(pieces, cut.size);
  return pieces;
}

Lengths PieceLengths(const Lengths& wholes, const Cut& cut) {
  Lengths lengths;
  for (size_t i = 1; i < cut.begins.size(); ++i) {
    const int64_t length = cut.begins[i] - cut.begins[i - 1];
    // Most coordinates of a large mesh dim may hold nothing.
    if (lengths.empty() || lengths.back() != length) lengths.push_back(length);
  }
  for (size_t i = 0; cut.begins.empty() && i < wholes.size(); ++i) {
    const Chunks chunks(wholes[i], cut.size);
    if (chunks.full > 0) lengths.push_back(chunks.chunk);
    if (chunks.rest > 0) lengths.push_back(chunks.rest);
    if (chunks.NotEmpty() < cut.size) lengths.push_back(0);
  }
  std::sort(lengths.begin(), lengths.end(), std::greater<>());
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  return lengths;
}

Lengths PieceLengths(int64_t extent, absl::Span<const Cut> cuts) {
  Lengths lengths = {extent};
  for (const Cut& cut : cuts) lengths = PieceLengths(lengths, cut);
  return lengths;
}

PieceList AllPieces(int64_t extent, absl::Span<const Cut> cuts) {
  PieceList pieces = {{0, extent}};
  for (const Cut& cut : cuts) {
    const auto num_wholes = static_cast<int64_t>(pieces.size());
    pieces.resize(num_wholes * cut.size);
    // In place, from the last piece to the first.
    for (int64_t at = num_wholes; at-- > 0;) {
      const Interval whole = pieces[at];
      Interval* const made = pieces.data() + at * cut.size;
      if (!cut.begins.empty()) {
        for (int64_t i = 0; i < cut.size; ++i) made[i] = cut.Piece(whole, i);
        continue;
      }
      const int64_t chunk = CeilDiv(whole.Length(), cut.size);
      int64_t begin = whole.begin;
      for (int64_t i = 0; i < cut.size; ++i) {
        const int64_t end = ChunkBegin({begin, whole.end}, chunk, 1);
        made[i] = {begin, end};
        begin = end;
      }
    }
  }
  return pieces;
}

Nest CutList::All() const {
  Nest cuts;
  for (int i = 0; i < size(); ++i) cuts.push_back(At(i));
  return cuts;
}

Interval CutList::Piece(Interval whole, absl::Span<const int64_t> at) const {
  for (int i = 0; i < size(); ++i) whole = At(i).Piece(whole, at[mesh_dims[i]]);
  return whole;
}

CutList CutList::First(int n) const {
  CutList first = *this;
  first.mesh_dims.resize(n);
  first.sizes.resize(n);
  if (n == 0) first.begins.clear();
  return first;
}

CutList CutList::After(int n) const {
  CutList others;
  others.mesh_dims.assign(mesh_dims.begin() + n, mesh_dims.end());
  others.sizes.assign(sizes.begin() + n, sizes.end());
  if (n == 0) others.begins = begins;
  return others;
}

CutList CutsOf(const Sharding& sharding, int tensor_dim) {
  CutList cuts;
  for (const int d : sharding.CutsOf(tensor_dim)) {
    const int64_t size = sharding.mesh().dim(d).size;
    if (size == 1) continue;
    cuts.mesh_dims.push_back(d);
    cuts.sizes.push_back(size);
  }
  if (cuts.size() > 0 && sharding.placement(cuts.mesh_dims[0]).IsRagged()) {
    cuts.begins = BeginsOf(sharding.placement(cuts.mesh_dims[0]).sizes());
  }
  return cuts;
}

StepCuts CutsOfStep(const Sharding& before, const Sharding& after, int tensor_dim) {
  const CutList a = CutsOf(before, tensor_dim);
  const CutList b = CutsOf(after, tensor_dim);
  const int common = a.begins == b.begins ? CommonLength(a.mesh_dims, b.mesh_dims) : 0;
  return {a.First(common), a.After(common), b.After(common)};
}

DimPairs PermutePairs(absl::Span<const MovedMeshDims> moved,
                      absl::FunctionRef<int64_t(int d)> size_of) {
  DimPairs pairs;
  MeshDims before;
  MeshDims after;
  for (const MovedMeshDims& dims : moved) {
    for (size_t i = 0; i < std::min(dims.before.size(), dims.after.size()); ++i) {
      pairs.emplace_back(dims.before[i], dims.after[i]);
    }
    before.insert(before.end(), dims.before.begin(), dims.before.end());
    after.insert(after.end(), dims.after.begin(), dims.after.end());
  }
  const auto only = [&](const MeshDims& some, const MeshDims& others) {
    MeshDims dims;
    std::copy_if(some.begin(), some.end(), std::back_inserter(dims),
                 [&](int d) { return std::find(others.begin(), others.end(), d) == others.end(); });
    std::sort(dims.begin(), dims.end(),
              [&](int d, int e) { return std::pair(size_of(d), d) < std::pair(size_of(e), e); });
    return dims;
  };
  const MeshDims only_before = only(before, after);
  const MeshDims only_after = only(after, before);
  for (size_t i = 0; i < std::min(only_before.size(), only_after.size()); ++i) {
    pairs.emplace_back(only_after[i], only_before[i]);
  }
  return pairs;
}

std::vector<int64_t> BeginsOf(absl::Span<const int64_t> lengths) {
  std::vector<int64_t> begins = {0};
  for (const int64_t length : lengths) begins.push_back(begins.back() + length);
  return begins;
}

}  // namespace meshift
