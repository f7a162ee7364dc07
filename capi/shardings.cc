// Implements the functions of meshift/c.h on meshes and shardings, which never change: any threads
// may read them. For a rank outside the mesh the position and the coordinate are NOT_FOUND, and the
// box is empty. Offsets and shapes are in elements.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "capi/call.h"
#include "capi/handles.h"
#include "capi/numbers.h"
#include "meshift/union_mesh.h"

namespace meshift::capi {
namespace {

static_assert(kMaxTensorRank == MESHIFT_MAX_TENSOR_RANK);

absl::Status NotInMesh(const DeviceMesh& mesh, int64_t rank) {
  return absl::NotFoundError(fmt::format("rank {} is not in mesh {}", rank, mesh.ToString()));
}

void FillBox(DType dtype, const Box& from, meshift_box* box) {
  *box = {};
  box->size = sizeof(meshift_box);
  box->dtype = NumberOf(dtype);
  box->num_dims = static_cast<int32_t>(from.size.size());
  std::copy(from.offset.begin(), from.offset.end(), box->offset);
  std::copy(from.size.begin(), from.size.end(), box->shape);
  box->num_elements = from.NumElements();
  box->num_bytes = Bytes(dtype, box->num_elements);
}

}  // namespace
}  // namespace meshift::capi

using meshift::Sharding;
using meshift::capi::Call;
using meshift::capi::CheckIndex;
using meshift::capi::CheckStruct;
using meshift::capi::Clear;
using meshift::capi::Give;
using meshift::capi::GiveOr;
using meshift::capi::GiveText;
using meshift::capi::NotNull;

meshift_code meshift_mesh_parse(const char* text, meshift_mesh** mesh, char** error) {
  Clear(mesh);
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(NotNull({{"text", text}, {"mesh", mesh}}));
    return GiveOr(mesh, meshift::DeviceMesh::Parse(text));
  });
}

meshift_code meshift_mesh_union(const meshift_mesh* a, const meshift_mesh* b, meshift_mesh** mesh,
                                char** error) {
  Clear(mesh);
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(NotNull({{"a", a}, {"b", b}, {"mesh", mesh}}));
    return GiveOr(mesh, meshift::UnionMesh(a->value, b->value));
  });
}

void meshift_mesh_destroy(meshift_mesh* mesh) { delete mesh; }

meshift_code meshift_mesh_text(const meshift_mesh* mesh, char** text, char** error) {
  Clear(text);
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(NotNull({{"mesh", mesh}, {"text", text}}));
    return GiveText(mesh->value.ToString(), text);
  });
}

meshift_code meshift_mesh_get_info(const meshift_mesh* mesh, meshift_mesh_info* info,
                                   char** error) {
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(NotNull({{"mesh", mesh}}));
    MESHIFT_RETURN_IF_ERROR(CheckStruct("info", info));
    info->num_dims = mesh->value.NumDims();
    info->num_ranks = mesh->value.NumRanks();
    info->max_rank = mesh->value.MaxRank();
    return absl::OkStatus();
  });
}

meshift_code meshift_mesh_dim(const meshift_mesh* mesh, int32_t dim, char** name, int64_t* dim_size,
                              char** error) {
  Clear(name);
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(NotNull({{"mesh", mesh}}));
    MESHIFT_RETURN_IF_ERROR(CheckIndex("dim", dim, mesh->value.NumDims()));
    const meshift::DeviceMesh::Dim& found = mesh->value.dim(dim);
    if (dim_size != nullptr) *dim_size = found.size;
    return name == nullptr ? absl::OkStatus() : GiveText(found.name, name);
  });
}

meshift_code meshift_mesh_rank_at(const meshift_mesh* mesh, int64_t position, int64_t* rank,
                                  char** error) {
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(NotNull({{"mesh", mesh}, {"rank", rank}}));
    MESHIFT_RETURN_IF_ERROR(CheckIndex("position", position, mesh->value.NumRanks()));
    *rank = mesh->value.RankAt(position);
    return absl::OkStatus();
  });
}

