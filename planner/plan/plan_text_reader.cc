// Implements PlanFromText and ReadPlan of meshift/plan_io.h: converts a plan as text to the JSON
// form, which the JSON reader (plan_io.cc) then checks. Errors: INVALID_ARGUMENT, or UNIMPLEMENTED
// for a newer text form. Before the fingerprint, other "#" lines and empty lines are ignored; after
// it, all lines from a "#" line on.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/status.h"
#include "meshift/status.h"
#include "planner/plan/plan_text.h"
#include "planner/plan/plan_text_parts.h"
#include "planner/plan/quantity.h"

namespace meshift {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kTitle = "# meshift plan: ";
constexpr std::string_view kTitle2 = "# meshift plan 2: ";  // with At

class Reader {
 public:
  Reader(std::string_view text, PlanFault* fault) : text_(text), fault_(fault) {}

  absl::StatusOr<Json> Read();

 private:
  absl::Status Fault(const std::string& message,
                     absl::StatusCode code = absl::StatusCode::kInvalidArgument,
                     std::string rule = "format") {
    const std::string where = step_ ? fmt::format("step {}: ", *step_) : "";
    *fault_ = {step_, std::move(rule), message};
    return absl::Status(code, where + message);
  }
  absl::Status Unexpected(std::string_view wanted) {
    const std::string_view line = rest_.size() <= 60 ? rest_ : rest_.substr(0, 60);
    return Fault(
        fmt::format("line {}: expected {} at '{}'", line_number_, wanted, Escaped(line, "")));
  }

  // Sets rest_ to the next line; false at the end of the text.
  bool NextLine();
  // Removes `word` from the front of the line; false if the line does not begin with it.
  bool Take(std::string_view word);
  absl::Status Expect(std::string_view word);
  // Returns the text before `end`, and removes both from the line; all of the line if `end` is
  // missing.
  std::string_view Until(std::string_view end);
  absl::StatusOr<std::string_view> Token();
  absl::StatusOr<int64_t> Integer();
  absl::StatusOr<Json> IntegerOrNull();
  absl::StatusOr<int64_t> Quantity(absl::Span<const Unit> units);
  absl::StatusOr<std::string> Unescaped(std::string_view text);

  absl::Status ReadTitle();
  absl::Status ReadMesh();
  absl::Status ReadInputs();
  absl::Status ReadStep();
  absl::Status ReadHow(Json* step);
  absl::Status ReadReduction(std::string_view token, Json* step);
  absl::Status ReadTotals();
  absl::Status ReadPromise();

  std::string_view text_;
  PlanFault* fault_;
  std::optional<int> step_;
  int line_number_ = 0;
  std::string_view rest_;  // the unread part of the line
  Json plan_ = {{"format", "meshift.plan"}, {"version", 1}};
};

bool Reader::NextLine() {
  if (text_.empty()) return false;
  const size_t end = text_.find('\n');
  rest_ = text_.substr(0, end);
  text_.remove_prefix(end == std::string_view::npos ? text_.size() : end + 1);
  if (!rest_.empty() && rest_.back() == '\r') rest_.remove_suffix(1);
  ++line_number_;
  return true;
}

bool Reader::Take(std::string_view word) {
  if (rest_.substr(0, word.size()) != word) return false;
  rest_.remove_prefix(word.size());
  return true;
}

absl::Status Reader::Expect(std::string_view word) {
  return Take(word) ? absl::OkStatus() : Unexpected(fmt::format("'{}'", word));
}

std::string_view Reader::Until(std::string_view end) {
  const size_t at = rest_.find(end);
  const std::string_view result = rest_.substr(0, at);
  rest_.remove_prefix(at == std::string_view::npos ? rest_.size() : at + end.size());
  return result;
}

absl::StatusOr<std::string_view> Reader::Token() {
  while (Take(" ")) {
  }
  if (rest_.empty()) return Unexpected("a cell");
  const std::string_view token = rest_.substr(0, rest_.find(' '));
  rest_.remove_prefix(token.size());
  return token;
}

absl::StatusOr<int64_t> Reader::Integer() {
  while (Take(" ")) {
  }
  int64_t value = 0;
  const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
  if (error != std::errc()) return Unexpected("an integer below 2^63");
  rest_.remove_prefix(end - rest_.data());
  return value;
}

absl::StatusOr<Json> Reader::IntegerOrNull() {
  if (Take("-")) return Json(nullptr);
  MESHIFT_ASSIGN_OR_RETURN(const int64_t value, Integer());
  return Json(value);
}

// "7.5 KiB", "-3 ns": a whole number of the last unit.
absl::StatusOr<int64_t> Reader::Quantity(absl::Span<const Unit> units) {
  while (Take(" ")) {
  }
  const std::optional<int64_t> value = TakeQuantity(units, &rest_);
  if (value) return *value;
  return Unexpected(fmt::format("a number of {} below 2^63", units[units.size() - 1].name));
}

absl::StatusOr<std::string> Reader::Unescaped(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      result += text[i];
      continue;
    }
    unsigned value = 0;
    const std::string_view hex = text.substr(i, 4).size() == 4 ? text.substr(i + 2, 2) : "";
    const auto [end, error] = std::from_chars(hex.data(), hex.data() + hex.size(), value, 16);
    if (hex.empty() || text[i + 1] != 'x' || error != std::errc() ||
        end != hex.data() + hex.size()) {
      return Fault(
          fmt::format("line {}: '\\' is not followed by x and two hex digits", line_number_));
    }
    result += static_cast<char>(value);
    i += 3;
  }
  return result;
}

