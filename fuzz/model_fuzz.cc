// Model files: names in an accepted model are unique and printable, and its words TP and EP become
// valid placements of the parameter.
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "cli/model.h"
#include "cli/text.h"
#include "fuzz/fuzz.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/sharding.h"

namespace {

namespace fuzz = meshift::fuzz;
namespace cli = meshift::cli;

void CheckParameter(const cli::Parameter& parameter, const meshift::DeviceMesh& mesh) {
  const auto rank = static_cast<int>(parameter.type.shape.size());
  fuzz::Require(!parameter.tp_dim || (0 <= *parameter.tp_dim && *parameter.tp_dim < rank),
                "tp_dim is a dim of the tensor", parameter.name);
  fuzz::Require(!parameter.expert || *parameter.expert < parameter.num_experts,
                "an expert is one of the model's", parameter.name);
  for (const char* const words : {"R,TP", "TP,R", "EP,TP", "EP,EP"}) {
    const auto text = cli::PlacementsFor(words, parameter, mesh);
    if (!text.ok()) continue;
    const auto sharding = meshift::Sharding::Parse(parameter.type, mesh, *text);
    // Such a cut may lie inside a byte, which is refused.
    if (parameter.type.dtype == meshift::DType::kF4E2M1) continue;
    fuzz::Require(sharding.ok(), "words become placements",
                  *text + "\n" + (sharding.ok() ? "" : sharding.status().ToString()));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto model = cli::ParseModel(fuzz::Text(data, size));
  if (!model.ok()) {
    fuzz::Require(!model.status().message().empty(), "an error has a message");
    return 0;
  }
  const meshift::DeviceMesh mesh = *meshift::DeviceMesh::Parse("ep=4,tp=2");
  fuzz::Require(!model->parameters.empty(), "a model has parameters");
  fuzz::Require(model->name.size() <= cli::kMaxShown, "a model's name is short");
  std::set<std::string> names;
  for (const cli::Parameter& parameter : model->parameters) {
    fuzz::Require(parameter.name.size() <= cli::kMaxShown, "a name is short", parameter.name);
    fuzz::Require(names.insert(parameter.name).second, "a name stands once", parameter.name);
    CheckParameter(parameter, mesh);
  }
  const auto all = cli::Filter(*model, "*");
  fuzz::Require(all.ok() && all->parameters.size() == model->parameters.size(),
                "a star keeps all parameters");
  return 0;
}
