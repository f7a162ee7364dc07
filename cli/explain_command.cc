#include "cli/explain_command.h"

#include <fmt/format.h>

#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/status.h"
#include "base/status_macros.h"
#include "cli/json.h"
#include "cli/text.h"
#include "planner/alternatives.h"
#include "planner/plan/plan.h"
#include "planner/plan/plan_io.h"
#include "planner/plan/plan_text.h"

namespace meshift::cli {
namespace {

std::string RenderAlternatives(const std::vector<Alternative>& all) {
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
  }
  return text;
}

// One plan per line, so that each is what `meshift check --batch` reads.
std::string AlternativesToJson(const std::vector<Alternative>& all) {
  std::string text;
  for (const Alternative& one : all) {
    Json json = Json::parse(PlanToJson(one.plan, /*indent=*/-1));
    json["verdict"] = Name(one.verdict);
    json["reason"] = one.reason;
    text += JsonText(json) + "\n";
  }
  return text;
}

absl::Status Run(const ExplainFlags& flags, Io& io) {
  if (flags.format != "text" && flags.format != "json") {
    return InvalidArgument("--format: \"{}\" is no format (text json)", flags.format);
  }
  const ProblemFlags& problem_flags = flags.problem;
  MESHIFT_RETURN_IF_ERROR(Exclude(problem_flags.model, "--model", "explain"));
  MESHIFT_RETURN_IF_ERROR(Exclude(problem_flags.rules, "--rules", "explain"));
  MESHIFT_RETURN_IF_ERROR(Exclude(problem_flags.filter, "--filter", "explain"));
  MESHIFT_RETURN_IF_ERROR(Exclude(problem_flags.planner, "--planner", "explain"));
  MESHIFT_ASSIGN_OR_RETURN(const Problem problem, ParseProblem(problem_flags, io));
  MESHIFT_ASSIGN_OR_RETURN(const std::vector<Alternative> all,
                           ListAlternatives(problem.from, problem.to, problem.options,
                                            static_cast<int>(flags.alternatives)));
  io.out << (flags.format == "json" ? AlternativesToJson(all) : RenderAlternatives(all));
  return absl::OkStatus();
}

}  // namespace

int ExplainCommand(const ExplainFlags& flags, Io& io) {
  const absl::Status status = Run(flags, io);
  return status.ok() ? kExitOk : Fail(io, status);
}

}  // namespace meshift::cli
