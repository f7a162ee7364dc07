#include "cli/run_command.h"

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "base/status_macros.h"
#include "cli/check_command.h"
#include "cli/conformance.h"
#include "cli/engines.h"
#include "cli/execute.h"
#include "cli/io.h"
#include "cli/local_tensors.h"
#include "cli/model_plan.h"
#include "cli/problem.h"
#include "cli/render_run.h"
#include "cli/site.h"
#include "comm/local/reduction_order.h"
#include "planner/plan/plan.h"
#include "planner/plan/plan_io.h"
#include "planner/plan/plan_text.h"
#include "planner/planner.h"
#include "planner/verifier/verifier.h"

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
  MESHIFT_RETURN_IF_ERROR(CheckEngine(flags.problem.engine));
  if (flags.load && flags.seed) return InvalidArgument("--seed and --load exclude each other");
  ExecuteOptions options{.repeat = flags.repeat, .seed = flags.seed.value_or(1)};
  options.engine = flags.problem.engine;
  MESHIFT_ASSIGN_OR_RETURN(options.reduction_order, ParseOrder(flags.reduction_order));
  if (flags.problem.engine != "local") {
    if (options.reduction_order != ReductionOrder::kRanks) {
      return InvalidArgument("--reduction-order is the local engine's");
    }
    if (flags.plan == "-") {
      return InvalidArgument("--plan - with --engine {}: every rank reads the plan from a file",
                             flags.problem.engine);
    }
    if (flags.ranks) return InvalidArgument("--ranks is the local engine's; mpirun -n says it");
  }
  if (!flags.conformance) {
    if (flags.cases || flags.ranks)
      return InvalidArgument("--cases and --ranks need --conformance");
    if (flags.cross) return InvalidArgument("--cross needs --conformance");
    return options;
  }
  MESHIFT_RETURN_IF_ERROR(ExcludeProblem(flags.problem, "--conformance"));
  MESHIFT_RETURN_IF_ERROR(ExcludeOptions(flags.problem, "--conformance"));
  MESHIFT_RETURN_IF_ERROR(Exclude(flags.plan, "--plan", "--conformance"));
  MESHIFT_RETURN_IF_ERROR(Exclude(flags.load, "--load", "--conformance"));
  MESHIFT_RETURN_IF_ERROR(Exclude(flags.save, "--save", "--conformance"));
  if (flags.seed) return InvalidArgument("--seed and --conformance exclude each other");
  if (flags.repeat != 1) return InvalidArgument("--repeat and --conformance exclude each other");
  if (options.reduction_order != ReductionOrder::kRanks) {
    return InvalidArgument("--reduction-order and --conformance exclude each other");
  }
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
  MESHIFT_RETURN_IF_ERROR(ExcludeOptions(problem, "--plan"));
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
  MESHIFT_ASSIGN_OR_RETURN(const Problem problem, ParseProblem(flags.problem));
  MESHIFT_ASSIGN_OR_RETURN(Plan plan, MakePlan(problem.from, problem.to, problem.options));
  return Candidate{std::move(plan), std::nullopt};
}

absl::Status Load(const Plan& plan, const std::string& folder, const Site& site,
                  RunTensors* tensors) {
  MESHIFT_RETURN_IF_ERROR(LoadTensors(folder, "source", plan.from(), &tensors->sources));
  const absl::Status equal = site.leads() ? CheckSources(plan, *tensors) : absl::OkStatus();
  return equal.ok() ? equal : BadFile(folder, equal);
}

absl::Status Save(const Plan& plan, const std::string& folder, const RunTensors& tensors) {
  MESHIFT_RETURN_IF_ERROR(MakeFolder(folder));
  MESHIFT_RETURN_IF_ERROR(SaveTensors(folder, "source", plan.from(), tensors.sources));
  return SaveTensors(folder, "target", plan.to(), tensors.targets);
}

// Loads where that is asked for, runs, saves where that is.
absl::StatusOr<RunReport> LoadRunSave(const Plan& plan, const RunFlags& flags,
                                      const ExecuteOptions& options, Site* site) {
  MESHIFT_ASSIGN_OR_RETURN(RunTensors tensors, MakeTensors(plan, *site));
  if (flags.load) {
    MESHIFT_RETURN_IF_ERROR(site->Agree(Load(plan, *flags.load, *site, &tensors)));
  }
  absl::StatusOr<RunReport> report = flags.load ? ExecuteGiven(plan, options, site, &tensors)
                                                : Execute(plan, options, site, &tensors);
  if (report.ok() && flags.save) {
    // The leader has all tensors.
    MESHIFT_RETURN_IF_ERROR(site->Agree(
        site->leads() ? Annotate(Save(plan, *flags.save, tensors), "--save") : absl::OkStatus()));
  }
  return report;
}

