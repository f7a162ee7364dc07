// Lines of `plan --batch` and `check --batch`: every answer is one JSON object on one line, and
// every plan passes the check.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "cli/batch.h"
#include "fuzz/fuzz.h"
#include "meshift/planner.h"

namespace {

using Json = nlohmann::json;
namespace fuzz = meshift::fuzz;

Json AnswerOf(const std::string& line) {
  fuzz::Require(line.find('\n') == std::string::npos, "an answer is one line", line);
  Json answer = Json::parse(line, /*cb=*/nullptr, /*allow_exceptions=*/false);
  fuzz::Require(answer.is_object() && answer.contains("id"), "an answer is an object with an id",
                line);
  return answer;
}

// Whether planning or checking takes little time: few mesh dims, few ranks, few steps.
bool IsSmall(std::string_view line) {
  const Json json = Json::parse(line, /*cb=*/nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return true;
  const auto is_small_mesh = [](const Json& mesh) {
    if (!mesh.is_object() || !mesh.contains("dims") || !mesh["dims"].is_array()) return true;
    double ranks = 1;
    for (const Json& dim : mesh["dims"]) {
      if (!dim.is_array() || dim.size() < 2 || !dim[1].is_number()) return true;
      ranks *= dim[1].get<double>();
    }
    return mesh["dims"].size() <= 3 && ranks <= 512;
  };
  if (json.contains("mesh") && !is_small_mesh(json["mesh"])) return false;
  if (json.contains("to_mesh") && !is_small_mesh(json["to_mesh"])) return false;
  if (json.contains("meshes") && json["meshes"].is_array()) {
    for (const Json& mesh : json["meshes"]) {
      if (!is_small_mesh(mesh)) return false;
    }
  }
  return !json.contains("steps") || json["steps"].size() <= 16;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view line = fuzz::Text(data, size);
  if (line.find('\n') != std::string_view::npos || !IsSmall(line)) return 0;
  bool ok = false;
  const Json verdict = AnswerOf(meshift::cli::CheckLine(line, &ok));
  fuzz::Require(verdict["ok"] == ok, "the verdict equals the result");
  fuzz::Require(ok == verdict["rule"].is_null(), "a wrong plan breaks a rule");
  const std::string planned = meshift::cli::PlanLine(line, {});
  const Json plan = AnswerOf(planned);
  if (plan.contains("error")) {
    fuzz::Require(plan["error"]["message"].get<std::string>() != "", "an error has a message");
    fuzz::Require(plan["error"]["code"] != "INTERNAL", "no error is internal", planned);
    return 0;
  }
  const std::string checked = meshift::cli::CheckLine(planned, &ok);
  fuzz::Require(ok, "every plan is right", planned + "\n" + checked);
  fuzz::Require(AnswerOf(checked)["id"] == plan["id"], "an answer keeps its id");
  return 0;
}
