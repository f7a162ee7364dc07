// Implements MakeLocalContext of cli/execution_context.h: the ExecutionContext of the local engine,
// whose ranks are all in this process. CheckFits returns RESOURCE_EXHAUSTED if a plan has a rank of
// 2^20 or more, or needs more memory than Linux's /proc/meminfo says is available; Run does not
// check this. Not thread-safe.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/checked_math.h"
#include "base/status.h"
#include "cli/execute.h"
#include "cli/execution_context.h"
#include "cli/run_buffers.h"
#include "cli/text.h"
#include "comm/local_run.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"
#include "meshift/local_world.h"
#include "meshift/plan.h"
#include "meshift/redistributor.h"
#include "meshift/sharding.h"
#include "meshift/status.h"
#include "meshift/topology.h"
#include "meshift/union_mesh.h"
#include "planner/plan/crossing.h"
#include "planner/plan/memory_limit.h"
#include "planner/plan/rank_bytes.h"

namespace meshift::cli {
namespace {

// The most ranks. The world has one for every number up to the mesh's largest. Each costs memory,
// used or not.
constexpr int64_t kMaxWorld = int64_t{1} << 20;
constexpr int64_t kBytesPerRank = 8192;  // roughly, of the engine and a redistributor

// The bytes that may still be allocated; INT64_MAX if the system does not say.
int64_t AvailableBytes() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  int64_t kib = 0;
  while (file >> key) {
    if (key == "MemAvailable:" && file >> kib) return kib * 1024;
  }
  return INT64_MAX;
}

// The bytes that each rank sends in a step, by the plan; by position in `mesh`.
absl::StatusOr<std::vector<int64_t>> PlannedBytes(const Plan& plan, int i, const DeviceMesh& mesh) {
  const Step& step = plan.steps()[i];
  const Sharding& before = i == 0 ? plan.from() : plan.steps()[i - 1].after;
  std::vector<int64_t> planned;
  if (before.mesh() == step.after.mesh()) {
    for (int64_t p = 0; p < mesh.NumRanks(); ++p) {
      planned.push_back(BytesSent(plan, i, mesh.RankAt(p)));
    }
    return planned;
  }
  // A crossing lists the messages of all ranks together.
  const Crossing crossing = Crossing::Of(before, step.after, plan.options().topology);
  for (int64_t p = 0; p < mesh.NumRanks(); ++p) {
    planned.push_back(Bytes(before.dtype(), crossing.SentBy(mesh.RankAt(p))));
  }
  return planned;
}

class LocalRedistributionRunner final : public RedistributionRunner {
 public:
  LocalRedistributionRunner(const Plan& plan, DeviceMesh mesh, std::unique_ptr<LocalWorld> world,
                            std::unique_ptr<LocalRunner> runner)
      : plan_(plan), mesh_(std::move(mesh)), world_(std::move(world)), runner_(std::move(runner)) {}

  absl::StatusOr<RunStats> Run(const LocalTensors& sources, LocalTensors* targets) override {
    RunBuffers run_buffers(plan_, sources, targets);
    run_buffers.Fill();
    MESHIFT_ASSIGN_OR_RETURN(
        const LocalRun run,
        runner_->Run(plan_, run_buffers.sources(), run_buffers.targets(), run_buffers.consumes()));
    run_buffers.Take();
    for (size_t i = planned_.size(); i < plan_.steps().size(); ++i) {
      MESHIFT_ASSIGN_OR_RETURN(std::vector<int64_t> planned,
                               PlannedBytes(plan_, static_cast<int>(i), mesh_));
      planned_.push_back(std::move(planned));
    }
    RunStats result;
    for (size_t i = 0; i < run.steps.size(); ++i) {
      const LocalRun::StepRun& step = run.steps[i];
      result.steps.push_back({.bytes_sent = step.bytes_sent, .calls = step.calls, .ns = step.ns});
      for (int64_t p = 0; i < planned_.size() && p < mesh_.NumRanks(); ++p) {
        if (step.rank_bytes_sent[p] != planned_[i][p]) ++result.miscounted;
      }
    }
    const auto bytes_of = [](const LocalTensors& tensors, std::optional<int64_t> position) {
      return position ? static_cast<int64_t>(tensors.SizeAt(*position)) : 0;
    };
    for (int64_t p = 0; p < mesh_.NumRanks(); ++p) {
      const int64_t rank = mesh_.RankAt(p);
      const int64_t buffer_bytes = RunBufferBytes(
          plan_.options().buffers, bytes_of(sources, plan_.from().mesh().PositionOf(rank)),
          bytes_of(*targets, plan_.to().mesh().PositionOf(rank)));
      // The workspace is the only memory that a run takes from the engine.
      result.peak_bytes =
          std::max(result.peak_bytes, buffer_bytes + world_->memory(rank).peak_bytes);
    }
    return result;
  }
  absl::StatusOr<int64_t> GroupsCreated() override {
    int64_t created = 0;
    for (int64_t p = 0; p < mesh_.NumRanks(); ++p) {
      created = std::max(created, runner_->at(p).stats().groups.created);
    }
    return created;
  }

