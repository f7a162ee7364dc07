#include "placement/unit_dims.h"

#include <algorithm>
#include <cstddef>

#include "base/status.h"
#include "meshift/status.h"

namespace meshift {

std::optional<int64_t> OwnerOn(const Sharding& sharding, int mesh_dim) {
  const Placement& placement = sharding.placement(mesh_dim);
  if (sharding.mesh().dim(mesh_dim).size == 1) return std::nullopt;
  if (placement.IsAt()) {
    if (placement.coordinates().size() > 1) return std::nullopt;
    return placement.coordinates().front();
  }
  if (!placement.IsRagged()) return std::nullopt;
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
  std::vector<DeviceMesh> meshes;
  for (const Sharding* sharding : shardings) {
    if (std::find(meshes.begin(), meshes.end(), sharding->mesh()) == meshes.end()) {
      meshes.push_back(sharding->mesh());
    }
  }
  UnitDims units;
  for (const DeviceMesh& mesh : meshes) {
    for (int d = 0; d < mesh.NumDims(); ++d) {
      const auto owns = [&](const Sharding* s) {
        return s->mesh() == mesh && (s->placement(d).IsAt() || OwnerOn(*s, d));
      };
      if (std::any_of(shardings.begin(), shardings.end(), owns)) units.dims_.emplace_back(mesh, d);
    }
  }
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
  const TensorType tensor{expanded.dtype(),
                          Shape(expanded.shape().begin() + size(), expanded.shape().end())};
  std::vector<Cuts> cuts;
  for (size_t k = size(); k < expanded.shape().size(); ++k) {
    const absl::Span<const int> of = expanded.CutsOf(static_cast<int>(k));
    cuts.emplace_back(of.begin(), of.end());
  }
  std::vector<Placement> placements;
  std::vector<Placement> noted;  // as in `like`
  std::vector<Cuts> noted_cuts = cuts;
  for (int d = 0; d < expanded.mesh().NumDims(); ++d) {
    const Placement& p = expanded.placement(d);
    if (!p.IsShard() || p.tensor_dim() >= size()) {
      placements.push_back(p.IsShard() ? Placement::RaggedShard(p.tensor_dim() - size(), p.sizes())
                                       : p);
      noted.push_back(placements.back());
      continue;
    }
    // A ceil cut leaves the one index to coordinate 0.
    const auto one = std::find(p.sizes().begin(), p.sizes().end(), 1);
    const int64_t owner = p.IsRagged() ? one - p.sizes().begin() : 0;
    placements.push_back(Placement::At({owner}));
    noted.push_back(placements.back());
    for (const Sharding* sharding : like) {
      if (!(sharding->mesh() == expanded.mesh()) || !sharding->placement(d).IsShard() ||
          OwnerOn(*sharding, d) != owner) {
        continue;
      }
      noted.back() = sharding->placement(d);
      Cuts& of = noted_cuts[noted.back().tensor_dim()];
      of.insert(of.begin(), d);
      break;
    }
  }
  // Two ragged cuts of one tensor dim are refused.
  absl::StatusOr<Sharding> result =
      Sharding::Create(expanded.mesh(), tensor, std::move(noted), std::move(noted_cuts));
  if (result.ok()) return *std::move(result);
  return Sharding::Create(expanded.mesh(), tensor, std::move(placements), std::move(cuts)).value();
}

}  // namespace meshift
