// The parameters of a model, as inputs for many plans at once; examples/models/README.md has the
// format.
//
//   MESHIFT_ASSIGN_OR_RETURN(Model model, ReadModel("llama3-8b.json", io));
//   MESHIFT_ASSIGN_OR_RETURN(model, Filter(std::move(model), "model.layers.0.*"));
//   PlacementsFor("S(0),TP", model.parameters[0]);   // "S(0),S(1)": TP stands for S(tp_dim)
#ifndef MESHIFT_CLI_MODEL_H_
#define MESHIFT_CLI_MODEL_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/io.h"
#include "placement/tensor_type.h"

namespace meshift::cli {

struct Parameter {
  std::string name;
  TensorType type;
  std::optional<int> tp_dim;  // nullopt: every rank has all of it
};

struct Model {
  std::string name;
  std::vector<Parameter> parameters;
};

// INVALID_ARGUMENT names the parameter, the value and the rule.
absl::StatusOr<Model> ParseModel(std::string_view json);
// The same from a file; BadFile errors.
absl::StatusOr<Model> ReadModel(const std::string& path, Io& io);

// The parameters whose names match a shell pattern (* ? [...]); INVALID_ARGUMENT where none does.
absl::StatusOr<Model> Filter(Model model, const std::string& glob);

// `placements` with each word TP replaced by S(tp_dim), or by R where that is null. Where other
// mesh dims cut the same tensor dim and no places are written, TP cuts first, as in frameworks,
// whose data parallelism shards what tensor parallelism has left: "S(0),TP" is "S(0)[1],S(0)[0]"
// then.
std::string PlacementsFor(std::string_view placements, const Parameter& parameter);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_MODEL_H_
