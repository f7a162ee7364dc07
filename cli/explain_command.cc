#include "cli/explain_command.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/status.h"
#include "base/text_table.h"
#include "cli/explain_collective.h"
#include "cli/json.h"
#include "cli/text.h"
#include "cli/time_text.h"
#include "meshift/explain.h"
#include "meshift/plan.h"
#include "meshift/plan_io.h"
#include "meshift/status.h"
#include "meshift/topology.h"
#include "planner/cost/collective_time.h"
#include "planner/cost/cost.h"
#include "planner/plan/plan_text.h"

namespace meshift::cli {
namespace {

constexpr int64_t kAlternatives = 8;  // if --alternatives is not given

// Whether a step makes calls: a crossing without messages is only a copy.
bool Calls(const TimeParts& parts) { return parts.Sum() > parts.copies_ns; }

std::string PartsTable(const Alternative& one, const Topology& topology) {
  const auto right = TextTable::Align::kRight;
  TextTable table({{"of it"},
                   {"by"},
                   {"starts", right},
                   {"hops", right},
                   {"messages", right},
                   {"links", right},
                   {"copies", right},
                   {"the slowest links"}});
  bool any = false;
  for (size_t i = 0; i < one.parts.size(); ++i) {
    if (!IsCollective(one.plan.steps()[i].op)) continue;
    const TimeParts& parts = one.parts[i];
    any = true;
    table.AddRow({fmt::format("{}", i),
                  Calls(parts) ? AlgorithmText(parts.algorithm, parts.protocol, topology) : "",
                  ExactTimeText(parts.starts_ns), ExactTimeText(parts.hops_ns),
                  ExactTimeText(parts.messages_ns), ExactTimeText(parts.links_ns),
                  ExactTimeText(parts.copies_ns), LinksText(parts.level, parts.sharing, topology)});
  }
  return any ? table.ToString() : "";
}

std::string RenderAlternatives(const std::vector<Alternative>& all, const Topology& topology) {
  const Plan& best = all[0].plan;
  std::string text = PlanPreamble(best, "explain");
  text +=
      fmt::format("# lower bound: sent {}, est {}\n", ExactBytesText(best.lower_bound().bytes_sent),
                  ExactTimeText(best.lower_bound().est_ns));
  int number = 0;
  for (const Alternative& one : all) {
    const PlanTotals& total = one.plan.total();
    text += fmt::format("\n[{}] {}: est {}, sent {}, {}\n", ++number, Name(one.verdict),
                        ExactTimeText(total.est_ns), ExactBytesText(total.bytes_sent),
                        CountText(total.collectives, "collective"));
    if (!one.reason.empty()) text += one.reason + "\n";
    if (!one.plan.steps().empty()) text += PlanStepsTable(one.plan);
    text += PartsTable(one, topology);
  }
  return text;
}

// One plan per line, in the form that `meshift check --batch` reads.
std::string AlternativesToJson(const std::vector<Alternative>& all, const Topology& topology) {
  std::string text;
  for (const Alternative& one : all) {
    Json json = Json::parse(PlanToJson(one.plan, /*indent=*/-1));
    json["verdict"] = Name(one.verdict);
    json["reason"] = one.reason;
    Json& times = json["times"] = Json::array();
    for (const TimeParts& parts : one.parts) {
      Json time = {{"starts_ns", parts.starts_ns},
                   {"hops_ns", parts.hops_ns},
                   {"messages_ns", parts.messages_ns},
                   {"links_ns", parts.links_ns},
                   {"copies_ns", parts.copies_ns}};
      time["algorithm"] = Calls(parts) ? Json(Name(parts.algorithm)) : Json();
      time["protocol"] =
          parts.protocol >= 0 ? Json(topology.protocols()[parts.protocol].name) : Json();
      time["slowest_links"] = parts.level >= 0 ? Json(topology.level(parts.level).name) : Json();
      time["links_per_domain"] = parts.sharing == 0 ? Json() : Json(parts.sharing);
      times.push_back(std::move(time));
    }
    text += JsonText(json) + "\n";
  }
  return text;
}

absl::Status Run(const ExplainFlags& flags, Io& io) {
  if (flags.format != "text" && flags.format != "json") {
    return InvalidArgument("--format: unknown format '{}'; expected text or json", flags.format);
  }
  const ProblemFlags& problem_flags = flags.problem;
  const CollectiveFlags& collective = flags.collective;
  if (collective.name) {
    if (flags.alternatives) {
      return InvalidArgument("--alternatives and --collective exclude each other");
    }
    return ExplainCollective(problem_flags, collective, flags.format == "json", io);
  }
  if (collective.bytes) return InvalidArgument("--bytes needs --collective");
  if (collective.dims) return InvalidArgument("--dims needs --collective");
  MESHIFT_RETURN_IF_ERROR(Exclude(problem_flags.model, "--model", "explain"));
  MESHIFT_RETURN_IF_ERROR(Exclude(problem_flags.rules, "--rules", "explain"));
  MESHIFT_RETURN_IF_ERROR(Exclude(problem_flags.filter, "--filter", "explain"));
  if (problem_flags.options.contains("planner")) {
    return InvalidArgument("--planner and explain exclude each other");
  }
  MESHIFT_ASSIGN_OR_RETURN(const Problem problem, ParseProblem(problem_flags));
  MESHIFT_ASSIGN_OR_RETURN(
      const std::vector<Alternative> all,
      ListAlternatives(problem.from, problem.to, problem.options,
                       static_cast<int>(flags.alternatives.value_or(kAlternatives))));
  const Topology& topology = problem.options.topology;
  io.out << (flags.format == "json" ? AlternativesToJson(all, topology)
                                    : RenderAlternatives(all, topology));
  return absl::OkStatus();
}

}  // namespace

int ExplainCommand(const ExplainFlags& flags, Io& io) {
  const absl::Status status = Run(flags, io);
  return status.ok() ? kExitOk : Fail(io, status);
}

}  // namespace meshift::cli