// "bf16[8,8], P,R -> R,R"; with two meshes "... on mesh 0"; with a cast "... as f32".
absl::Status Reader::ReadTitle() {
  const std::string_view tensor_text = Until("]");
  absl::StatusOr<TensorType> tensor = TensorType::Parse(fmt::format("{}]", tensor_text));
  if (!tensor.ok()) return Fault(Message(tensor.status()));
  Json shape = Json::array();
  for (const int64_t size : tensor->shape) shape.push_back(size);
  plan_["tensor"] = {{"dtype", std::string(Name(tensor->dtype))}, {"shape", std::move(shape)}};
  MESHIFT_RETURN_IF_ERROR(Expect(", "));
  const size_t arrow = rest_.find(" -> ");
  if (arrow == std::string_view::npos) return Unexpected("'->'");
  const std::string_view to = rest_.substr(arrow + 4);
  for (const char* key : {"from", "to"}) {
    rest_ = key == std::string_view("from") ? rest_.substr(0, arrow) : to;
    const size_t end = std::min(rest_.find(" on mesh "), rest_.find(" as "));
    Json sharding = {{"mesh", 0}, {"placements", std::string(rest_.substr(0, end))}};
    rest_.remove_prefix(std::min(end, rest_.size()));
    if (Take(" on mesh ")) {
      MESHIFT_ASSIGN_OR_RETURN(const int64_t mesh, Integer());
      sharding["mesh"] = mesh;
    }
    if (key == std::string_view("to") && Take(" as ")) {
      MESHIFT_ASSIGN_OR_RETURN(const std::string_view dtype, Token());
      sharding["dtype"] = std::string(dtype);
    }
    if (!rest_.empty()) return Unexpected("the end of the line");
    plan_[key] = std::move(sharding);
  }
  return absl::OkStatus();
}

absl::Status Reader::ReadMesh() {
  absl::StatusOr<DeviceMesh> mesh = DeviceMesh::Parse(Until(" ("));
  if (!mesh.ok()) {
    return Fault(Message(mesh.status()), absl::StatusCode::kInvalidArgument, "mesh");
  }
  Json dims = Json::array();
  for (const DeviceMesh::Dim& dim : mesh->dims()) dims.push_back({dim.name, dim.size});
  plan_["meshes"].push_back({{"dims", std::move(dims)},
                             {"ranks", mesh->IsRowMajor() ? Json(nullptr) : Json(mesh->Ranks())}});
  return absl::OkStatus();
}

