#include "comm/local_run.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "base/status.h"
#include "meshift/planner_cache.h"
#include "meshift/redistributor.h"
#include "meshift/status.h"

namespace meshift {

absl::StatusOr<std::unique_ptr<LocalRunner>> LocalRunner::Create(
    LocalWorld* world, const DeviceMesh& mesh, const RedistributorOptions& options) {
  auto runner = std::unique_ptr<LocalRunner>(new LocalRunner(mesh));
  const int64_t world_size = world->engine(0)->world_size();
  RedistributorOptions of_rank = options;
  if (!of_rank.plans) {
    of_rank.plans =
        std::make_shared<PlannerCache>(PlanningOptions(mesh, *world->engine(0), options),
                                       PlannerCacheLimits{options.expert.max_cached_bytes});
  }
  for (int64_t p = 0; p < mesh.NumRanks(); ++p) {
    const int64_t rank = mesh.RankAt(p);
    if (rank >= world_size) {
      return InvalidArgument("rank {} of mesh {} is not in a world of {} ranks", rank,
                             mesh.ToString(), world_size);
    }
    if (options.agreement != Agreement::kOff && world->engine(rank)->control() != nullptr) {
      return FailedPrecondition(
          "rank {} has a control channel, so calls would wait for their peers, but one thread "
          "makes "
          "all ranks' calls; the option agreement must be kOff",
          rank);
    }
    MESHIFT_ASSIGN_OR_RETURN(Redistributor redistributor,
                             Redistributor::Create(mesh, world->engine(rank), of_rank));
    runner->redistributors_.push_back(std::move(redistributor));
    of_rank.expert.verify_plans = false;  // the first rank verifies them
  }
  return runner;
}

absl::StatusOr<LocalRun> LocalRunner::Run(const Plan& plan, absl::Span<void* const> sources,
                                          absl::Span<void* const> targets, bool consume_source) {
  return RunAll(
      plan.from(), plan.to(), sources, targets,
      [&](Redistributor& redistributor, const TensorView& source, const TensorView& target) {
        return redistributor.Run(plan, source, target, {.consume_source = consume_source});
      });
}

absl::StatusOr<LocalRun> LocalRunner::Run(const Sharding& from, const Sharding& to,
                                          absl::Span<void* const> sources,
                                          absl::Span<void* const> targets) {
  return RunAll(
      from, to, sources, targets,
      [&](Redistributor& redistributor, const TensorView& source, const TensorView& target) {
        return redistributor({.from = from, .to = to, .source = source, .target = target});
      });
}

absl::StatusOr<LocalRun> LocalRunner::RunAll(const Sharding& from, const Sharding& to,
                                             absl::Span<void* const> sources,
                                             absl::Span<void* const> targets, CallFn call) {
  const auto ranks = static_cast<size_t>(mesh_.NumRanks());
  const auto views_of = [&](const char* name, const Sharding& sharding,
                            absl::Span<void* const> memory, std::vector<TensorView>* views) {
    const DeviceMesh& mesh = sharding.mesh();
    if (std::ssize(memory) != mesh.NumRanks()) {
      return InvalidArgument("the number of {}s is {}; expected {}, one for each rank", name,
                             memory.size(), mesh.NumRanks());
    }
    for (int64_t p = 0; p < mesh.NumRanks(); ++p) {
      const std::optional<int64_t> at = mesh_.PositionOf(mesh.RankAt(p));
      if (!at) {
        return InvalidArgument("rank {} of {} is not in mesh {}", mesh.RankAt(p),
                               sharding.ToString(), mesh_.ToString());
      }
      (*views)[*at] = TensorView::Contiguous(memory[p], sharding.dtype(),
                                             sharding.BoxAt(mesh.CoordinateAt(p)).size);
    }
    return absl::OkStatus();
  };
  // By position in the runner's mesh. A rank that is not in the sharding's mesh has no memory.
  std::vector<TensorView> in(ranks);
  std::vector<TensorView> out(ranks);
  MESHIFT_RETURN_IF_ERROR(views_of("source", from, sources, &in));
  MESHIFT_RETURN_IF_ERROR(views_of("target", to, targets, &out));
  std::vector<RunHandle> handles;
  handles.reserve(ranks);
  absl::Status status;
  for (size_t p = 0; p < ranks && status.ok(); ++p) {
    absl::StatusOr<RunHandle> handle = call(redistributors_[p], in[p], out[p]);
    if (handle.ok()) {
      handles.push_back(*std::move(handle));
    } else {
      status = handle.status();
    }
  }
  // Ranks that have called would wait for those that have not, until the time-out.
  if (!status.ok() && !handles.empty()) {
    for (Redistributor& redistributor : redistributors_) redistributor.Abort();
  }
  for (const RunHandle& handle : handles) {
    const absl::Status waited = handle.Wait();
    if (status.ok()) status = waited;
  }
  MESHIFT_RETURN_IF_ERROR(status);

  LocalRun run;
  run.steps.resize(redistributors_[0].last_run().bytes_sent.size());
  for (const Redistributor& redistributor : redistributors_) {
    const RunRecord& record = redistributor.last_run();
    for (size_t i = 0; i < run.steps.size(); ++i) {
      LocalRun::StepRun& step = run.steps[i];
      step.bytes_sent = std::max(step.bytes_sent, record.bytes_sent[i]);
      step.bytes_total += record.bytes_sent[i];
      step.rank_bytes_sent.push_back(record.bytes_sent[i]);
      step.calls = std::max(step.calls, record.calls[i]);
      step.ns = std::max(step.ns, record.StepNs(static_cast<int>(i)));
    }
  }
  return run;
}

}  // namespace meshift
