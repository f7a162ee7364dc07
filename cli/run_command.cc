#include "cli/run_command.h"

#include <fmt/format.h>

#include <optional>
#include <ostream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "base/status_macros.h"
#include "cli/check_command.h"
#include "cli/execute.h"
#include "cli/io.h"
#include "cli/local_tensors.h"
#include "cli/model_plan.h"
#include "cli/problem.h"
#include "cli/render_run.h"
#include "comm/local/reduction_order.h"
#include "planner/plan.h"
#include "planner/plan_io.h"
#include "planner/plan_text.h"
#include "planner/planner.h"
#include "planner/verifier.h"

namespace meshift::cli {
namespace {

absl::StatusOr<ReductionOrder> ParseOrder(const std::string& text) {
  if (text == "ranks") return ReductionOrder::kRanks;
  if (text == "topology") return ReductionOrder::kTopology;
  if (text == "adversarial") return ReductionOrder::kAdversarial;
  return InvalidArgument("--reduction-order: \"{}\" is no order (ranks topology adversarial)",
                         text);
}

absl::StatusOr<ExecuteOptions> ParseOptions(const RunFlags& flags) {
  if (flags.engine == "mpi" || flags.engine == "nccl") {
    return Unimplemented("--engine: {} is not in this version (local)", flags.engine);
  }
  if (flags.engine != "local") {
    return InvalidArgument("--engine: \"{}\" is no engine (local)", flags.engine);
  }
  if (flags.repeat < 1) return InvalidArgument("--repeat: {} is below 1", flags.repeat);
  if (flags.load && flags.seed) return InvalidArgument("--seed and --load exclude each other");
  ExecuteOptions options{.repeat = flags.repeat, .seed = flags.seed.value_or(1)};
  MESHIFT_ASSIGN_OR_RETURN(options.reduction_order, ParseOrder(flags.reduction_order));
  return options;
}

// The plan to run, or, where a plan that was read is wrong, its fault.
struct Candidate {
  std::optional<Plan> plan;
  std::optional<PlanFault> fault;
};

absl::StatusOr<Candidate> ReadCandidate(const RunFlags& flags, Io& io) {
  const ProblemFlags& problem = flags.problem;
  MESHIFT_RETURN_IF_ERROR(ExcludeProblem(problem, "--plan"));
  MESHIFT_RETURN_IF_ERROR(Exclude(problem.topology, "--topology", "--plan"));
  MESHIFT_RETURN_IF_ERROR(Exclude(problem.reproducibility, "--reproducibility", "--plan"));
  MESHIFT_RETURN_IF_ERROR(Exclude(problem.planner, "--planner", "--plan"));
  MESHIFT_ASSIGN_OR_RETURN(const std::string text, ReadFile(*flags.plan, io));
  PlanFault unread;
  absl::StatusOr<Plan> plan = ReadPlan(text, &unread);
  if (!plan.ok()) {
    if (unread.rule == "format") return BadFile(*flags.plan, plan.status());
    return Candidate{std::nullopt, std::move(unread)};
  }
  Verdict verdict = Verify(*plan);
  return Candidate{*std::move(plan), std::move(verdict.fault)};
}

absl::StatusOr<Candidate> MakeCandidate(const RunFlags& flags, Io& io) {
  if (flags.plan) return ReadCandidate(flags, io);
  if (flags.problem.filter) return InvalidArgument("--filter needs --model");
  MESHIFT_ASSIGN_OR_RETURN(const Problem problem, ParseProblem(flags.problem, io));
  MESHIFT_ASSIGN_OR_RETURN(Plan plan, MakePlan(problem.from, problem.to, problem.options));
  return Candidate{std::move(plan), std::nullopt};
}

// Loads where that is asked for, runs, saves where that is.
absl::StatusOr<RunReport> LoadRunSave(const Plan& plan, const RunFlags& flags,
                                      const ExecuteOptions& options) {
  MESHIFT_ASSIGN_OR_RETURN(RunTensors tensors, MakeTensors(plan));
  if (flags.load) {
    MESHIFT_RETURN_IF_ERROR(LoadTensors(*flags.load, "source", plan.from(), &tensors.sources));
    const absl::Status equal = CheckSources(plan, tensors);
    if (!equal.ok()) return BadFile(*flags.load, equal);
  }
  absl::StatusOr<RunReport> report =
      flags.load ? ExecuteGiven(plan, options, &tensors) : Execute(plan, options, &tensors);
  if (report.ok() && flags.save) {
    MESHIFT_RETURN_IF_ERROR(Annotate(MakeFolder(*flags.save), "--save"));
    for (const auto& [stem, sharding, held] :
         {std::tuple("source", &plan.from(), &tensors.sources),
          std::tuple("target", &plan.to(), &tensors.targets)}) {
      MESHIFT_RETURN_IF_ERROR(Annotate(SaveTensors(*flags.save, stem, *sharding, *held), "--save"));
    }
  }
  return report;
}

absl::StatusOr<int> RunOne(const RunFlags& flags, const ExecuteOptions& options, Io& io) {
  MESHIFT_ASSIGN_OR_RETURN(const Candidate candidate, MakeCandidate(flags, io));
  if (candidate.fault) {
    io.out << "wrong: " << FaultText(*candidate.fault) << "\n";
    return kExitCheckFailed;
  }
  const Plan& plan = *candidate.plan;
  MESHIFT_ASSIGN_OR_RETURN(const RunReport report, LoadRunSave(plan, flags, options));
  io.out << RenderRun(plan, report, options, flags.load);
  return IsRight(plan, report) ? kExitOk : kExitCheckFailed;
}

absl::StatusOr<int> RunModel(const RunFlags& flags, const ExecuteOptions& options, Io& io) {
  MESHIFT_RETURN_IF_ERROR(Exclude(flags.plan, "--plan", "--model"));
  MESHIFT_RETURN_IF_ERROR(Exclude(flags.load, "--load", "--model"));
  MESHIFT_RETURN_IF_ERROR(Exclude(flags.save, "--save", "--model"));
  MESHIFT_ASSIGN_OR_RETURN(const ModelPlan model, PlanModel(flags.problem, io));
  std::vector<RunReport> reports;
  bool right = true;
  for (const ModelRow& row : model.rows) {
    absl::StatusOr<RunReport> report = LoadRunSave(row.plan, flags, options);
    if (!report.ok()) {
      return Annotate(report.status(), fmt::format("parameter '{}'", row.first));
    }
    right = right && IsRight(row.plan, *report);
    reports.push_back(*std::move(report));
  }
  io.out << RenderModelRun(model, reports, flags.problem, options);
  return right ? kExitOk : kExitCheckFailed;
}

}  // namespace

int RunCommand(const RunFlags& flags, Io& io) {
  const absl::StatusOr<ExecuteOptions> options = ParseOptions(flags);
  if (!options.ok()) return Fail(io, options.status());
  const absl::StatusOr<int> code =
      flags.problem.model ? RunModel(flags, *options, io) : RunOne(flags, *options, io);
  return code.ok() ? *code : Fail(io, code.status());
}

}  // namespace meshift::cli