absl::Status Reader::ReadInputs() {
  Json inputs = {{"topology", ""}, {"options", Json::object()}, {"engine", ""}};
  MESHIFT_ASSIGN_OR_RETURN(inputs["topology"], Unescaped(Until(", ")));
  MESHIFT_RETURN_IF_ERROR(Expect("engine "));
  const bool has_options = rest_.find(", ") != std::string_view::npos;
  MESHIFT_ASSIGN_OR_RETURN(inputs["engine"], Unescaped(Until(", ")));
  for (bool more = has_options; more;) {
    more = rest_.find(", ") != std::string_view::npos;
    std::string_view option = Until(", ");
    const size_t space = option.find(' ');
    if (space == std::string_view::npos) return Unexpected("an option's value");
    MESHIFT_ASSIGN_OR_RETURN(const std::string name, Unescaped(option.substr(0, space)));
    if (inputs["options"].contains(name)) {
      return Fault(
          fmt::format("line {}: option '{}' appears twice", line_number_, Escaped(name, "")));
    }
    MESHIFT_ASSIGN_OR_RETURN(inputs["options"][name], Unescaped(option.substr(space + 1)));
  }
  plan_["inputs"] = std::move(inputs);
  return absl::OkStatus();
}

// "sum", "avg/4:ascending", "sum:ascending:2:2": op, divisor, order, block and stages.
absl::Status Reader::ReadReduction(std::string_view token, Json* step) {
  const size_t colon = token.find(':');
  if (colon != std::string_view::npos) {
    std::string_view order = token.substr(colon + 1);
    if (const size_t block = order.find(':'); block != std::string_view::npos) {
      const std::string_view rest = rest_;
      rest_ = order.substr(block + 1);
      if (rest_.substr(0, 2) == "-:") {
        rest_.remove_prefix(1);
      } else {
        MESHIFT_ASSIGN_OR_RETURN((*step)["reduce_block"], Integer());
      }
      if (!rest_.empty()) {
        MESHIFT_RETURN_IF_ERROR(Expect(":"));
        MESHIFT_ASSIGN_OR_RETURN((*step)["reduce_stages"], Integer());
      }
      if (!rest_.empty()) return Unexpected("the end of a block");
      rest_ = rest;
      order = order.substr(0, block);
    }
    (*step)["reduce_order"] = order == "-" ? Json(nullptr) : Json(std::string(order));
    token = token.substr(0, colon);
  }
  const size_t slash = token.find('/');
  if (slash != std::string_view::npos) {
    const std::string_view rest = rest_;
    rest_ = token.substr(slash + 1);
    MESHIFT_ASSIGN_OR_RETURN((*step)["divisor"], Integer());
    if (!rest_.empty()) return Unexpected("the end of a divisor");
    rest_ = rest;
    token = token.substr(0, slash);
  }
  if (token == "-") return absl::OkStatus();
  (*step)["reduce_op"] = std::string(token);
  if (colon == std::string_view::npos) (*step)["reduce_order"] = "any";
  return absl::OkStatus();
}

absl::Status Reader::ReadHow(Json* step) {
  while (true) {
    while (Take(" ")) {
    }
    if (rest_.empty()) return absl::OkStatus();
    if (Take("dims=")) {
      do {
        MESHIFT_ASSIGN_OR_RETURN(const int64_t dim, Integer());
        (*step)["tensor_dims"].push_back(dim);
      } while (Take(","));
      continue;
    }
    if (Take("mesh=")) {
      MESHIFT_ASSIGN_OR_RETURN((*step)["mesh"], Integer());
      continue;
    }
    if (Take("to=")) {
      MESHIFT_ASSIGN_OR_RETURN(const std::string_view dtype, Token());
      (*step)["dtype"] = std::string(dtype);
      continue;
    }
    MESHIFT_ASSIGN_OR_RETURN(const std::string_view token, Token());
    const std::string_view name = token.substr(0, token.find_first_of("/:+"));
    const bool has_plus = token.find('+') != std::string_view::npos;
    if (ParseStepSizes(token).ok()) {
      (*step)["sizes"] = std::string(token);
    } else if (ParseDType(name).ok() || (name == "-" && has_plus)) {
      if (name != "-") (*step)["wire_dtype"] = std::string(name);
      const std::string_view sum = has_plus ? token.substr(name.size() + 1) : name;
      const bool has_sum = has_plus ? sum != "-" : !(*step)["reduce_op"].is_null();
      if (has_sum && sum != "-") (*step)["accumulate_dtype"] = std::string(sum);
    } else if (ParseReduceOp(name).ok() || name == "-") {
      MESHIFT_RETURN_IF_ERROR(ReadReduction(token, step));
    } else {
      return Fault(
          fmt::format("line {}: '{}' is not a dtype, a reduction or one of: even, padded, exact",
                      line_number_, Escaped(token, "")));
    }
  }
}

