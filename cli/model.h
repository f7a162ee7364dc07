// The parameters of a model, as inputs for many plans at once; examples/models/README.md has the
// format.
//
//   MESHIFT_ASSIGN_OR_RETURN(Model model, ReadModel("llama3-8b.json", io));
//   MESHIFT_ASSIGN_OR_RETURN(model, Filter(std::move(model), "model.layers.0.*"));
//   PlacementsFor("S(0),TP", model.parameters[0]);   // "S(0),S(1)": TP stands for S(tp_dim)
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
#include "meshift/sharding.h"

namespace meshift::cli {

struct Parameter {
  std::string name;
  TensorType type;
  std::optional<int> tp_dim;  // nullopt: every rank has all of it
  // Which expert it belongs to, of how many the model has; nullopt: to none.
  std::optional<int64_t> expert = std::nullopt;
  int64_t num_experts = 0;
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

// The same, with each word EP replaced too: expert parallelism hands whole experts out, in order
// and as evenly as chunks are, to the coordinates on the mesh dims that say EP (row-major, where
// several do). A parameter that is no expert's is R there. Who has the expert has all of it, so EP
// is a ragged cut whose sizes are 0 but for one: over ep=4 expert 5 of 8 is S(0){0,0,D,0}. Several
// mesh dims take a tensor dim each, from the first on. INVALID_ARGUMENT where the tensor has too
// few dims for that, or where there is not one placement per mesh dim.
absl::StatusOr<std::string> PlacementsFor(std::string_view placements, const Parameter& parameter,
                                          const DeviceMesh& mesh);
// Whether EP is among the words.
bool HasExpertWord(std::string_view placements);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_MODEL_H_
