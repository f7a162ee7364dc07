#include "cli/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "base/checked_math.h"
#include "base/status.h"
#include "cli/glob.h"
#include "cli/io.h"
#include "cli/json.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"
#include "meshift/sharding.h"
#include "meshift/status.h"
#include "placement/notation.h"

namespace meshift::cli {
namespace {

constexpr int64_t kMaxExperts = 1 << 20;

absl::StatusOr<Parameter> ReadParameter(const Json& json, DType dtype) {
  if (!json.is_object()) return InvalidArgument("{} is not an object", JsonQuote(json));
  Parameter parameter;
  MESHIFT_ASSIGN_OR_RETURN(const Json* name, JsonMember(json, "name"));
  MESHIFT_ASSIGN_OR_RETURN(parameter.name, JsonString(*name, "name"));
  MESHIFT_RETURN_IF_ERROR(CheckShown(parameter.name, "name"));

  MESHIFT_ASSIGN_OR_RETURN(const Json* sizes, JsonMember(json, "shape"));
  if (!sizes->is_array()) {
    return InvalidArgument("shape of '{}' is {}; it must be a list", parameter.name,
                           JsonQuote(*sizes));
  }
  Shape shape;
  for (const Json& size : *sizes) {
    MESHIFT_ASSIGN_OR_RETURN(
        const int64_t value,
        JsonInt(size, fmt::format("a size in the shape of '{}'", parameter.name)));
    shape.push_back(value);
  }
  if (const auto own = json.find("dtype"); own != json.end() && !own->is_null()) {
    MESHIFT_ASSIGN_OR_RETURN(const std::string text,
                             JsonString(*own, fmt::format("dtype of '{}'", parameter.name)));
    const absl::StatusOr<DType> parsed = ParseDType(text);
    if (!parsed.ok()) return Annotate(parsed.status(), fmt::format("'{}'", parameter.name));
    dtype = *parsed;
  }
  absl::StatusOr<TensorType> type = TensorType::Create(dtype, std::move(shape));
  if (!type.ok()) return Annotate(type.status(), fmt::format("'{}'", parameter.name));
  parameter.type = *std::move(type);

  MESHIFT_ASSIGN_OR_RETURN(const Json* tp_dim, JsonMember(json, "tp_dim"));
  if (!tp_dim->is_null()) {
    MESHIFT_ASSIGN_OR_RETURN(const int64_t dim,
                             JsonInt(*tp_dim, fmt::format("tp_dim of '{}'", parameter.name)));
    const auto rank = static_cast<int64_t>(parameter.type.shape.size());
    if (dim < 0 || dim >= rank) {
      return InvalidArgument("tp_dim {} of '{}' is out of range for a rank-{} tensor", dim,
                             parameter.name, rank);
    }
    parameter.tp_dim = static_cast<int>(dim);
  }
  if (const auto expert = json.find("expert"); expert != json.end() && !expert->is_null()) {
    MESHIFT_ASSIGN_OR_RETURN(const int64_t index,
                             JsonInt(*expert, fmt::format("expert of '{}'", parameter.name)));
    if (index < 0 || index >= kMaxExperts) {
      return InvalidArgument("expert {} of '{}' is not in 0..{}", index, parameter.name,
                             kMaxExperts - 1);
    }
    parameter.expert = index;
  }
  return parameter;
}

bool IsWord(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// `placements` with each `word` of two letters (or only the first) replaced.
std::string ReplaceWord(std::string_view placements, std::string_view word, std::string_view by,
                        bool once = false) {
  std::string result;
  bool done = false;
  for (size_t i = 0; i < placements.size();) {
    const bool is_it = !done && placements.substr(i, 2) == word &&
                       (i == 0 || !IsWord(placements[i - 1])) &&
                       (i + 2 == placements.size() || !IsWord(placements[i + 2]));
    if (is_it) {
      result += by;
      i += 2;
      done = once;
    } else {
      result += placements[i++];
    }
  }
  return result;
}

}  // namespace

absl::StatusOr<Model> ParseModel(std::string_view text) {
  MESHIFT_ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  if (!json.is_object()) return InvalidArgument("a model is an object, not {}", JsonQuote(json));
  Model model;
  MESHIFT_ASSIGN_OR_RETURN(const Json* name, JsonMember(json, "model"));
  MESHIFT_ASSIGN_OR_RETURN(model.name, JsonString(*name, "model"));
  MESHIFT_RETURN_IF_ERROR(CheckShown(model.name, "model"));
  MESHIFT_ASSIGN_OR_RETURN(const Json* dtype_json, JsonMember(json, "dtype"));
  MESHIFT_ASSIGN_OR_RETURN(const std::string dtype_text, JsonString(*dtype_json, "dtype"));
  MESHIFT_ASSIGN_OR_RETURN(const DType dtype, ParseDType(dtype_text));
  MESHIFT_ASSIGN_OR_RETURN(const Json* parameters, JsonMember(json, "parameters"));
  if (!parameters->is_array()) {
    return InvalidArgument("parameters is {}; it must be a list", JsonQuote(*parameters));
  }
  for (const Json& item : *parameters) {
    absl::StatusOr<Parameter> parameter = ReadParameter(item, dtype);
    if (!parameter.ok()) {
      return Annotate(parameter.status(), fmt::format("parameter {}", model.parameters.size()));
    }
    model.parameters.push_back(*std::move(parameter));
  }
  absl::flat_hash_set<std::string_view> names;
  int64_t num_experts = 0;
  for (const Parameter& parameter : model.parameters) {
    if (!names.insert(parameter.name).second) {
      return InvalidArgument("two parameters are named '{}'", parameter.name);
    }
    num_experts = std::max(num_experts, parameter.expert.value_or(-1) + 1);
  }
  for (Parameter& parameter : model.parameters) parameter.num_experts = num_experts;
  if (model.parameters.empty()) return InvalidArgument("model '{}' has no parameters", model.name);
  return model;
}

absl::StatusOr<Model> ReadModel(const std::string& path, Io& io) {
  MESHIFT_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, io));
  absl::StatusOr<Model> model = ParseModel(text);
  if (!model.ok()) return BadFile(path, model.status());
  return model;
}

