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
#include "base/work_budget.h"
#include "cli/check_command.h"
#include "cli/conformance.h"
#include "cli/engines.h"
#include "cli/execute.h"
#include "cli/execution_context.h"
#include "cli/file_set.h"
#include "cli/io.h"
#include "cli/local_tensors.h"
#include "cli/model_plan.h"
#include "cli/problem.h"
#include "cli/render_run.h"
#include "cli/run_as_rank.h"
#include "cli/text.h"
#include "comm/control/rank_exchange.h"
#include "comm/local/reduction_order.h"
#include "meshift/plan.h"
#include "meshift/plan_io.h"
#include "meshift/status.h"
#include "meshift/verifier.h"
#include "planner/plan/option_table.h"
#include "planner/plan/plan_text.h"

namespace meshift::cli {
namespace {

absl::StatusOr<ReductionOrder> ParseOrder(const std::string& text) {
  if (text == "ranks") return ReductionOrder::kRanks;
  if (text == "topology") return ReductionOrder::kTopology;
  if (text == "adversarial") return ReductionOrder::kAdversarial;
  return InvalidArgument(
      "--reduction-order: unknown order '{}'; expected ranks, topology or adversarial", text);
}

absl::StatusOr<ExecuteOptions> ParseOptions(const RunFlags& flags) {
  MESHIFT_RETURN_IF_ERROR(CheckEngine(flags.problem.engine));
  if (flags.load && flags.seed) return InvalidArgument("--seed and --load exclude each other");
  ExecuteOptions options{.repeat = flags.repeat, .seed = flags.seed.value_or(1)};
  options.engine = flags.problem.engine;
  MESHIFT_ASSIGN_OR_RETURN(options.timeout, JobTimeout(flags.timeout));
  MESHIFT_ASSIGN_OR_RETURN(options.reduction_order, ParseOrder(flags.reduction_order));
  if (flags.problem.engine != "local") {
    if (options.reduction_order != ReductionOrder::kRanks) {
      return InvalidArgument("--reduction-order is for the local engine only");
    }
    if (flags.plan == "-") {
      return InvalidArgument(
          "--plan - cannot be used with --engine {}, since every rank reads the plan; name a file",
          flags.problem.engine);
    }
    if (flags.ranks)
      return InvalidArgument("--ranks is for the local engine; mpirun -n sets it for others");
  }
  if (flags.problem.model) {
    MESHIFT_RETURN_IF_ERROR(Exclude(flags.plan, "--plan", "--model"));
    MESHIFT_RETURN_IF_ERROR(Exclude(flags.load, "--load", "--model"));
    MESHIFT_RETURN_IF_ERROR(Exclude(flags.save, "--save", "--model"));
  }
  if (!flags.conformance) {
    const bool has_problem = !flags.plan && !flags.problem.model;
    if (has_problem && flags.problem.filter) return InvalidArgument("--filter needs --model");
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

// The plan to run; or, if a plan that was read is wrong, its fault.
struct Candidate {
  std::optional<Plan> plan;
  std::optional<PlanFault> fault;
};

absl::StatusOr<Candidate> ReadCandidate(const RunFlags& flags, Io& io) {
  const ProblemFlags& problem = flags.problem;
  MESHIFT_RETURN_IF_ERROR(ExcludeProblem(problem, "--plan"));
  MESHIFT_RETURN_IF_ERROR(ExcludeOptions(problem, "--plan", {"max_work"}));
  MESHIFT_ASSIGN_OR_RETURN(const PlannerOptions options, ParsePlannerOptions(problem));
  MESHIFT_ASSIGN_OR_RETURN(const std::string text, ReadFile(*flags.plan, io));
  PlanFault unread;
  absl::StatusOr<Plan> plan = ReadPlan(text, &unread);
  if (!plan.ok()) {
    if (unread.rule == "format") return BadFile(*flags.plan, plan.status());
    return Candidate{std::nullopt, std::move(unread)};
  }
  Verdict verdict = Verify(*plan, {.max_work = options.max_work});
  return Candidate{*std::move(plan), std::move(verdict.fault)};
}

absl::StatusOr<Candidate> MakeCandidate(const RunFlags& flags, Io& io) {
  if (flags.plan) return ReadCandidate(flags, io);
  MESHIFT_ASSIGN_OR_RETURN(const Problem problem, ParseProblem(flags.problem));
  MESHIFT_ASSIGN_OR_RETURN(Plan plan, PlanOf(problem));
  return Candidate{std::move(plan), std::nullopt};
}

// The text that ranks compare to check that they have the same plan; errors show it.
std::string PlanText(const Plan& plan) {
  return fmt::format("plan {} of {} -> {}", plan.fingerprint().ToString(), plan.from().ToString(),
                     plan.to().ToString());
}

// The same for all plans of a model.
std::string PlansText(const ModelPlan& model) {
  std::string fingerprints;
  for (const ModelRow& row : model.rows) fingerprints += row.plan.fingerprint().ToString();
  return fmt::format("plans {} of model {}, {}", Fingerprint::Of(fingerprints).ToString(),
                     model.name.value_or(""), CountText(model.NumParameters(), "parameter"));
}

absl::Status Load(const Plan& plan, const std::string& folder, const ExecutionContext& context,
                  RunTensors* tensors) {
  MESHIFT_RETURN_IF_ERROR(LoadTensors(folder, "source", plan.from(), &tensors->sources));
  const absl::Status equal = context.is_leader() ? CheckSources(plan, *tensors) : absl::OkStatus();
  return equal.ok() ? equal : BadFile(folder, equal);
}

absl::Status Save(const Plan& plan, const std::string& folder, const RunTensors& tensors) {
  MESHIFT_RETURN_IF_ERROR(MakeFolder(folder));
  FileSet files;
  MESHIFT_RETURN_IF_ERROR(SaveTensors(folder, "source", plan.from(), tensors.sources, &files));
  MESHIFT_RETURN_IF_ERROR(SaveTensors(folder, "target", plan.to(), tensors.targets, &files));
  return files.Commit();
}

absl::StatusOr<RunReport> LoadRunSave(const Plan& plan, const RunFlags& flags,
                                      const ExecuteOptions& options, ExecutionContext* context) {
  absl::StatusOr<RunTensors> made = MakeTensors(plan, *context);
  MESHIFT_RETURN_IF_ERROR(context->Agree(made.status()));
  RunTensors& tensors = *made;
  if (flags.load) {
    MESHIFT_RETURN_IF_ERROR(
        context->AgreeAfter([&] { return Load(plan, *flags.load, *context, &tensors); }));
  }
  absl::StatusOr<RunReport> report = flags.load ? ExecuteLoaded(plan, options, context, &tensors)
                                                : Execute(plan, options, context, &tensors);
  if (report.ok() && flags.save) {
    // Only the leader has all tensors.
    MESHIFT_RETURN_IF_ERROR(context->AgreeAfter([&] {
      return context->is_leader() ? Annotate(Save(plan, *flags.save, tensors), "--save")
                                  : absl::OkStatus();
    }));
  }
  return report;
}

absl::StatusOr<int> RunOne(const RunFlags& flags, const ExecuteOptions& options,
                           ExecutionContext* context, Io& io) {
  absl::StatusOr<Candidate> candidate = Candidate();
  const absl::Status agreed = context->AgreeOn([&]() -> absl::StatusOr<std::string> {
    candidate = MakeCandidate(flags, io);
    MESHIFT_RETURN_IF_ERROR(candidate.status());
    if (candidate->fault) return FailedPrecondition("wrong: {}", FaultText(*candidate->fault));
    return PlanText(*candidate->plan);
  });
  if (candidate.ok() && candidate->fault && context->AllFailed()) {
    io.out << Printable(Message(agreed)) << "\n";
    return kExitCheckFailed;
  }
  MESHIFT_RETURN_IF_ERROR(agreed);
  const Plan& plan = *candidate->plan;
  MESHIFT_ASSIGN_OR_RETURN(const RunReport report, LoadRunSave(plan, flags, options, context));
  io.out << RenderRun(plan, report, options, flags.load);
  return IsRight(plan, report) ? kExitOk : kExitCheckFailed;
}

absl::StatusOr<int> RunModel(const RunFlags& flags, const ExecuteOptions& options,
                             ExecutionContext* context, Io& io) {
  std::optional<absl::StatusOr<ModelPlan>> planned;
  MESHIFT_RETURN_IF_ERROR(context->AgreeOn([&]() -> absl::StatusOr<std::string> {
    planned = PlanModel(flags.problem, io);
    MESHIFT_RETURN_IF_ERROR(planned->status());
    return PlansText(**planned);
  }));
  const ModelPlan& model = **planned;
  std::vector<RunReport> reports;
  bool right = true;
  for (const ModelRow& row : model.rows) {
    absl::StatusOr<RunReport> report = LoadRunSave(row.plan, flags, options, context);
    if (!report.ok()) {
      return Annotate(report.status(), fmt::format("parameter '{}'", row.first));
    }
    right = right && IsRight(row.plan, *report);
    reports.push_back(*std::move(report));
  }
  io.out << RenderModelRun(model, reports, flags.problem, options);
  return right ? kExitOk : kExitCheckFailed;
}

absl::StatusOr<int> Run(const RunFlags& flags, const ExecuteOptions& options,
                        ExecutionContext* context, Io& io) {
  return flags.problem.model ? RunModel(flags, options, context, io)
                             : RunOne(flags, options, context, io);
}

// The arguments that must be equal on all ranks. For files only their presence: each rank has its
// own paths.
ArgumentTexts ArgumentsOf(const RunFlags& flags) {
  ArgumentTexts arguments;
  const auto text = [&](const char* name, const std::optional<std::string>& value) {
    if (value) arguments.push_back(fmt::format("{} {}", name, *value));
  };
  const auto number = [&](const char* name, const auto& value) {
    if (value) arguments.push_back(fmt::format("{} {}", name, *value));
  };
  const auto flag = [&](const char* name, bool given) {
    if (given) arguments.emplace_back(name);
  };
  const ProblemFlags& problem = flags.problem;
  text("--engine", problem.engine);
  flag("--conformance", flags.conformance);
  flag("--cross", flags.cross);
  number("--cases", flags.cases);
  if (flags.repeat != 1) arguments.push_back(fmt::format("--repeat {}", flags.repeat));
  number("--seed", flags.seed);
  flag("--plan", flags.plan.has_value());
  flag("--load", flags.load.has_value());
  flag("--save", flags.save.has_value());
  text("--mesh", problem.mesh);
  text("--to-mesh", problem.to_mesh);
  flag("--relabel-ranks", problem.relabel_ranks);
  text("--tensor", problem.tensor);
  text("--from", problem.from);
  text("--to", problem.to);
  text("--to-dtype", problem.to_dtype);
  flag("--topology", problem.topology.has_value());
  for (const auto& [name, value] : problem.options) {
    arguments.push_back(fmt::format("{} {}", FindPlannerOption(name)->flag, value));
  }
  flag("--model", problem.model.has_value());
  text("--dtype", problem.dtype);
  flag("--rules", problem.rules.has_value());
  text("--filter", problem.filter);
  return arguments;
}

int RunRank(const RunFlags& flags, const ExecuteOptions& options, Io& io) {
  const auto body = [&](RankJob* job, ExecutionContext* context, Io& own) -> absl::StatusOr<int> {
    if (flags.conformance) return RunConformance(flags, job, own);
    ExecuteOptions here = options;
    here.job_ranks = context->num_ranks();
    RunFlags all = flags;
    all.problem.capabilities = job->engine->Capabilities();
    return Run(all, here, context, own);
  };
  // A problem that is invalid on its own is reported as such, not as a difference between ranks.
  const bool has_problem = !flags.conformance && !flags.plan && !flags.problem.model;
  const absl::Status arguments_error =
      has_problem ? ParseProblem(flags.problem).status() : absl::OkStatus();
  // Bounded waits, where MPI allows them, so that a check does not hang.
  const JobCall call{.verb = "run",
                     .engine = flags.problem.engine,
                     .options = {.bounded_waits = true, .timeout = options.timeout},
                     .arguments_error = arguments_error,
                     .arguments = ArgumentsOf(flags)};
  return RunAsRank(call, body, io);
}

}  // namespace

int RunCommand(const RunFlags& flags, Io& io) {
  const absl::StatusOr<ExecuteOptions> options = ParseOptions(flags);
  if (!options.ok()) return FailAsRank(flags.problem.engine, options.status(), io);
  if (flags.problem.engine != "local") return RunRank(flags, *options, io);
  const std::unique_ptr<ExecutionContext> context = MakeLocalContext(options->timeout);
  const absl::StatusOr<int> code =
      flags.conformance ? RunLocalConformance(flags, io) : Run(flags, *options, context.get(), io);
  return code.ok() ? *code : Fail(io, code.status());
}

}  // namespace meshift::cli
