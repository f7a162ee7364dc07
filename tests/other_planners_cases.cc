#include "tests/other_planners_cases.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/status.h"
#include "meshift/status.h"

namespace meshift {
namespace {

using Json = nlohmann::json;

absl::StatusOr<Sharding> MakeSharding(const DeviceMesh& mesh, const TensorType& tensor,
                                      const Json& json) {
  std::vector<Placement> placements(mesh.NumDims(), Placement::Replicate());
  std::vector<Cuts> cuts(tensor.shape.size());
  for (size_t k = 0; k < json.at("shard").size(); ++k) {
    for (const Json& name : json.at("shard")[k]) {
      const int d = mesh.FindDim(name.get<std::string>()).value();
      placements[d] = Placement::Shard(static_cast<int>(k));
      cuts[k].push_back(d);
    }
  }
  for (const auto& [name, text] : json.at("partial").items()) {
    MESHIFT_ASSIGN_OR_RETURN(const ReduceOp op, ParseReduceOp(text.get<std::string>()));
    placements[mesh.FindDim(name).value()] = Placement::Partial(op);
  }
  return Sharding::Create(mesh, tensor, std::move(placements), std::move(cuts));
}

absl::StatusOr<PeerCase> MakeCase(const Json& json) {
  std::vector<DeviceMesh::Dim> dims;
  for (const Json& dim : json.at("mesh")) {
    dims.push_back({dim[0].get<std::string>(), dim[1].get<int64_t>()});
  }
  MESHIFT_ASSIGN_OR_RETURN(const DeviceMesh mesh, DeviceMesh::Create(dims));
  Shape shape;
  for (const Json& size : json.at("shape")) shape.push_back(size.get<int64_t>());
  static constexpr std::pair<int, DType> kByBytes[] = {
      {2, DType::kBF16}, {4, DType::kF32}, {8, DType::kC64}};
  TensorType tensor{DType::kF32, shape};
  const int bytes = json.at("elem_bytes").get<int>();
  bool is_known = false;
  for (const auto& [size, dtype] : kByBytes) {
    if (size != bytes) continue;
    tensor.dtype = dtype;
    is_known = true;
  }
  if (!is_known) return InvalidArgument("elem_bytes {} is none of 2, 4, 8", bytes);
  MESHIFT_ASSIGN_OR_RETURN(Sharding from, MakeSharding(mesh, tensor, json.at("src")));
  MESHIFT_ASSIGN_OR_RETURN(Sharding to, MakeSharding(mesh, tensor, json.at("dst")));
  PeerCase one{json.at("name").get<std::string>(),
               std::move(from),
               std::move(to),
               {},
               json.value("collectives", int64_t{0})};
  if (json.contains("peers")) {
    for (const auto& [peer, plan] : json.at("peers").items()) {
      one.peers[peer] = {plan.at("collectives").get<int64_t>(),
                         plan.at("bytes_sent_max").get<int64_t>(), plan.contains("wrong"),
                         plan.contains("dup")};
    }
  }
  return one;
}

}  // namespace

absl::StatusOr<std::vector<PeerCase>> ReadPeerCases(const std::string& path) {
  std::ifstream file(path);
  if (!file.good()) return absl::NotFoundError(path);
  const Json json = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded() || !json.contains("cases")) {
    return InvalidArgument("{} is not a file of cases", path);
  }
  std::vector<PeerCase> cases;
  for (const Json& one : json["cases"]) {
    MESHIFT_ASSIGN_OR_RETURN(PeerCase made, MakeCase(one));
    cases.push_back(std::move(made));
  }
  return cases;
}

}  // namespace meshift
