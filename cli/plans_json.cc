#include "cli/plans_json.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/checked_math.h"
#include "base/parse_json.h"
#include "base/status.h"
#include "base/work_budget.h"
#include "cli/check_command.h"
#include "cli/json.h"
#include "cli/model_traffic.h"
#include "cli/text.h"
#include "meshift/plan.h"
#include "meshift/plan_io.h"
#include "meshift/planner.h"
#include "meshift/status.h"
#include "meshift/topology.h"
#include "meshift/verifier.h"
#include "planner/together/collective_starts.h"
#include "planner/together/links.h"
#include "planner/together/plan_loads.h"
#include "planner/together/rounds.h"

namespace meshift::cli {
namespace {

constexpr const char* kTogether = "meshift.plans";
constexpr const char* kAlone = "meshift.model_plan";
constexpr int64_t kVersion = 1;

// The member `key` of an object; `what` names the object, if it is not the document or a row.
absl::StatusOr<const Json*> Member(const Json& object, const std::string& key,
                                   const std::string& what = "") {
  const std::string where = what.empty() ? "" : what + ": ";
  if (!object.is_object()) {
    return InvalidArgument("{}{} is not an object", where, JsonQuote(object));
  }
  const auto member = object.find(key);
  if (member == object.end()) return InvalidArgument("{}key '{}' is missing", where, key);
  return &*member;
}

absl::StatusOr<int64_t> PositiveInt(const Json& json, const std::string& what) {
  MESHIFT_ASSIGN_OR_RETURN(const int64_t value, JsonInt(json, what));
  if (value < 1) return InvalidArgument("{} is {}; it must be 1 or more", what, value);
  return value;
}

Json TotalJson(const ModelPlan& model) {
  const PlanTotals total = model.Total();
  Json json = {{"parameters", model.NumParameters()},
               {"collectives", total.collectives},
               {"bytes_sent", total.bytes_sent},
               {"est_ns", total.est_ns}};
  if (total.setup_ns != 0) json["setup_ns"] = total.setup_ns;
  return json;
}

Json LowerBoundJson(const ModelPlan& model) {
  const LowerBound bound = model.Bound();
  return {{"bytes_sent", bound.bytes_sent}, {"est_ns", bound.est_ns}};
}

Json BusiestLinkJson(const TogetherTotals& together, const Topology& topology) {
  return {{"rank", together.busiest.rank},
          {"level", topology.level(together.busiest.level).name},
          {"direction", together.busiest.received ? "received" : "sent"},
          {"ns", together.busiest_ns}};
}

Json TrafficJson(const ModelTraffic& traffic) {
  const auto busiest = [](const Busiest& b) {
    return Json{{"rank", b.rank}, {"bytes_sent", b.bytes}};
  };
  Json levels = Json::array();
  for (const LevelTraffic& level : traffic.levels) {
    levels.push_back(
        {{"name", level.name}, {"bytes_sent", level.total}, {"busiest", busiest(level.busiest)}});
  }
  return {{"ranks", traffic.ranks},
          {"bytes_sent", traffic.total},
          {"busiest", busiest(traffic.busiest)},
          {"levels", std::move(levels)}};
}

Json RoundJson(const Round& round, bool together) {
  Json rows = Json::array();
  for (const Round::Part& part : round.parts) rows.push_back({part.move, part.count});
  Json json = {{"repeat", round.repeat}, {"workspace_bytes", round.workspace_bytes}};
  if (together) json["busiest_ns"] = round.busiest_ns;
  json["rows"] = std::move(rows);
  return json;
}

}  // namespace

std::string PlansToJson(const ModelPlan& model, bool with_traffic) {
  Json rows = Json::array();
  for (const ModelRow& row : model.rows) {
    Json json = {{"count", row.count}};
    if (model.name) json["first"] = row.first;
    if (row.id) json["id"] = Json::parse(*row.id);
    json["plan"] = Json::parse(PlanToJson(row.plan, -1));
    rows.push_back(std::move(json));
  }
  Json json = {{"format", model.together ? kTogether : kAlone}, {"version", kVersion}};
  if (model.name) json["model"] = *model.name;
  json["rows"] = std::move(rows);
  json["total"] = TotalJson(model);
  json["lower_bound"] = LowerBoundJson(model);
  if (model.together) {
    const Topology& topology = model.rows[0].plan.options().topology;
    json["together"] = {{"busiest", BusiestLinkJson(*model.together, topology)},
                        {"starts_ns", model.together->starts_ns},
                        {"copies_ns", model.together->copies_ns},
                        {"bound_ns", model.together->bound_ns}};
  }
  if (model.bucket_bytes) {
    json["bucket_bytes"] = *model.bucket_bytes;
    json["rounds"] = Json::array();
    for (const Round& round : model.rounds) {
      json["rounds"].push_back(RoundJson(round, model.together.has_value()));
    }
  }
  if (with_traffic) json["traffic"] = TrafficJson(TrafficOf(model));
  return json.dump(2, ' ', /*ensure_ascii=*/true);
}

namespace {

// Compares what a document states with what its plans give. Returns the first difference, as in
// "total: bytes_sent is 4; the plans give 5"; empty: there is none. INVALID_ARGUMENT: a key is
// missing, or has another type. `what`: the names of the keys so far.
absl::StatusOr<std::string> Difference(const Json& stated, const Json& right,
                                       const std::string& what) {
  const auto differ = [&] {
    return fmt::format("{} is {}; the plans give {}", what, JsonQuote(stated), JsonQuote(right));
  };
  if (right.is_object()) {
    for (const auto& [key, value] : right.items()) {
      MESHIFT_ASSIGN_OR_RETURN(const Json* const member, Member(stated, key, what));
      MESHIFT_ASSIGN_OR_RETURN(std::string difference,
                               Difference(*member, value, fmt::format("{}: {}", what, key)));
      if (!difference.empty()) return difference;
    }
    return "";
  }
  if (right.is_array()) {
    if (!stated.is_array()) {
      return InvalidArgument("{} is {}; it must be a list", what, JsonQuote(stated));
    }
    if (stated.size() != right.size()) {
      return fmt::format("{} has {} items; the plans give {}", what, stated.size(), right.size());
    }
    for (size_t i = 0; i < right.size(); ++i) {
      MESHIFT_ASSIGN_OR_RETURN(
          std::string difference,
          Difference(stated[i], right[i], fmt::format("{}: item {}", what, i)));
      if (!difference.empty()) return difference;
    }
    return "";
  }
  if (right.is_string()) {
    MESHIFT_RETURN_IF_ERROR(JsonString(stated, what).status());
  } else {
    MESHIFT_RETURN_IF_ERROR(JsonInt(stated, what).status());
  }
  return stated == right ? "" : differ();
}

// Checks one document. Functions return the first fault, or an empty text;
// errors are those of CheckPlans.
class Checker {
 public:
  // Keeps a reference to the document, and takes its plans away. REQUIRES: it is an object.
  Checker(Json& document, int64_t max_work) : document_(document), budget_(max_work) {}