absl::Status Reader::ReadStep() {
  const int expected = static_cast<int>(plan_["steps"].size());
  step_ = expected;
  MESHIFT_ASSIGN_OR_RETURN(const int64_t number, Integer());
  if (number != expected) {
    return Fault(
        fmt::format("line {}: step {} follows step {}", line_number_, number, expected - 1));
  }
  Json step = {{"op", nullptr},
               {"mesh", 0},
               {"mesh_dims", Json::array()},
               {"group_size", nullptr},
               {"groups", nullptr},
               {"tensor_dims", Json::array()},
               {"reduce_op", nullptr},
               {"reduce_order", nullptr},
               {"divisor", nullptr},
               {"sizes", nullptr},
               {"wire_dtype", nullptr},
               {"accumulate_dtype", nullptr}};
  MESHIFT_ASSIGN_OR_RETURN(const std::string_view op, Token());
  step["op"] = std::string(op);
  MESHIFT_ASSIGN_OR_RETURN(std::string_view dims, Token());
  while (dims != "-" && !dims.empty()) {
    const size_t comma = dims.find(',');
    step["mesh_dims"].push_back(std::string(dims.substr(0, comma)));
    dims.remove_prefix(comma == std::string_view::npos ? dims.size() : comma + 1);
  }
  while (Take(" ")) {
  }
  // "-" alone is the cell; "- x 4" has a group size but no number of groups.
  MESHIFT_ASSIGN_OR_RETURN(step["groups"], IntegerOrNull());
  if (Take(" x ")) {
    MESHIFT_ASSIGN_OR_RETURN(step["group_size"], IntegerOrNull());
  } else if (!step["groups"].is_null()) {
    return Unexpected("' x '");
  }
  MESHIFT_ASSIGN_OR_RETURN(const std::string_view after, Token());
  step["after"] = std::string(after);
  MESHIFT_ASSIGN_OR_RETURN(step["bytes_in"], Quantity(kBytes));
  MESHIFT_ASSIGN_OR_RETURN(step["bytes_out"], Quantity(kBytes));
  MESHIFT_ASSIGN_OR_RETURN(step["bytes_sent"], Quantity(kBytes));
  MESHIFT_ASSIGN_OR_RETURN(step["est_ns"], Quantity(kTimes));
  MESHIFT_RETURN_IF_ERROR(ReadHow(&step));
  plan_["steps"].push_back(std::move(step));
  step_.reset();
  return absl::OkStatus();
}