meshift_code meshift_mesh_position_of(const meshift_mesh* mesh, int64_t rank, int64_t* position,
                                      char** error) {
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(NotNull({{"mesh", mesh}, {"position", position}}));
    const std::optional<int64_t> found = mesh->value.PositionOf(rank);
    if (!found) return meshift::capi::NotInMesh(mesh->value, rank);
    *position = *found;
    return absl::OkStatus();
  });
}

meshift_code meshift_mesh_coordinate(const meshift_mesh* mesh, int64_t rank, int64_t* coordinate,
                                     size_t capacity, char** error) {
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(NotNull({{"mesh", mesh}, {"coordinate", coordinate}}));
    const std::optional<meshift::Coordinate> found = mesh->value.CoordinateOf(rank);
    if (!found) return meshift::capi::NotInMesh(mesh->value, rank);
    if (capacity < found->size()) {
      return meshift::InvalidArgument("capacity is {}, but a coordinate has {} numbers", capacity,
                                      found->size());
    }
    std::copy(found->begin(), found->end(), coordinate);
    return absl::OkStatus();
  });
}

meshift_code meshift_sharding_create(const char* tensor, const meshift_mesh* mesh,
                                     const char* placements, meshift_sharding** sharding,
                                     char** error) {
  Clear(sharding);
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(NotNull(
        {{"tensor", tensor}, {"mesh", mesh}, {"placements", placements}, {"sharding", sharding}}));
    return GiveOr(sharding, Sharding::Parse(std::string_view(tensor), mesh->value, placements));
  });
}

meshift_code meshift_sharding_parse(const char* text, meshift_sharding** sharding, char** error) {
  Clear(sharding);
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(NotNull({{"text", text}, {"sharding", sharding}}));
    return GiveOr(sharding, Sharding::Parse(text));
  });
}

meshift_code meshift_sharding_with_placements(const meshift_sharding* sharding,
                                              const char* placements, meshift_sharding** other,
                                              char** error) {
  Clear(other);
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(
        NotNull({{"sharding", sharding}, {"placements", placements}, {"other", other}}));
    return GiveOr(other, sharding->value.WithPlacements(std::string_view(placements)));
  });
}

meshift_code meshift_sharding_with_dtype(const meshift_sharding* sharding, meshift_dtype dtype,
                                         meshift_sharding** other, char** error) {
  Clear(other);
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(NotNull({{"sharding", sharding}, {"other", other}}));
    MESHIFT_ASSIGN_OR_RETURN(const meshift::DType type, meshift::capi::DTypeOf("dtype", dtype));
    return GiveOr(other, sharding->value.WithDType(type));
  });
}

void meshift_sharding_destroy(meshift_sharding* sharding) { delete sharding; }

meshift_code meshift_sharding_text(const meshift_sharding* sharding, char** text, char** error) {
  Clear(text);
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(NotNull({{"sharding", sharding}, {"text", text}}));
    return GiveText(sharding->value.ToString(), text);
  });
}

meshift_code meshift_sharding_placements(const meshift_sharding* sharding, char** text,
                                         char** error) {
  Clear(text);
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(NotNull({{"sharding", sharding}, {"text", text}}));
    return GiveText(sharding->value.PlacementsText(), text);
  });
}

meshift_code meshift_sharding_mesh(const meshift_sharding* sharding, meshift_mesh** mesh,
                                   char** error) {
  Clear(mesh);
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(NotNull({{"sharding", sharding}, {"mesh", mesh}}));
    return Give(mesh, sharding->value.mesh());
  });
}

meshift_code meshift_sharding_tensor(const meshift_sharding* sharding, meshift_box* box,
                                     char** error) {
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(NotNull({{"sharding", sharding}}));
    MESHIFT_RETURN_IF_ERROR(CheckStruct("box", box));
    const meshift::Shape& shape = sharding->value.shape();
    meshift::capi::FillBox(sharding->value.dtype(), {meshift::Shape(shape.size(), 0), shape}, box);
    return absl::OkStatus();
  });
}

meshift_code meshift_sharding_local_box(const meshift_sharding* sharding, int64_t rank,
                                        meshift_box* box, char** error) {
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(NotNull({{"sharding", sharding}}));
    MESHIFT_RETURN_IF_ERROR(CheckStruct("box", box));
    meshift::capi::FillBox(sharding->value.dtype(), sharding->value.LocalBox(rank), box);
    return absl::OkStatus();
  });
}
