#include "cli/execute.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "cli/execution_context.h"
#include "cli/local_tensors.h"
#include "meshift/device_mesh.h"
#include "meshift/plan.h"
#include "meshift/status.h"
#include "meshift/testing.h"
#include "meshift/topology.h"
#include "meshift/union_mesh.h"
#include "testing/given.h"

namespace meshift::cli {
namespace {

using testkit::CheckResult;
using testkit::Oracle;
using testkit::Values;

constexpr int64_t kDefaultDomainSize = 8;

// Fills sources before a run, and checks targets after it.
class Contents {
 public:
  Contents() = default;
  Contents(const Contents&) = delete;
  Contents& operator=(const Contents&) = delete;
  virtual ~Contents() = default;
  virtual absl::Status Fill(const LocalTensors& sources) const = 0;
  virtual absl::StatusOr<CheckResult> Check(const RunTensors& tensors) const = 0;
};

// Contributions that the oracle generates.
class GeneratedContents : public Contents {
 public:
  // Does not own the oracle.
  GeneratedContents(const Oracle* oracle, Values values, uint64_t seed)
      : oracle_(*oracle), fill_{.values = values, .seed = seed} {}
  absl::Status Fill(const LocalTensors& sources) const override {
    const int64_t ranks = oracle_.source().mesh().NumRanks();
    const int64_t cores = std::max<int64_t>(std::thread::hardware_concurrency(), 1);
    std::vector<absl::Status> results(std::min(cores, ranks));
    {
      std::vector<std::jthread> threads;
      for (size_t first = 0; first < results.size(); ++first) {
        threads.emplace_back([&, first] {
          for (int64_t p = static_cast<int64_t>(first); p < ranks && results[first].ok();
               p += static_cast<int64_t>(results.size())) {
            if (sources.HoldsAt(p)) results[first] = oracle_.FillSource(fill_, p, sources.at(p));
          }
        });
      }
    }
    for (const absl::Status& result : results) MESHIFT_RETURN_IF_ERROR(result);
    return absl::OkStatus();
  }
  absl::StatusOr<CheckResult> Check(const RunTensors& tensors) const override {
    return oracle_.Check(fill_, tensors.targets.Views());
  }

 private:
  const Oracle& oracle_;
  const testkit::Fill fill_;
};

// Contributions that the caller provides.
class LoadedContents : public Contents {
 public:
  explicit LoadedContents(const Plan& plan) : plan_(plan) {}
  absl::Status Fill(const LocalTensors&) const override { return absl::OkStatus(); }
  absl::StatusOr<CheckResult> Check(const RunTensors& tensors) const override {
    return testkit::CheckGiven(plan_.from(), plan_.to(), tensors.sources.Views(),
                               tensors.targets.Views(), plan_.options().reduce_dtype);
  }

 private:
  const Plan& plan_;
};

// Runs one plan repeatedly and keeps the worst results in a report.
class PlanChecker {
 public:
  PlanChecker(const Plan& plan, ExecutionContext* context, RunTensors* tensors)
      : plan_(plan),
        context_(*context),
        sources_(tensors->sources),
        targets_(tensors->targets),
        tensors_(*tensors) {
    report_.steps.resize(plan.steps().size());
  }

  // The rounding pass. Distorted sums are off by more than rounding: values are then checked by as
  // many runs in rank order, and the distorted runs only compare replicas.
  absl::Status Rounding(const Contents& contents, const ExecuteOptions& options) {
    const bool distorts = options.reduction_order == ReductionOrder::kAdversarial;
    if (distorts) {
      MESHIFT_RETURN_IF_ERROR(
          Pass({&contents}, ReductionOrder::kRanks, {.repeat = options.repeat}));
    }
    return Pass({&contents}, options.reduction_order,
                {.repeat = options.repeat, .checks_values = !distorts, .hashes = true});
  }

  struct PassOptions {
    int64_t repeat = 1;
    bool checks_values = true;
    bool hashes = false;  // if runs are repeated
  };
  // Creates a runner, and checks `repeat` runs with each of the contents.
  absl::Status Pass(absl::Span<const Contents* const> contents, ReductionOrder order,
                    const PassOptions& options) {
    measured_ = false;
    group_uses_ = 0;
    uses_root_ = false;
    MESHIFT_ASSIGN_OR_RETURN(const DeviceMesh mesh,
                             UnionMesh(plan_.from().mesh(), plan_.to().mesh()));
    num_ranks_ = mesh.NumRanks();
    MESHIFT_ASSIGN_OR_RETURN(const std::unique_ptr<RedistributionRunner> runner,
                             context_.NewRunner(plan_, order));
    for (const Contents* each : contents) {
      MESHIFT_RETURN_IF_ERROR(context_.AgreeAfter([&] { return each->Fill(sources_); }));
      for (int64_t i = 0; i < options.repeat; ++i) {
        targets_.Poison();
        MESHIFT_ASSIGN_OR_RETURN(const RunStats run, runner->Run(sources_, &targets_));
        Measure(run);
        MESHIFT_RETURN_IF_ERROR(context_.Gather(plan_.to(), &targets_));
        MESHIFT_RETURN_IF_ERROR(Check(*each, options.checks_values));
        if (options.hashes && options.repeat > 1) Hash(i);
      }
    }
    return CountGroups(*runner);
  }

  const RunReport& report() const { return report_; }