absl::Status Reader::ReadTotals() {
  Json total;
  MESHIFT_ASSIGN_OR_RETURN(total["collectives"], Integer());
  MESHIFT_RETURN_IF_ERROR(Expect(total["collectives"] == 1 ? " collective, " : " collectives, "));
  MESHIFT_RETURN_IF_ERROR(Expect("sent "));
  MESHIFT_ASSIGN_OR_RETURN(total["bytes_sent"], Quantity(kBytes));
  MESHIFT_RETURN_IF_ERROR(Expect(", est "));
  MESHIFT_ASSIGN_OR_RETURN(total["est_ns"], Quantity(kTimes));
  if (Take(", setup ")) {
    MESHIFT_ASSIGN_OR_RETURN(total["setup_ns"], Quantity(kTimes));
  }
  MESHIFT_RETURN_IF_ERROR(Expect(", peak "));
  MESHIFT_ASSIGN_OR_RETURN(total["peak_bytes"], Quantity(kBytes));
  MESHIFT_RETURN_IF_ERROR(Expect(", workspace "));
  MESHIFT_ASSIGN_OR_RETURN(total["workspace_bytes"], Quantity(kBytes));
  plan_["total"] = std::move(total);
  if (!NextLine()) return Unexpected("'lower bound: '");
  MESHIFT_RETURN_IF_ERROR(Expect("lower bound: sent "));
  Json bound;
  MESHIFT_ASSIGN_OR_RETURN(bound["bytes_sent"], Quantity(kBytes));
  MESHIFT_RETURN_IF_ERROR(Expect(", est "));
  MESHIFT_ASSIGN_OR_RETURN(bound["est_ns"], Quantity(kTimes));
  plan_["lower_bound"] = std::move(bound);
  return absl::OkStatus();
}

absl::Status Reader::ReadPromise() {
  const std::string asked(Until(": "));
  std::string kept = asked;
  if (Take("NOT kept, only ") || Take("kept, even ")) {
    kept = Until(" (");
  } else {
    MESHIFT_RETURN_IF_ERROR(Expect("kept ("));
  }
  if (rest_.empty() || rest_.back() != ')') return Unexpected("')'");
  MESHIFT_ASSIGN_OR_RETURN(std::string why, Unescaped(rest_.substr(0, rest_.size() - 1)));
  plan_["reproducibility"] = {{"asked", asked}, {"kept", kept}, {"why", std::move(why)}};
  return absl::OkStatus();
}

absl::StatusOr<Json> Reader::Read() {
  plan_["meshes"] = Json::array();
  plan_["steps"] = Json::array();
  const bool has_line = NextLine();
  if (has_line && Take(kTitle2)) {
    plan_["version"] = 2;
  } else if (!has_line || !Take(kTitle)) {
    if (Take("# meshift plan ")) {
      return Fault(fmt::format("the text form {} is newer than this version", Until(":")),
                   absl::StatusCode::kUnimplemented);
    }
    return Unexpected(fmt::format("'{}'", kTitle));
  }
  MESHIFT_RETURN_IF_ERROR(ReadTitle());
  bool has_fingerprint = false;
  while (!has_fingerprint && NextLine()) {
    if (Take("# mesh ")) {
      MESHIFT_RETURN_IF_ERROR(ReadMesh());
    } else if (Take("# topology ")) {
      MESHIFT_RETURN_IF_ERROR(ReadInputs());
    } else if (Take("total: ")) {
      MESHIFT_RETURN_IF_ERROR(ReadTotals());
    } else if (Take("promise ")) {
      MESHIFT_RETURN_IF_ERROR(ReadPromise());
    } else if (Take("fingerprint ")) {
      plan_["fingerprint"] = std::string(rest_);
      has_fingerprint = true;
    } else if (!rest_.empty() && rest_[0] != '#') {
      MESHIFT_RETURN_IF_ERROR(ReadStep());
    }
  }
  if (!has_fingerprint) return Fault("the text is cut short: it has no fingerprint");
  while (NextLine()) {
    if (Take("#")) break;  // another table, such as that of the messages
    if (!rest_.empty()) return Unexpected("the end of the text");
  }
  return std::move(plan_);
}

}  // namespace

absl::StatusOr<Plan> PlanFromText(std::string_view text, PlanFault* fault) {
  PlanFault unused;
  PlanFault* const found = fault != nullptr ? fault : &unused;
  MESHIFT_ASSIGN_OR_RETURN(const Json json, Reader(text, found).Read());
  return PlanFromJson(json.dump(-1, ' ', false, Json::error_handler_t::replace), found);
}

absl::StatusOr<Plan> ReadPlan(std::string_view text, PlanFault* fault) {
  const size_t start = text.find_first_not_of(" \t\r\n");
  if (start != std::string_view::npos && text[start] == '#') {
    return PlanFromText(text.substr(start), fault);
  }
  return PlanFromJson(text, fault);
}

}  // namespace meshift