  absl::StatusOr<PlansVerdict> Check(bool together) {
    absl::StatusOr<std::string> found = FindFault(together);
    if (budget_.exhausted()) found = "scale: " + Message(budget_.Refusal("the proof"));
    MESHIFT_ASSIGN_OR_RETURN(const std::string wrong, std::move(found));
    if (!wrong.empty()) return PlansVerdict{false, "wrong: " + ShownMessage(wrong)};
    return PlansVerdict{true, fmt::format("ok {} of {}", CountText(std::ssize(model_.rows), "plan"),
                                          CountText(model_.NumParameters(), "tensor"))};
  }

 private:
  // A part of the check; some read what those before it have read.
  using Part = absl::StatusOr<std::string> (Checker::*)();

  absl::StatusOr<std::string> FindFault(bool together) {
    std::vector<Part> parts = {&Checker::CheckRows, &Checker::CheckTotals};
    if (together) parts.push_back(&Checker::CheckTogether);
    if (document_.contains("bucket_bytes") || document_.contains("rounds")) {
      parts.push_back(&Checker::CheckRounds);
    }
    if (document_.contains("traffic")) parts.push_back(&Checker::CheckTraffic);
    for (const Part part : parts) {
      MESHIFT_ASSIGN_OR_RETURN(std::string wrong, (this->*part)());
      if (!wrong.empty() || budget_.exhausted()) return wrong;
    }
    return "";
  }
  absl::StatusOr<std::string> CheckRows();
  absl::StatusOr<std::string> ReadRow(int64_t index, Json& row);
  absl::StatusOr<std::string> CheckTotals();
  absl::StatusOr<std::string> CheckTogether();
  absl::StatusOr<std::string> CheckRounds();
  absl::StatusOr<Round> ReadRound(const Json& json, const std::string& what) const;
  absl::StatusOr<std::string> CheckTraffic();