 private:
  void Measure(const RunStats& run) {
    report_.miscounted = std::max(report_.miscounted, run.miscounted);
    report_.peak_bytes = std::max(report_.peak_bytes, run.peak_bytes);
    for (size_t i = 0; i < run.steps.size() && i < report_.steps.size(); ++i) {
      StepRun& step = report_.steps[i];
      step.bytes_sent = std::max(step.bytes_sent, run.steps[i].bytes_sent);
      step.time_ns = measured_ ? std::min(step.time_ns, run.steps[i].ns) : run.steps[i].ns;
      if (run.steps[i].calls == 0) continue;
      ++group_uses_;
      uses_root_ = uses_root_ || plan_.steps()[i].group_size == num_ranks_;
    }
    measured_ = true;
  }

  absl::Status Check(const Contents& contents, bool checks_values) {
    MESHIFT_ASSIGN_OR_RETURN(CheckResult verdict,
                             context_.Share([&] { return contents.Check(tensors_); }));
    if (!checks_values) {
      verdict.wrong = 0;
      verdict.first_wrong.clear();
    }
    if (report_.wrong == 0) report_.first_wrong = verdict.first_wrong;
    if (report_.replicas_differ == 0) report_.first_difference = verdict.first_difference;
    report_.wrong = std::max(report_.wrong, verdict.wrong);
    report_.replicas_differ = std::max(report_.replicas_differ, verdict.replicas_differ);
    return absl::OkStatus();
  }

  // Only the leader has all ranks' tensors.
  void Hash(int64_t run) {
    if (!context_.is_leader()) return;
    const DeviceMesh& mesh = plan_.to().mesh();
    for (int64_t p = 0; p < mesh.NumRanks(); ++p) {
      const absl::Span<const std::byte> local = targets_.at(p);
      const Fingerprint hash = Fingerprint::Of(
          std::string_view(reinterpret_cast<const char*>(local.data()), local.size()));
      if (run == 0) {
        report_.hashes.push_back(hash);
      } else if (!(hash == report_.hashes[p])) {
        if (report_.repeats_differ++ == 0) {
          report_.first_repeat = fmt::format("rank {} in run {}", mesh.RankAt(p), run + 1);
        }
      }
    }
  }

  // Counts for the rank with the most groups. The root, which serves a group of all ranks, exists
  // before any plan: its first use counts as its creation.
  absl::Status CountGroups(RedistributionRunner& runner) {
    MESHIFT_ASSIGN_OR_RETURN(const int64_t created, runner.GroupsCreated());
    report_.groups_created = created + (uses_root_ ? 1 : 0);
    report_.groups_reused = group_uses_ - report_.groups_created;
    return absl::OkStatus();
  }

  const Plan& plan_;
  ExecutionContext& context_;
  LocalTensors& sources_;
  LocalTensors& targets_;
  const RunTensors& tensors_;
  RunReport report_;
  bool measured_ = false;
  // For the current pass:
  int64_t group_uses_ = 0;  // steps that called a communicator, over the runs
  bool uses_root_ = false;  // one of them has a group of all ranks
  int64_t num_ranks_ = 0;
};

}  // namespace

absl::StatusOr<RunTensors> MakeTensors(const Plan& plan, const ExecutionContext& context) {
  MESHIFT_RETURN_IF_ERROR(context.CheckFits(plan));
  return RunTensors{context.MakeTensors(plan.from()), context.MakeTensors(plan.to())};
}

absl::StatusOr<RunReport> Execute(const Plan& plan, const ExecuteOptions& options,
                                  ExecutionContext* context, RunTensors* tensors) {
  const absl::StatusOr<Oracle> created =
      Oracle::Create(plan.from(), plan.to(), plan.options().reduce_dtype);
  MESHIFT_RETURN_IF_ERROR(context->Agree(created.status()));
  const Oracle& oracle = *created;
  PlanChecker checker(plan, context, tensors);
  const GeneratedContents exact(&oracle, Values::kExact, options.seed);
  const GeneratedContents other(&oracle, Values::kExact, options.seed + 1);
  const GeneratedContents special(&oracle, Values::kSpecial, options.seed + 2);
  const GeneratedContents rounding(&oracle, Values::kRounding, options.seed + 3);
  const ReductionOrder exact_order = options.reduction_order == ReductionOrder::kAdversarial
                                         ? ReductionOrder::kRanks
                                         : options.reduction_order;
  MESHIFT_RETURN_IF_ERROR(checker.Pass({&exact, &other, &special}, exact_order, {}));
  MESHIFT_RETURN_IF_ERROR(checker.Rounding(rounding, options));
  return checker.report();
}

absl::Status CheckSources(const Plan& plan, const RunTensors& tensors) {
  MESHIFT_ASSIGN_OR_RETURN(const CheckResult check,
                           testkit::CheckReplicas(plan.from(), tensors.sources.Views()));
  if (check.ok()) return absl::OkStatus();
  return InvalidArgument("{} not equal on the source's replicas: {}",
                         check.replicas_differ == 1
                             ? "1 element is"
                             : fmt::format("{} elements are", check.replicas_differ),
                         check.first_difference);
}

absl::StatusOr<RunReport> ExecuteLoaded(const Plan& plan, const ExecuteOptions& options,
                                        ExecutionContext* context, RunTensors* tensors) {
  PlanChecker checker(plan, context, tensors);
  const LoadedContents loaded(plan);
  MESHIFT_RETURN_IF_ERROR(checker.Rounding(loaded, options));
  return checker.report();
}

int64_t DomainSize(const Plan& plan) {
  const int64_t size = plan.options().topology.level(0).domain_size;
  return size > 0 ? size : kDefaultDomainSize;
}

}  // namespace meshift::cli
