#include "meshift/sharding.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/checked_math.h"
#include "base/status.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"
#include "meshift/status.h"
#include "placement/cuts.h"
#include "placement/notation.h"
#include "placement/op_table.h"

namespace meshift {
namespace {

bool IsShardOf(const Placement& placement, int tensor_dim) {
  return placement.IsShard() && placement.tensor_dim() == tensor_dim;
}

// The mesh dims that cut `tensor_dim`: a ragged one, then the others in mesh order.
Cuts DefaultCuts(absl::Span<const Placement> placements, int tensor_dim) {
  Cuts cuts;
  for (size_t d = 0; d < placements.size(); ++d) {
    if (!IsShardOf(placements[d], tensor_dim)) continue;
    cuts.insert(placements[d].IsRagged() ? cuts.begin() : cuts.end(), static_cast<int>(d));
  }
  return cuts;
}

// The tensor dim that `placement` cuts, counted from the front.
absl::StatusOr<int> ResolveTensorDim(const Placement& placement, int rank) {
  const int dim = placement.tensor_dim();
  if (dim < -rank || dim >= rank) {
    return InvalidArgument("Shard({}) is out of range for a rank-{} tensor", dim, rank);
  }
  return dim < 0 ? dim + rank : dim;
}

absl::Status CheckRagged(const Placement& placement, const DeviceMesh::Dim& mesh_dim,
                         int64_t size) {
  const Placement::Sizes& sizes = placement.sizes();
  if (static_cast<int64_t>(sizes.size()) != mesh_dim.size) {
    return InvalidArgument("{} has {} sizes for the {} coordinates of mesh dim {}",
                           placement.ToString(), sizes.size(), mesh_dim.size, mesh_dim.name);
  }
  int64_t sum = 0;
  for (const int64_t piece : sizes) {
    if (piece < 0) return InvalidArgument("{}: size {} is negative", placement.ToString(), piece);
    sum = SaturatingAdd(sum, piece);
  }
  if (sum != size) {
    return InvalidArgument("{}: the sizes add up to {}, but tensor dim {} has size {}",
                           placement.ToString(), sum, placement.tensor_dim(), size);
  }
  return absl::OkStatus();
}

// Makes tensor dims non-negative, and checks them and the ragged cuts.
absl::Status ResolveShards(const DeviceMesh& mesh, const TensorType& tensor,
                           std::vector<Placement>* placements) {
  std::vector<int> num_ragged(tensor.shape.size(), 0);
  for (Placement& placement : *placements) {
    if (!placement.IsShard()) continue;
    MESHIFT_ASSIGN_OR_RETURN(const int tensor_dim,
                             ResolveTensorDim(placement, static_cast<int>(tensor.shape.size())));
    placement = Placement::RaggedShard(tensor_dim, placement.sizes());
    // Checked before the sizes: those of a nested ragged cut do not add up.
    if (placement.IsRagged() && ++num_ragged[tensor_dim] > 1) {
      return InvalidArgument("tensor dim {} has two ragged cuts; at most one is allowed",
                             tensor_dim);
    }
  }
  for (int d = 0; d < mesh.NumDims(); ++d) {
    const Placement& placement = (*placements)[d];
    if (!placement.IsShard() || !placement.IsRagged()) continue;
    MESHIFT_RETURN_IF_ERROR(
        CheckRagged(placement, mesh.dim(d), tensor.shape[placement.tensor_dim()]));
  }
  return absl::OkStatus();
}

// Checks the coordinates of each At. At(all coordinates) becomes R.
absl::Status ResolveAt(const DeviceMesh& mesh, std::vector<Placement>* placements) {
  for (int d = 0; d < mesh.NumDims(); ++d) {
    Placement& placement = (*placements)[d];
    if (!placement.IsAt()) continue;
    const DeviceMesh::Dim& dim = mesh.dim(d);
    const Placement::Sizes& coordinates = placement.coordinates();
    if (coordinates.empty()) {
      return InvalidArgument("{} on mesh dim {} lists no coordinate", placement.ToString(),
                             dim.name);
    }
    for (size_t i = 0; i < coordinates.size(); ++i) {
      if (coordinates[i] < 0 || coordinates[i] >= dim.size) {
        return InvalidArgument("{}: coordinate {} is out of range for mesh dim {} of size {}",
                               placement.ToString(), coordinates[i], dim.name, dim.size);
      }
      if (i == 0 || coordinates[i] != coordinates[i - 1]) continue;
      return InvalidArgument("{}: coordinate {} is listed twice", placement.ToString(),
                             coordinates[i]);
    }
    if (static_cast<int64_t>(coordinates.size()) == dim.size) placement = Placement::Replicate();
  }
  return absl::OkStatus();
}

absl::Status CheckPartials(absl::Span<const Placement> placements, DType dtype) {
  const auto adds = [](ReduceOp op) { return op == ReduceOp::kSum || op == ReduceOp::kAvg; };
  std::optional<ReduceOp> first;
  for (const Placement& placement : placements) {
    if (!placement.IsPartial()) continue;
    const ReduceOp op = placement.op();
    MESHIFT_RETURN_IF_ERROR(CheckReduce(op, dtype));
    if (!first) first = op;
    if (op != *first && !(adds(op) && adds(*first))) {
      return InvalidArgument("Partial({}) and Partial({}) in one tensor: only sum and avg may mix",
                             Name(*first), Name(op));
    }
  }
  return absl::OkStatus();
}

// `expected`: DefaultCuts.
absl::Status CheckCuts(absl::Span<const Placement> placements, int tensor_dim, const Cuts& expected,
                       const Cuts& cuts) {
  const auto ragged = [&](int d) { return placements[d].IsRagged(); };
  if (!std::is_permutation(cuts.begin(), cuts.end(), expected.begin(), expected.end())) {
    return InvalidArgument("[{}] is not an order of the mesh dims [{}] that cut tensor dim {}",
                           fmt::join(cuts.begin(), cuts.end(), ","),
                           fmt::join(expected.begin(), expected.end(), ","), tensor_dim);
  }
  if (std::find_if(cuts.begin(), cuts.end(), ragged) > cuts.begin() && ragged(expected[0])) {
    return InvalidArgument("{} is not the outermost cut of tensor dim {}; a ragged cut must be",
                           placements[expected[0]].ToString(), tensor_dim);
  }
  return absl::OkStatus();
}

// Turns a ragged cut with the sizes of a plain cut into the plain cut, so that equal shardings
// compare equal.
void DropPlainSizes(const TensorType& tensor, std::vector<Placement>* placements) {
  for (Placement& placement : *placements) {
    if (!placement.IsShard() || !placement.IsRagged()) continue;
    const Placement::Sizes& sizes = placement.sizes();
    const Interval whole = {0, tensor.shape[placement.tensor_dim()]};
    const auto n = static_cast<int64_t>(sizes.size());
    bool is_plain = true;
    for (int64_t i = 0; i < n && is_plain; ++i) {
      is_plain = sizes[i] == Chunk(whole, n, i).Length();
    }
    if (is_plain) placement = Placement::Shard(placement.tensor_dim());
  }
}

// Each row of each local box must have whole bytes, so pieces of the innermost dim must too.
absl::Status CheckWholeBytes(const DeviceMesh& mesh, const TensorType& tensor,
                             absl::Span<const Placement> placements, absl::Span<const Cuts> cuts) {
  const int per_byte = 8 / BitWidth(tensor.dtype);
  if (per_byte <= 1) return absl::OkStatus();
  if (tensor.shape.empty()) {
    return InvalidArgument("{} is not a whole number of bytes", tensor.ToString());
  }
  const size_t innermost = tensor.shape.size() - 1;
  Lengths lengths = {tensor.shape[innermost]};
  if (lengths[0] % per_byte != 0) {
    return InvalidArgument("{}: tensor dim {} is not a whole number of bytes", tensor.ToString(),
                           innermost);
  }
  for (const int d : cuts[innermost]) {
    std::vector<int64_t> begins;
    if (placements[d].IsRagged()) begins = BeginsOf(placements[d].sizes());
    lengths = PieceLengths(lengths, Cut{mesh.dim(d).size, begins});
    for (const int64_t length : lengths) {
      if (length % per_byte == 0) continue;
      return InvalidArgument("{}: mesh dim {} cuts tensor dim {} inside a byte", tensor.ToString(),
                             mesh.dim(d).name, innermost);
    }
  }
  return absl::OkStatus();
}

// The shard order from the positions in `terms`; an empty list if they have none.
absl::StatusOr<std::vector<Cuts>> CutsFromPlaces(absl::Span<const PlacementTerm> terms, int rank) {
  // Per tensor dim; -1 at positions that were not seen yet.
  std::vector<Cuts> mesh_dims(rank);
  std::vector<int> written(rank, 0);
  for (const PlacementTerm& term : terms) {
    if (!term.placement.IsShard()) continue;
    MESHIFT_ASSIGN_OR_RETURN(const int tensor_dim, ResolveTensorDim(term.placement, rank));
    mesh_dims[tensor_dim].push_back(-1);
    written[tensor_dim] += term.place.has_value() ? 1 : 0;
  }
  for (size_t d = 0; d < terms.size(); ++d) {
    if (!terms[d].place) continue;
    MESHIFT_ASSIGN_OR_RETURN(const int tensor_dim, ResolveTensorDim(terms[d].placement, rank));
    Cuts& cuts = mesh_dims[tensor_dim];
    const int64_t place = *terms[d].place;
    if (place < 0 || place >= static_cast<int64_t>(cuts.size()) || cuts[place] != -1) {
      return InvalidArgument(
          "{}[{}]: the positions in the shard order of tensor dim {} must be 0 to {}, each once",
          terms[d].placement.ToString(), place, tensor_dim, cuts.size() - 1);
    }
    cuts[place] = static_cast<int>(d);
  }
  for (int t = 0; t < rank; ++t) {
    if (written[t] == 0) {
      mesh_dims[t].clear();
    } else if (written[t] != static_cast<int>(mesh_dims[t].size())) {
      return InvalidArgument(
          "{} of the {} mesh dims that cut tensor dim {} have a position in the shard order; all "
          "or none must",
          written[t], mesh_dims[t].size(), t);
    }
  }
  return mesh_dims;
}

// The shard order from DTensor's strided shards. Mesh dims cut in mesh order, but a strided one
// cuts after as many later mesh dims as multiply to its split factor.
absl::StatusOr<std::vector<Cuts>> CutsFromFactors(absl::Span<const PlacementTerm> terms, int rank,
                                                  const DeviceMesh& mesh) {
  std::vector<Cuts> cuts(rank);
  for (int d = static_cast<int>(terms.size()) - 1; d >= 0; --d) {
    const PlacementTerm& term = terms[d];
    if (!term.placement.IsShard()) continue;
    if (term.place || term.placement.IsRagged()) {
      return InvalidArgument("{} on mesh dim {}: {} cannot be combined with strided shards",
                             term.placement.ToString(), mesh.dim(d).name,
                             term.place ? "a position in the shard order" : "a ragged cut");
    }
    MESHIFT_ASSIGN_OR_RETURN(const int tensor_dim, ResolveTensorDim(term.placement, rank));
    const int64_t factor = term.split_factor.value_or(1);
    Cuts& later = cuts[tensor_dim];
    int64_t pieces = 1;
    size_t place = 0;
    while (pieces < factor && place < later.size()) pieces *= mesh.dim(later[place++]).size;
    if (pieces != factor) {
      return InvalidArgument(
          "_S({}, {}) on mesh dim {}: split factor {} is not the number of pieces into which later "
          "mesh dims cut tensor dim {}",
          tensor_dim, factor, mesh.dim(d).name, factor, tensor_dim);
    }
    later.insert(later.begin() + static_cast<ptrdiff_t>(place), d);
  }
  return cuts;
}

}  // namespace

absl::StatusOr<Sharding> Sharding::Create(DeviceMesh mesh, TensorType tensor,
                                          std::vector<Placement> placements,
                                          std::vector<Cuts> cuts) {
  MESHIFT_ASSIGN_OR_RETURN(tensor, TensorType::Create(tensor.dtype, std::move(tensor.shape)));
  if (static_cast<int>(placements.size()) != mesh.NumDims()) {
    return InvalidArgument(
        "the number of placements is {}; expected {}, one for each dim of mesh {}",
        placements.size(), mesh.NumDims(), mesh.ToString());
  }
  const size_t rank = tensor.shape.size();
  if (!cuts.empty() && cuts.size() != rank) {
    return InvalidArgument("the number of shard orders is {}; expected {}, one for each tensor dim",
                           cuts.size(), rank);
  }
  MESHIFT_RETURN_IF_ERROR(ResolveShards(mesh, tensor, &placements));
  MESHIFT_RETURN_IF_ERROR(ResolveAt(mesh, &placements));
  MESHIFT_RETURN_IF_ERROR(CheckPartials(placements, tensor.dtype));
  cuts.resize(rank);
  for (size_t t = 0; t < rank; ++t) {
    const int tensor_dim = static_cast<int>(t);
    const Cuts expected = DefaultCuts(placements, tensor_dim);
    if (cuts[t].empty()) cuts[t] = expected;
    MESHIFT_RETURN_IF_ERROR(CheckCuts(placements, tensor_dim, expected, cuts[t]));
  }
  MESHIFT_RETURN_IF_ERROR(CheckWholeBytes(mesh, tensor, placements, cuts));
  DropPlainSizes(tensor, &placements);
  const size_t hash = absl::HashOf(mesh, tensor.dtype, tensor.shape, placements, cuts);
  std::vector<std::vector<int64_t>> begins;
  for (size_t t = 0; t < rank; ++t) {
    if (cuts[t].empty() || !placements[cuts[t][0]].IsRagged()) continue;
    begins.resize(rank);
    begins[t] = BeginsOf(placements[cuts[t][0]].sizes());
  }
  return Sharding(
      std::make_shared<const Rep>(Rep{hash, std::move(mesh), std::move(tensor),
                                      std::move(placements), std::move(cuts), std::move(begins)}));
}

bool Sharding::IsEqual(const Rep& a, const Rep& b) {
  return a.mesh == b.mesh && a.tensor == b.tensor && a.placements == b.placements &&
         a.cuts == b.cuts;
}

absl::StatusOr<Sharding> Sharding::Parse(std::string_view tensor, const DeviceMesh& mesh,
                                         std::string_view placements) {
  MESHIFT_ASSIGN_OR_RETURN(TensorType type, TensorType::Parse(tensor));
  return Parse(std::move(type), mesh, placements);
}

absl::StatusOr<Sharding> Sharding::Parse(TensorType tensor, const DeviceMesh& mesh,
                                         std::string_view placements) {
  MESHIFT_ASSIGN_OR_RETURN(std::vector<PlacementTerm> terms, ParsePlacements(placements));
  const auto rank = static_cast<int>(tensor.shape.size());
  const bool strided = std::any_of(terms.begin(), terms.end(), [](const PlacementTerm& term) {
    return term.split_factor.has_value();
  });
  // If the numbers differ, Create reports the error.
  const bool fits = static_cast<int>(terms.size()) == mesh.NumDims();
  MESHIFT_ASSIGN_OR_RETURN(std::vector<Cuts> cuts, strided && fits
                                                       ? CutsFromFactors(terms, rank, mesh)
                                                       : CutsFromPlaces(terms, rank));
  std::vector<Placement> list;
  list.reserve(terms.size());
  for (PlacementTerm& term : terms) list.push_back(std::move(term.placement));
  return Create(mesh, std::move(tensor), std::move(list), std::move(cuts));
}

absl::StatusOr<Sharding> Sharding::Parse(std::string_view text) {
  const size_t on = text.find(" on ");
  const size_t as = text.find(" as ", on);
  if (on == std::string_view::npos || as == std::string_view::npos) {
    return InvalidArgument("sharding \"{}\" is not of the form \"TENSOR on MESH as PLACEMENTS\"",
                           text);
  }
  MESHIFT_ASSIGN_OR_RETURN(const DeviceMesh mesh,
                           DeviceMesh::Parse(text.substr(on + 4, as - (on + 4))));
  return Parse(text.substr(0, on), mesh, text.substr(as + 4));
}

absl::StatusOr<Sharding> Sharding::WithPlacements(std::string_view placements) const {
  return Parse(tensor(), mesh(), placements);
}

absl::StatusOr<Sharding> Sharding::WithPlacements(std::vector<Placement> placements,
                                                  std::vector<Cuts> cuts) const {
  return Create(mesh(), tensor(), std::move(placements), std::move(cuts));
}

absl::StatusOr<Sharding> Sharding::WithShape(Shape shape) const {
  const size_t rank = shape.size();
  MESHIFT_ASSIGN_OR_RETURN(TensorType tensor, TensorType::Create(dtype(), std::move(shape)));
  std::vector<Cuts> cuts = rep_->cuts;
  cuts.resize(rank);
  return Create(mesh(), std::move(tensor), rep_->placements, std::move(cuts));
}

absl::StatusOr<Sharding> Sharding::OnMesh(const DeviceMesh& mesh) const {
  return Create(mesh, tensor(), rep_->placements, rep_->cuts);
}

absl::StatusOr<Sharding> Sharding::WithDType(DType dtype) const {
  if (dtype == this->dtype()) return *this;
  MESHIFT_ASSIGN_OR_RETURN(TensorType tensor, TensorType::Create(dtype, shape()));
  return Create(mesh(), std::move(tensor), rep_->placements, rep_->cuts);
}

bool Sharding::HasAt() const {
  return std::any_of(rep_->placements.begin(), rep_->placements.end(),
                     [](const Placement& placement) { return placement.IsAt(); });
}

bool Sharding::HasPartial() const {
  return std::any_of(rep_->placements.begin(), rep_->placements.end(),
                     [](const Placement& placement) { return placement.IsPartial(); });
}

Box Sharding::LocalBox(int64_t rank) const {
  const std::optional<Coordinate> at = mesh().CoordinateOf(rank);
  return at ? BoxAt(*at) : Box{.offset = {0}, .size = {0}};
}

Box Sharding::BoxAt(absl::Span<const int64_t> coordinate) const {
  Box box{Shape(shape().size()), shape()};
  for (size_t t = 0; t < box.size.size(); ++t) {
    Interval piece{0, box.size[t]};
    for (const int d : rep_->cuts[t]) {
      Cut cut{mesh().dim(d).size};
      if (placement(d).IsRagged()) cut.begins = rep_->begins[t];
      piece = cut.Piece(piece, coordinate[d]);
    }
    box.offset[t] = piece.begin;
    box.size[t] = piece.Length();
  }
  if (HoldsAt(coordinate)) return box;
  if (box.size.empty()) return {.offset = {0}, .size = {0}};
  box.offset[0] = 0;
  box.size[0] = 0;
  return box;
}

bool Sharding::HoldsAt(absl::Span<const int64_t> coordinate) const {
  for (int d = 0; d < mesh().NumDims(); ++d) {
    if (placement(d).IsAt() && !placement(d).Holds(coordinate[d])) return false;
  }
  return true;
}

int64_t Sharding::MaxLocalElements() const {
  // The largest box is the product of the largest pieces: the length of a piece is monotonic in its
  // whole, and cuts of different tensor dims are independent.
  int64_t elements = 1;
  for (size_t t = 0; t < shape().size(); ++t) {
    int64_t largest = shape()[t];
    for (const int d : rep_->cuts[t]) {
      const Placement::Sizes& sizes = placement(d).sizes();
      largest = sizes.empty() ? CeilDiv(largest, mesh().dim(d).size)
                              : *std::max_element(sizes.begin(), sizes.end());
    }
    elements *= largest;
  }
  return elements;
}

std::string Sharding::PlacementsText() const {
  std::string text;
  AppendPlacementsTo(&text);
  return text;
}

void Sharding::AppendPlacementsTo(std::string* text) const {
  for (size_t d = 0; d < rep_->placements.size(); ++d) {
    const Placement& placement = rep_->placements[d];
    if (d > 0) *text += ',';
    placement.AppendTo(text);
    if (!placement.IsShard()) continue;
    const Cuts& cuts = rep_->cuts[placement.tensor_dim()];
    // A ragged cut is always outermost.
    const bool ragged = rep_->placements[cuts[0]].IsRagged();
    if (std::is_sorted(cuts.begin() + (ragged ? 1 : 0), cuts.end())) continue;
    const auto place = std::find(cuts.begin(), cuts.end(), static_cast<int>(d)) - cuts.begin();
    absl::StrAppend(text, "[", place, "]");
  }
}

std::string Sharding::ToString() const {
  return fmt::format("{} on {} as {}", tensor().ToString(), mesh().ToString(), PlacementsText());
}

}  // namespace meshift
