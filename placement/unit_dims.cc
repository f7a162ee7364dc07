#include "placement/unit_dims.h"

#include <algorithm>
#include <cstddef>

#include "base/checked_math.h"
#include "base/status.h"
#include "meshift/status.h"

namespace meshift {
namespace {

// The most rows that a piece has which mesh dim d cuts. REQUIRES: the mesh dim cuts a tensor dim.
int64_t MostRowsCutBy(const Sharding& sharding, int d) {
  const int k = sharding.placement(d).tensor_dim();
  int64_t rows = sharding.shape()[k];
  for (const int outer : sharding.CutsOf(k)) {
    if (outer == d) break;
    const Placement& p = sharding.placement(outer);
    rows = p.IsRagged() ? *std::max_element(p.sizes().begin(), p.sizes().end())
                        : CeilDiv(rows, sharding.mesh().dim(outer).size);
  }
  return rows;
}

}  // namespace

std::optional<int64_t> OwnerOn(const Sharding& sharding, int mesh_dim) {
  const Placement& placement = sharding.placement(mesh_dim);
  if (sharding.mesh().dim(mesh_dim).size == 1) return std::nullopt;
  if (placement.IsAt()) {
    if (placement.coordinates().size() > 1) return std::nullopt;
    return placement.coordinates().front();
  }
  if (!placement.IsShard()) return std::nullopt;
  if (!placement.IsRagged()) {
    // A ceil cut leaves a single row to coordinate 0.
    return MostRowsCutBy(sharding, mesh_dim) == 1 ? std::optional<int64_t>(0) : std::nullopt;
  }
  const Placement::Sizes& sizes = placement.sizes();
  const auto holds = [](int64_t size) { return size > 0; };
  if (std::count_if(sizes.begin(), sizes.end(), holds) != 1) return std::nullopt;
  return std::find_if(sizes.begin(), sizes.end(), holds) - sizes.begin();
}

std::optional<Placement> AsAt(const Sharding& sharding, int mesh_dim) {
  const Placement& placement = sharding.placement(mesh_dim);
  if (placement.IsAt()) return placement;
  const std::optional<int64_t> owner = OwnerOn(sharding, mesh_dim);
  return owner ? std::optional(Placement::At({*owner})) : std::nullopt;
}

bool HasManyOwners(const Sharding& sharding) {
  return std::any_of(sharding.placements().begin(), sharding.placements().end(),
                     [](const Placement& p) { return p.IsAt() && p.coordinates().size() > 1; });
}

Sharding WithOneOwner(const Sharding& sharding, const Sharding* prefer) {
  std::vector<Placement> placements(sharding.placements().begin(), sharding.placements().end());
  for (size_t d = 0; d < placements.size(); ++d) {
    if (!placements[d].IsAt()) continue;
    const Placement::Sizes& owners = placements[d].coordinates();
    int64_t owner = owners.front();
    const std::optional<Placement> preferred =
        prefer != nullptr ? AsAt(*prefer, static_cast<int>(d)) : std::nullopt;
    if (preferred) {
      const auto common = std::find_if(owners.begin(), owners.end(),
                                       [&](int64_t i) { return preferred->Holds(i); });
      if (common != owners.end()) owner = *common;
    }
    placements[d] = Placement::At({owner});
  }
  std::vector<Cuts> cuts;
  for (int k = 0; k < static_cast<int>(sharding.shape().size()); ++k) {
    cuts.emplace_back(sharding.CutsOf(k).begin(), sharding.CutsOf(k).end());
  }
  return sharding.WithPlacements(std::move(placements), std::move(cuts)).value();
}

UnitDims UnitDims::Of(absl::Span<const Sharding* const> shardings) {
  UnitDims units = Of(shardings, /*ceil_cuts=*/true);
  if (shardings.empty() || units.size() + shardings[0]->shape().size() <= kMaxTensorRank) {
    return units;
  }
  return Of(shardings, /*ceil_cuts=*/false);
}

UnitDims UnitDims::Of(absl::Span<const Sharding* const> shardings, bool ceil_cuts) {
  std::vector<DeviceMesh> meshes;
  for (const Sharding* sharding : shardings) {
    if (std::find(meshes.begin(), meshes.end(), sharding->mesh()) == meshes.end()) {
      meshes.push_back(sharding->mesh());
    }
  }
  UnitDims units;
  for (const DeviceMesh& mesh : meshes) {
    std::vector<const Sharding*> on_mesh;
    for (const Sharding* s : shardings) {
      if (s->mesh() == mesh) on_mesh.push_back(s);
    }
    for (int d = 0; d < mesh.NumDims(); ++d) {
      const auto owns = [&](const Sharding* s) {
        const Placement& p = s->placement(d);
        const bool may_own =
            p.IsRagged() || (ceil_cuts && (s == on_mesh.front() || s == on_mesh.back()));
        return p.IsAt() || (may_own && OwnerOn(*s, d));
      };
      if (std::any_of(on_mesh.begin(), on_mesh.end(), owns)) units.dims_.emplace_back(mesh, d);
    }
  }
  return units;
}

UnitDims UnitDims::On(const DeviceMesh& mesh) const {
  UnitDims units = *this;
  std::erase_if(units.dims_, [&](const auto& dim) { return !(dim.first == mesh); });
  return units;
}

std::optional<int> UnitDims::MeshDimOf(int unit, const DeviceMesh& mesh) const {
  if (!(dims_[unit].first == mesh)) return std::nullopt;
  return dims_[unit].second;
}

absl::StatusOr<Sharding> UnitDims::Expand(const Sharding& sharding) const {
  const int rank = static_cast<int>(sharding.shape().size());
  if (rank + size() > kMaxTensorRank) {
    return Unimplemented(
        "{} has {} dims, and {} mesh dims are owned by one coordinate; this version plans for at "
        "most {} in all",
        sharding.tensor().ToString(), rank, size(), kMaxTensorRank);
  }
  TensorType tensor{sharding.dtype(), Shape(size(), 1)};
  tensor.shape.insert(tensor.shape.end(), sharding.shape().begin(), sharding.shape().end());
  std::vector<Placement> placements(sharding.placements().begin(), sharding.placements().end());
  for (Placement& p : placements) {
    if (p.IsShard()) p = Placement::RaggedShard(p.tensor_dim() + size(), p.sizes());
  }
  std::vector<Cuts> cuts(size() + rank);
  for (int k = 0; k < rank; ++k) {
    cuts[size() + k].assign(sharding.CutsOf(k).begin(), sharding.CutsOf(k).end());
  }
  for (int unit = 0; unit < size(); ++unit) {
    const std::optional<int> d = MeshDimOf(unit, sharding.mesh());
    if (!d) continue;
    const std::optional<int64_t> owner = OwnerOn(sharding, *d);
    if (!owner) continue;
    Placement::Sizes sizes(sharding.mesh().dim(*d).size, 0);
    sizes[*owner] = 1;
    if (const Placement& p = placements[*d]; p.IsShard()) {
      Cuts& of = cuts[p.tensor_dim()];
      of.erase(std::find(of.begin(), of.end(), *d));
    }
    placements[*d] = Placement::RaggedShard(unit, std::move(sizes));
    cuts[unit] = {*d};
  }
  return Sharding::Create(sharding.mesh(), std::move(tensor), std::move(placements),
                          std::move(cuts));
}

Sharding UnitDims::Collapse(const Sharding& expanded,
                            absl::Span<const Sharding* const> like) const {
  for (const Sharding* sharding : like) {
    if (!(sharding->mesh() == expanded.mesh())) continue;
    const absl::StatusOr<Sharding> same = Expand(*sharding);
    if (same.ok() && *same == expanded) return *sharding;
  }
  // Cuts as in `like` where they leave the same boxes; else its ragged cuts alone.
  for (const bool ceil_cuts : {true, false}) {
    const absl::StatusOr<Sharding> noted = Collapse(expanded, like, ceil_cuts);
    if (!noted.ok()) continue;
    const absl::StatusOr<Sharding> same = Expand(*noted);
    if (same.ok() && *same == expanded) return *noted;
  }
  return Collapse(expanded, {}, false).value();
}

absl::StatusOr<Sharding> UnitDims::Collapse(const Sharding& expanded,
                                            absl::Span<const Sharding* const> like,
                                            bool ceil_cuts) const {
  const TensorType tensor{expanded.dtype(),
                          Shape(expanded.shape().begin() + size(), expanded.shape().end())};
  std::vector<Cuts> cuts;
  for (size_t k = size(); k < expanded.shape().size(); ++k) {
    const absl::Span<const int> of = expanded.CutsOf(static_cast<int>(k));
    cuts.emplace_back(of.begin(), of.end());
  }
  std::vector<Placement> placements;
  for (int d = 0; d < expanded.mesh().NumDims(); ++d) {
    const Placement& p = expanded.placement(d);
    if (!p.IsShard() || p.tensor_dim() >= size()) {
      placements.push_back(p.IsShard() ? Placement::RaggedShard(p.tensor_dim() - size(), p.sizes())
                                       : p);
      continue;
    }
    // A ceil cut leaves the one index to coordinate 0.
    const auto one = std::find(p.sizes().begin(), p.sizes().end(), 1);
    const int64_t owner = p.IsRagged() ? one - p.sizes().begin() : 0;
    placements.push_back(Placement::At({owner}));
    for (const Sharding* sharding : like) {
      const Placement& noted = sharding->placement(d);
      if (!(sharding->mesh() == expanded.mesh()) || OwnerOn(*sharding, d) != owner ||
          !(noted.IsRagged() || (ceil_cuts && noted.IsShard()))) {
        continue;
      }
      // A ragged cut is the outermost one; a ceil cut of single rows is the innermost one.
      Cuts& of = cuts[noted.tensor_dim()];
      of.insert(noted.IsRagged() ? of.begin() : of.end(), d);
      placements.back() = noted;
      break;
    }
  }
  return Sharding::Create(expanded.mesh(), tensor, std::move(placements), std::move(cuts));
}

}  // namespace meshift