 private:
  const Plan& plan_;
  const DeviceMesh mesh_;  // the runner's
  const std::unique_ptr<LocalWorld> world_;
  const std::unique_ptr<LocalRunner> runner_;
  std::vector<std::vector<int64_t>> planned_;  // by step, then position in mesh_
};

class LocalContext final : public ExecutionContext {
 public:
  explicit LocalContext(std::chrono::nanoseconds timeout) : timeout_(timeout) {}

  const std::string& engine() const override { return name_; }
  int64_t num_ranks() const override { return 0; }
  bool is_leader() const override { return true; }

  absl::Status CheckFits(const Plan& plan) const override {
    // Check this first: for two meshes UnionMesh lists all ranks.
    const int64_t world = std::max(plan.from().mesh().MaxRank(), plan.to().mesh().MaxRank()) + 1;
    if (world > kMaxWorld) {
      return absl::ResourceExhaustedError(
          fmt::format("rank {} needs a world of {} ranks; the local engine takes at most {}",
                      world - 1, world, kMaxWorld));
    }
    MESHIFT_ASSIGN_OR_RETURN(const DeviceMesh mesh,
                             UnionMesh(plan.from().mesh(), plan.to().mesh()));
    int64_t bytes = 0;
    const int64_t kept =
        TensorBytesBeside(plan.options().buffers, TensorBytes(plan.from()), TensorBytes(plan.to()));
    const int64_t per_rank =
        SaturatingAdd(SaturatingAdd(plan.total().peak_bytes, kept), kBytesPerRank);
    if (!CheckedMul(mesh.NumRanks(), per_rank, &bytes)) bytes = INT64_MAX;
    bytes = SaturatingAdd(bytes, (world - mesh.NumRanks()) * kBytesPerRank);
    if (const int64_t available = AvailableBytes(); bytes > available) {
      return absl::ResourceExhaustedError(
          fmt::format("{} need {} on the local engine; {} are available",
                      CountText(mesh.NumRanks(), "rank"), BytesText(bytes), BytesText(available)));
    }
    return absl::OkStatus();
  }

  LocalTensors MakeTensors(const Sharding& sharding) const override {
    return LocalTensors(sharding);
  }

  absl::StatusOr<std::unique_ptr<RedistributionRunner>> NewRunner(const Plan& plan,
                                                                  ReductionOrder order) override {
    MESHIFT_ASSIGN_OR_RETURN(DeviceMesh mesh, UnionMesh(plan.from().mesh(), plan.to().mesh()));
    MESHIFT_ASSIGN_OR_RETURN(std::unique_ptr<LocalWorld> world,
                             LocalWorld::Create({.num_ranks = mesh.MaxRank() + 1,
                                                 .reduction_order = order,
                                                 .domain_size = DomainSize(plan),
                                                 .timeout = timeout_}));
    // No record of calls: one thread makes the calls of all ranks, so none is late.
    for (int64_t p = 0; p < mesh.NumRanks(); ++p) {
      MESHIFT_RETURN_IF_ERROR(world->engine(mesh.RankAt(p))->SetRecord({.calls = 0}));
    }
    MESHIFT_ASSIGN_OR_RETURN(
        std::unique_ptr<LocalRunner> runner,
        LocalRunner::Create(world.get(), mesh, {.expert = {.time_steps = true}}));
    return std::make_unique<LocalRedistributionRunner>(plan, std::move(mesh), std::move(world),
                                                       std::move(runner));
  }

  absl::Status Gather(const Sharding&, LocalTensors*) override { return absl::OkStatus(); }
  absl::Status Agree(const absl::Status& status) override { return status; }
  absl::Status AgreeAfter(const std::function<absl::Status()>& work) override { return work(); }
  absl::Status AgreeOn(const std::function<absl::StatusOr<std::string>()>& work) override {
    return work().status();
  }
  bool AllFailed() const override { return true; }
  absl::StatusOr<testkit::CheckResult> Share(
      const std::function<absl::StatusOr<testkit::CheckResult>()>& check) override {
    return check();
  }

 private:
  const std::string name_ = "local";
  const std::chrono::nanoseconds timeout_;
};

}  // namespace

std::unique_ptr<ExecutionContext> MakeLocalContext(std::chrono::nanoseconds timeout) {
  return std::make_unique<LocalContext>(timeout);
}

}  // namespace meshift::cli