absl::StatusOr<int> RunOne(const RunFlags& flags, const ExecuteOptions& options, Site* site,
                           Io& io) {
  const absl::StatusOr<Candidate> candidate = MakeCandidate(flags, io);
  MESHIFT_RETURN_IF_ERROR(site->Agree(candidate.status()));
  if (candidate->fault) {
    io.out << "wrong: " << FaultText(*candidate->fault) << "\n";
    return kExitCheckFailed;
  }
  const Plan& plan = *candidate->plan;
  MESHIFT_ASSIGN_OR_RETURN(const RunReport report, LoadRunSave(plan, flags, options, site));
  io.out << RenderRun(plan, report, options, flags.load);
  return IsRight(plan, report) ? kExitOk : kExitCheckFailed;
}

absl::StatusOr<int> RunModel(const RunFlags& flags, const ExecuteOptions& options, Site* site,
                             Io& io) {
  MESHIFT_RETURN_IF_ERROR(Exclude(flags.plan, "--plan", "--model"));
  MESHIFT_RETURN_IF_ERROR(Exclude(flags.load, "--load", "--model"));
  MESHIFT_RETURN_IF_ERROR(Exclude(flags.save, "--save", "--model"));
  const absl::StatusOr<ModelPlan> planned = PlanModel(flags.problem, io);
  MESHIFT_RETURN_IF_ERROR(site->Agree(planned.status()));
  const ModelPlan& model = *planned;
  std::vector<RunReport> reports;
  bool right = true;
  for (const ModelRow& row : model.rows) {
    absl::StatusOr<RunReport> report = LoadRunSave(row.plan, flags, options, site);
    if (!report.ok()) {
      return Annotate(report.status(), fmt::format("parameter '{}'", row.first));
    }
    right = right && IsRight(row.plan, *report);
    reports.push_back(*std::move(report));
  }
  io.out << RenderModelRun(model, reports, flags.problem, options);
  return right ? kExitOk : kExitCheckFailed;
}

absl::StatusOr<int> Run(const RunFlags& flags, const ExecuteOptions& options, Site* site, Io& io) {
  return flags.problem.model ? RunModel(flags, options, site, io)
                             : RunOne(flags, options, site, io);
}

// What RunAsRank compares.
std::string Asked(const RunFlags& flags) {
  if (flags.conformance) {
    return fmt::format("run --conformance{}{}", flags.cross ? " --cross" : "",
                       flags.cases ? fmt::format(" --cases {}", *flags.cases) : "");
  }
  const auto given = [](const char* name, const std::optional<std::string>& value) {
    return value ? fmt::format(" {} {}", name, *value) : "";
  };
  return fmt::format("run --repeat {}{}{}{}{}{}", flags.repeat,
                     flags.seed ? fmt::format(" --seed {}", *flags.seed) : "",
                     flags.load ? " --load" : "", flags.save ? " --save" : "",
                     given("--buffers", flags.problem.buffers),
                     given("--filter", flags.problem.filter));
}

int RunRank(const RunFlags& flags, const ExecuteOptions& options, Io& io) {
  const auto body = [&](RankJob* job, Site* site, Io& own) -> absl::StatusOr<int> {
    if (flags.conformance) return RunConformance(flags, job, own);
    ExecuteOptions here = options;
    here.job_ranks = site->num_ranks();
    RunFlags all = flags;
    all.problem.capabilities = job->engine->Capabilities();
    return Run(all, here, site, own);
  };
  // Who checks never hangs.
  return RunAsRank(flags.problem.engine, /*bounded_waits=*/true, Asked(flags), body, io);
}

}  // namespace

int RunCommand(const RunFlags& flags, Io& io) {
  const absl::StatusOr<ExecuteOptions> options = ParseOptions(flags);
  if (!options.ok()) return Fail(io, options.status());
  if (flags.problem.engine != "local") return RunRank(flags, *options, io);
  const std::unique_ptr<Site> site = MakeLocalSite();
  const absl::StatusOr<int> code =
      flags.conformance ? RunLocalConformance(flags, io) : Run(flags, *options, site.get(), io);
  return code.ok() ? *code : Fail(io, code.status());
}

}  // namespace meshift::cli