  const Topology& topology() const { return plans_[0].options().topology; }

  Json& document_;
  WorkBudget budget_;
  ModelPlan model_;
  std::vector<Plan> plans_;
  std::optional<Links> links_;  // if the plans are made together
};

absl::StatusOr<std::string> Checker::CheckRows() {
  MESHIFT_ASSIGN_OR_RETURN(const Json* const rows, Member(document_, "rows"));
  if (!rows->is_array() || rows->empty()) {
    return InvalidArgument("rows is {}; it must be a list of at least one row", JsonQuote(*rows));
  }
  int64_t index = 0;
  for (Json& row : document_["rows"]) {
    absl::StatusOr<std::string> wrong = ReadRow(index, row);
    if (!wrong.ok()) return Annotate(wrong.status(), fmt::format("row {}", index));
    if (!wrong->empty()) return fmt::format("row {}: {}", index, *wrong);
    ++index;
  }
  return "";
}

absl::StatusOr<std::string> Checker::ReadRow(int64_t index, Json& row) {
  // Most of it stands for memory.
  constexpr int64_t kRowWork = 16384;
  if (!budget_.Charge(kRowWork)) return "";
  MESHIFT_ASSIGN_OR_RETURN(const Json* const count_json, Member(row, "count"));
  MESHIFT_ASSIGN_OR_RETURN(const int64_t count, PositiveInt(*count_json, "count"));
  MESHIFT_RETURN_IF_ERROR(Member(row, "plan").status());
  PlanFault unread;
  absl::StatusOr<Plan> plan = absl::UnknownError("");
  {
    // Both forms of a large plan need not be in memory at the same time.
    Json json = std::move(row["plan"]);
    std::string text;
    {
      const JsonEmptier emptier(json);
      text = JsonText(json);
    }
    plan = PlanFromJson(text, &unread);
  }
  if (!plan.ok() && unread.rule == "format") return Annotate(plan.status(), "plan");
  const std::optional<PlanFault> fault =
      plan.ok() ? Verify(*plan, VerifyOptions{}, budget_).fault : unread;
  if (fault) return FaultText(*fault);
  if (index > 0 && !(plan->options().topology == topology())) {
    return fmt::format("topology is {}; that of row 0 is {}",
                       Quoted(plan->options().topology.ToString()), Quoted(topology().ToString()));
  }
  plans_.push_back(*plan);
  model_.rows.push_back({.count = count, .plan = *std::move(plan)});
  return "";
}

absl::StatusOr<std::string> Checker::CheckTotals() {
  MESHIFT_ASSIGN_OR_RETURN(const Json* const stated, Member(document_, "total"));
  MESHIFT_ASSIGN_OR_RETURN(const Json* const bound, Member(document_, "lower_bound"));
  MESHIFT_ASSIGN_OR_RETURN(model_.setup_ns, SetupNs(model_.rows, budget_));
  Json total = TotalJson(model_);
  if (stated->contains("setup_ns")) total["setup_ns"] = model_.setup_ns;
  MESHIFT_ASSIGN_OR_RETURN(std::string wrong, Difference(*stated, total, "total"));
  if (!wrong.empty()) return wrong;
  return Difference(*bound, LowerBoundJson(model_), "lower_bound");
}

absl::StatusOr<std::string> Checker::CheckTogether() {
  MESHIFT_ASSIGN_OR_RETURN(const Json* const stated, Member(document_, "together"));
  MESHIFT_ASSIGN_OR_RETURN(const Json* const busiest, Member(*stated, "busiest", "together"));
  MESHIFT_ASSIGN_OR_RETURN(const Json* const bound, Member(*stated, "bound_ns", "together"));
  MESHIFT_ASSIGN_OR_RETURN(const int64_t bound_ns, JsonInt(*bound, "together: bound_ns"));
  absl::StatusOr<Links> links = LinksOf(plans_, topology(), budget_);
  if (!links.ok()) return "scale: " + Message(links.status());
  links_.emplace(*std::move(links));
  PlanLoads loads(plans_, *links_, budget_);
  StartSums starts;
  CollectiveKinds kinds;
  for (size_t i = 0; i < plans_.size(); ++i) {
    loads.Add(i, model_.rows[i].count);
    if (budget_.exhausted()) return "";
    starts.Add(StartsOf(plans_[i], topology(), &kinds));
  }
  const LinkTime right = loads.Busiest();
  model_.together = {right.link, right.ns, starts.Most(), loads.CopiesNs(), bound_ns};
  MESHIFT_ASSIGN_OR_RETURN(
      std::string wrong,
      Difference(*busiest, BusiestLinkJson(*model_.together, topology()), "together: busiest"));
  // Documents of earlier programs do not have these.
  for (const auto& [key, ns] : {std::pair("starts_ns", model_.together->starts_ns),
                                std::pair("copies_ns", model_.together->copies_ns)}) {
    if (!wrong.empty() || !stated->contains(key)) continue;
    MESHIFT_ASSIGN_OR_RETURN(
        wrong, Difference((*stated)[key], Json(ns), fmt::format("together: {}", key)));
  }
  if (!wrong.empty() || (bound_ns >= 0 && bound_ns <= right.ns)) return wrong;
  return fmt::format("together: bound_ns is {}; it must be in 0..{}, the time of the busiest link",
                     bound_ns, right.ns);
}

absl::StatusOr<Round> Checker::ReadRound(const Json& json, const std::string& what) const {
  Round round;
  MESHIFT_ASSIGN_OR_RETURN(const Json* const repeat, Member(json, "repeat", what));
  MESHIFT_ASSIGN_OR_RETURN(round.repeat, PositiveInt(*repeat, what + ": repeat"));
  MESHIFT_ASSIGN_OR_RETURN(const Json* const rows, Member(json, "rows", what));
  if (!rows->is_array() || rows->empty()) {
    return InvalidArgument("{}: rows is {}; it must be a list of at least one [row, count]", what,
                           JsonQuote(*rows));
  }
  for (const Json& part : *rows) {
    if (!part.is_array() || part.size() != 2) {
      return InvalidArgument("{}: {} is not [row, count]", what, JsonQuote(part));
    }
    MESHIFT_ASSIGN_OR_RETURN(const int64_t row, JsonInt(part[0], what + ": a row"));
    MESHIFT_ASSIGN_OR_RETURN(const int64_t count, PositiveInt(part[1], what + ": a count"));
    if (row < 0 || row >= std::ssize(plans_)) {
      return InvalidArgument("{}: row {} is not in 0..{}", what, row, plans_.size() - 1);
    }
    round.parts.push_back({row, count});
  }
  return round;
}

absl::StatusOr<std::string> Checker::CheckRounds() {
  MESHIFT_ASSIGN_OR_RETURN(const Json* const bucket, Member(document_, "bucket_bytes"));
  MESHIFT_ASSIGN_OR_RETURN(const int64_t bucket_bytes, PositiveInt(*bucket, "bucket_bytes"));
  MESHIFT_ASSIGN_OR_RETURN(const Json* const rounds, Member(document_, "rounds"));
  if (!rounds->is_array()) {
    return InvalidArgument("rounds is {}; it must be a list", JsonQuote(*rounds));
  }
  const auto name = [](size_t i) { return fmt::format("round {}", i); };
  std::vector<int64_t> left;  // by row
  for (const ModelRow& row : model_.rows) left.push_back(row.count);
  for (const Json& json : *rounds) {
    const std::string what = name(model_.rounds.size());
    MESHIFT_ASSIGN_OR_RETURN(Round round, ReadRound(json, what));
    for (const Round::Part& part : round.parts) {
      const int64_t count = SaturatingMul(round.repeat, part.count);
      if (count > left[part.move]) {
        return fmt::format("{}: row {} has {} tensors, and fewer are left", what, part.move,
                           model_.rows[part.move].count);
      }
      left[part.move] -= count;
    }
    round.workspace_bytes = WorkspaceOf(round, plans_);
    model_.rounds.push_back(std::move(round));
  }
  for (size_t row = 0; row < left.size(); ++row) {
    if (left[row] == 0) continue;
    return fmt::format("rounds: {} of row {} {} in none", CountText(left[row], "tensor"), row,
                       left[row] == 1 ? "is" : "are");
  }
  if (model_.together) {
    PlanLoads loads(plans_, *links_, budget_);
    CountRounds(loads, &model_.rounds);
    if (budget_.exhausted()) return "";
  }
  for (size_t i = 0; i < model_.rounds.size(); ++i) {
    const Round& round = model_.rounds[i];
    Json right = RoundJson(round, model_.together.has_value());
    right.erase("repeat");  // they are as the document states them
    right.erase("rows");
    MESHIFT_ASSIGN_OR_RETURN(std::string wrong, Difference((*rounds)[i], right, name(i)));
    if (!wrong.empty()) return wrong;
    if (round.workspace_bytes > bucket_bytes) {
      return fmt::format("{}: workspace_bytes is {}; bucket_bytes is {}", name(i),
                         round.workspace_bytes, bucket_bytes);
    }
  }
  return "";
}

absl::StatusOr<std::string> Checker::CheckTraffic() {
  if (!budget_.Charge(TrafficWork(model_))) return "";
  return Difference(document_["traffic"], TrafficJson(TrafficOf(model_)), "traffic");
}

}  // namespace

absl::StatusOr<std::optional<PlansVerdict>> CheckPlans(std::string_view text, int64_t max_work) {
  absl::StatusOr<Json> document = ParseJson(text);
  const JsonEmptier emptier(document);
  if (!document.ok() || !document->is_object()) return std::nullopt;
  const auto format = document->find("format");
  if (format == document->end() || (*format != kTogether && *format != kAlone)) {
    return std::nullopt;
  }
  MESHIFT_ASSIGN_OR_RETURN(const Json* const version_json, Member(*document, "version"));
  MESHIFT_ASSIGN_OR_RETURN(const int64_t version, PositiveInt(*version_json, "version"));
  if (version > kVersion) {
    return absl::UnimplementedError(
        fmt::format("version {} is newer than {}, the newest known", version, kVersion));
  }
  MESHIFT_ASSIGN_OR_RETURN(PlansVerdict verdict,
                           Checker(*document, max_work).Check(*format == kTogether));
  return verdict;
}

}  // namespace meshift::cli
