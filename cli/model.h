// Reads a model file: the parameters of a model, as input for many plans. examples/models/README.md
// describes the format.
//
//   MESHIFT_ASSIGN_OR_RETURN(Model model, ReadModel("llama3-8b.json", io));
//   MESHIFT_ASSIGN_OR_RETURN(model, Filter(std::move(model), "model.layers.0.*"));
//   PlacementsFor("S(0),TP", model.parameters[0]);   // "S(0),S(1)": TP stands for S(tp_dim)
//
// Files are untrusted. A file has at most 32 MiB. Expert indices are below 2^20. Names have at most
// 200 bytes, and no two parameters have one name. Unknown keys are ignored. Weights are not read.
#ifndef MESHIFT_CLI_MODEL_H_
#define MESHIFT_CLI_MODEL_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/io.h"
#include "meshift/device_mesh.h"
#include "meshift/placement.h"
#include "meshift/sharding.h"

namespace meshift::cli {

struct Parameter {
  std::string name;
  TensorType type;
  std::optional<int> tp_dim;  // nullopt: tensor parallelism replicates it
  // The index of its expert, below `num_experts`; nullopt: it belongs to no expert.
  std::optional<int64_t> expert = std::nullopt;
  int64_t num_experts = 0;  // of the model: its highest expert index plus 1, or 0
};

// By the index of an expert: the coordinates that hold it, on one mesh dim.
using ExpertOwners = std::vector<Placement::Sizes>;

struct Model {
  std::string name;
  std::vector<Parameter> parameters;
};

// INVALID_ARGUMENT names the value and the rule, and the parameter if one is wrong.
absl::StatusOr<Model> ParseModel(std::string_view json);
// The same for a file; BadFile errors.
absl::StatusOr<Model> ReadModel(const std::string& path, Io& io);

// The parameters whose names match a shell pattern (* ? [...]); INVALID_ARGUMENT if none does.
absl::StatusOr<Model> Filter(Model model, const std::string& glob);

// Replaces each word TP in `placements` by S(tp_dim), or by R if that is null. If other mesh dims
// cut the same tensor dim and no shard order or split factor is written, TP cuts before all but
// ragged cuts, as in frameworks, whose data parallelism shards the shards of tensor parallelism:
// with tp_dim 0, "S(0),TP" becomes "S(0)[1],S(0)[0]". Does not check the placements:
// Sharding::Parse then refuses wrong ones.
std::string PlacementsFor(std::string_view placements, const Parameter& parameter);

// The same, and replaces each word EP. Expert parallelism gives whole experts, in order and in
// equal chunks, to the coordinates on the mesh dims marked EP (row-major, if several are). The last
// chunk may be smaller, and the last coordinates may get none. A parameter without an expert is R
// there. One coordinate holds the whole expert: over ep=4, expert 5 of 8 is At(2).
// `owners`: the coordinates on the mesh dim EP by expert, instead of equal chunks; empty: none are
// given. INVALID_ARGUMENT, for a parameter with an expert: there is not one placement per mesh dim;
// owners are given for several mesh dims, or not for this expert.
absl::StatusOr<std::string> PlacementsFor(std::string_view placements, const Parameter& parameter,
                                          const DeviceMesh& mesh, const ExpertOwners& owners = {});
// Whether the placements contain the word EP.
bool HasExpertWord(std::string_view placements);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_MODEL_H_