absl::StatusOr<Model> Filter(Model model, const std::string& glob) {
  Model kept{model.name, {}};
  for (Parameter& parameter : model.parameters) {
    if (GlobMatches(glob, parameter.name)) {
      kept.parameters.push_back(std::move(parameter));
    }
  }
  if (kept.parameters.empty()) {
    return InvalidArgument("'{}' matches none of the {} parameters of {}", glob,
                           model.parameters.size(), model.name);
  }
  return kept;
}

std::string PlacementsFor(std::string_view placements, const Parameter& parameter) {
  const std::string tp = parameter.tp_dim ? fmt::format("S({})", *parameter.tp_dim) : "R";
  std::string text = ReplaceWord(placements, "TP", tp);
  if (!parameter.tp_dim) return text;
  // TP cuts first. The terms that TP stands for are R in `without`.
  const auto terms = ParsePlacements(text);
  const auto without = ParsePlacements(ReplaceWord(placements, "TP", "R"));
  if (!terms.ok() || !without.ok()) return text;  // for Sharding::Parse to refuse
  for (const PlacementTerm& term : *terms) {
    if (term.place || term.split_factor) return text;
  }
  const auto rank = static_cast<int>(parameter.type.shape.size());
  const auto cuts_tp_dim = [&](const Placement& placement) {
    if (!placement.IsShard()) return false;
    const int dim = placement.tensor_dim();
    return (dim < 0 ? dim + rank : dim) == *parameter.tp_dim;
  };
  // A ragged cut must stay outermost, before TP.
  const auto is_ragged = [&](size_t i) { return (*terms)[i].placement.IsRagged(); };
  std::vector<size_t> order;
  for (const int turn : {0, 1, 2}) {
    for (size_t i = 0; i < terms->size(); ++i) {
      if (!cuts_tp_dim((*terms)[i].placement)) continue;
      const bool is_tp = (*without)[i].placement.IsReplicate();
      const int its = is_ragged(i) ? 0 : is_tp ? 1 : 2;
      if (its == turn) order.push_back(i);
    }
  }
  const bool is_default =
      std::is_sorted(order.begin() + (!order.empty() && is_ragged(order[0]) ? 1 : 0), order.end());
  if (is_default) return text;
  std::string result;
  for (size_t i = 0; i < terms->size(); ++i) {
    result += (i == 0 ? "" : ",") + (*terms)[i].placement.ToString();
    const auto place = std::find(order.begin(), order.end(), i);
    if (place != order.end()) result += fmt::format("[{}]", place - order.begin());
  }
  return result;
}

bool HasExpertWord(std::string_view placements) {
  return ReplaceWord(placements, "EP", "") != placements;
}

absl::StatusOr<std::string> PlacementsFor(std::string_view placements, const Parameter& parameter,
                                          const DeviceMesh& mesh, const ExpertOwners& owners) {
  if (!HasExpertWord(placements)) return PlacementsFor(placements, parameter);
  if (!parameter.expert) return PlacementsFor(ReplaceWord(placements, "EP", "R"), parameter);
  // TP is replaced last, by its own rule; S(0) stands for it here.
  const std::string plain = ReplaceWord(placements, "TP", "S(0)");
  const std::string replicated = ReplaceWord(plain, "EP", "R");
  const auto terms = ParsePlacements(replicated);
  const auto marked = ParsePlacements(ReplaceWord(plain, "EP", "P"));
  if (!terms.ok() || !marked.ok()) return replicated;  // for Sharding::Parse to refuse
  if (static_cast<int>(terms->size()) != mesh.NumDims()) {
    return InvalidArgument(
        "the number of placements is {}; expected {}, one for each dim of mesh {}", terms->size(),
        mesh.NumDims(), mesh.ToString());
  }
  std::vector<int> dims;
  int64_t places = 1;
  for (int d = 0; d < mesh.NumDims(); ++d) {
    if ((*terms)[d].placement == (*marked)[d].placement) continue;
    dims.push_back(d);
    places = SaturatingMul(places, mesh.dim(d).size);
  }
  std::vector<std::string> words(dims.size());
  if (!owners.empty()) {
    if (dims.size() != 1) {
      return InvalidArgument("owners are given for one mesh dim EP; {} has {}", placements,
                             dims.size());
    }
    if (*parameter.expert >= std::ssize(owners)) {
      return InvalidArgument("owners are given for {} experts; '{}' belongs to expert {}",
                             owners.size(), parameter.name, *parameter.expert);
    }
    const std::string at = Placement::At(owners[*parameter.expert]).ToString();
    return PlacementsFor(ReplaceWord(placements, "EP", at), parameter);
  }
  int64_t place = *parameter.expert / CeilDiv(parameter.num_experts, places);
  for (size_t i = dims.size(); i-- > 0;) {
    const int64_t size = mesh.dim(dims[i]).size;
    words[i] = Placement::At({place % size}).ToString();
    place /= size;
  }
  std::string text(placements);
  for (const std::string& word : words) text = ReplaceWord(text, "EP", word, /*once=*/true);
  return PlacementsFor(text, parameter);
}

}  // namespace meshift::cli
