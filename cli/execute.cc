#include "cli/execute.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/checked_math.h"
#include "base/status.h"
#include "base/status_macros.h"
#include "cli/text.h"
#include "comm/local/local_world.h"
#include "comm/local_run.h"
#include "comm/redistributor.h"
#include "mesh/device_mesh.h"
#include "mesh/topology.h"
#include "planner/plan.h"
#include "testing/definition.h"
#include "testing/values.h"

namespace meshift::cli {
namespace {

using testkit::Fill;
using testkit::Oracle;
using testkit::Values;

constexpr int64_t kDefaultDomainSize = 8;
// A world has all ranks up to the mesh's largest, and each costs memory, used or not.
constexpr int64_t kMaxWorld = int64_t{1} << 20;
constexpr int64_t kBytesPerRank = 4096;  // of the engine, roughly
// No right value, in no dtype: what a run does not write is seen.
constexpr int kPoison = 0xa5;

// The bytes that may still be allocated; a number that never stands in the way where the system
// does not say.
int64_t AvailableBytes() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  int64_t kib = 0;
  while (file >> key) {
    if (key == "MemAvailable:" && file >> kib) return kib * 1024;
  }
  return INT64_MAX;
}

// The local tensors of all ranks, by position.
class Tensors {
 public:
  void Add(int64_t bytes) {
    sizes_.push_back(bytes);
    memory_.push_back(bytes == 0 ? nullptr : std::make_unique_for_overwrite<std::byte[]>(bytes));
    data_.push_back(memory_.back().get());
  }
  void Poison() {
    for (size_t i = 0; i < sizes_.size(); ++i) {
      if (sizes_[i] > 0) std::memset(data_[i], kPoison, sizes_[i]);
    }
  }
  absl::Span<void* const> data() const { return data_; }
  absl::Span<std::byte> at(int64_t position) {
    return absl::MakeSpan(memory_[position].get(), sizes_[position]);
  }
  std::vector<absl::Span<const std::byte>> Views() const {
    std::vector<absl::Span<const std::byte>> views;
    for (size_t i = 0; i < sizes_.size(); ++i) views.emplace_back(memory_[i].get(), sizes_[i]);
    return views;
  }

 private:
  std::vector<int64_t> sizes_;
  std::vector<std::unique_ptr<std::byte[]>> memory_;
  std::vector<void*> data_;
};

int64_t WorldSize(const DeviceMesh& mesh) {
  if (mesh.IsRowMajor()) return mesh.NumRanks();
  const std::vector<int64_t> ranks = mesh.Ranks();
  return *std::max_element(ranks.begin(), ranks.end()) + 1;
}

absl::Status CheckMemory(const Plan& plan) {
  const DeviceMesh& mesh = plan.from().mesh();
  const int64_t world = WorldSize(mesh);
  if (world > kMaxWorld) {
    return absl::ResourceExhaustedError(
        fmt::format("rank {} makes a world of {} ranks; the local engine takes at most {}",
                    world - 1, world, kMaxWorld));
  }
  int64_t bytes = 0;
  const int64_t per_rank = SaturatingAdd(plan.total().peak_bytes, kBytesPerRank);
  if (!CheckedMul(mesh.NumRanks(), per_rank, &bytes)) bytes = INT64_MAX;
  bytes = SaturatingAdd(bytes, (world - mesh.NumRanks()) * kBytesPerRank);
  if (const int64_t available = AvailableBytes(); bytes > available) {
    return absl::ResourceExhaustedError(
        fmt::format("{} need {} on the local engine; {} are available",
                    CountText(mesh.NumRanks(), "rank"), BytesText(bytes), BytesText(available)));
  }
  return absl::OkStatus();
}

// Runs one plan again and again, and gathers the worst.
class Judge {
 public:
  Judge(const Plan& plan, Oracle oracle) : plan_(plan), oracle_(std::move(oracle)) {
    for (int64_t p = 0; p < plan.from().mesh().NumRanks(); ++p) {
      sources_.Add(oracle_.SourceBytes(p));
      targets_.Add(oracle_.TargetBytes(p));
    }
    report_.steps.resize(plan.steps().size());
  }

  // Makes an engine and fills the sources; judges `repeat` runs.
  absl::Status Pass(const std::vector<Fill>& fills, ReductionOrder order, int64_t repeat) {
    const DeviceMesh& mesh = plan_.from().mesh();
    measured_ = false;
    group_uses_ = 0;
    MESHIFT_ASSIGN_OR_RETURN(const std::unique_ptr<LocalWorld> world,
                             LocalWorld::Create({.num_ranks = WorldSize(mesh),
                                                 .reduction_order = order,
                                                 .domain_size = DomainSize(plan_)}));
    MESHIFT_ASSIGN_OR_RETURN(const std::unique_ptr<LocalRunner> runner,
                             LocalRunner::Create(world.get(), mesh, {.time_steps = true}));
    for (const Fill& fill : fills) {
      for (int64_t p = 0; p < mesh.NumRanks(); ++p) {
        MESHIFT_RETURN_IF_ERROR(oracle_.FillSource(fill, p, sources_.at(p)));
      }
      for (int64_t i = 0; i < repeat; ++i) {
        targets_.Poison();
        MESHIFT_ASSIGN_OR_RETURN(const LocalRun run,
                                 runner->Run(plan_, sources_.data(), targets_.data()));
        Measure(run);
        MESHIFT_RETURN_IF_ERROR(Check(fill));
      }
    }
    CountGroups(*runner);
    return absl::OkStatus();
  }

  const RunReport& report() const { return report_; }

 private:
  void Measure(const LocalRun& run) {
    for (size_t i = 0; i < run.steps.size() && i < report_.steps.size(); ++i) {
      StepRun& step = report_.steps[i];
      step.bytes_sent = std::max(step.bytes_sent, run.steps[i].bytes_sent);
      step.time_ns = measured_ ? std::min(step.time_ns, run.steps[i].ns) : run.steps[i].ns;
      if (run.steps[i].calls > 0) ++group_uses_;
    }
    measured_ = true;
  }

  absl::Status Check(const Fill& fill) {
    MESHIFT_ASSIGN_OR_RETURN(const testkit::CheckResult verdict,
                             oracle_.Check(fill, targets_.Views()));
    if (report_.wrong == 0) report_.first_wrong = verdict.first_wrong;
    if (report_.replicas_differ == 0) report_.first_difference = verdict.first_difference;
    report_.wrong = std::max(report_.wrong, verdict.wrong);
    report_.replicas_differ = std::max(report_.replicas_differ, verdict.replicas_differ);
    return absl::OkStatus();
  }

  // Of the rank that is in the most groups. The root, which a group of all ranks uses, is there
  // before any plan: its first use counts as its creation.
  void CountGroups(LocalRunner& runner) {
    const DeviceMesh& mesh = plan_.from().mesh();
    const bool uses_root =
        std::any_of(plan_.steps().begin(), plan_.steps().end(),
                    [&](const Step& step) { return step.group_size == mesh.NumRanks(); });
    report_.groups_created = 0;
    for (int64_t p = 0; p < mesh.NumRanks(); ++p) {
      const GroupCacheStats stats = runner.at(p).stats().groups;
      const int64_t created = stats.created + (uses_root ? 1 : 0);
      report_.groups_created = std::max(report_.groups_created, created);
    }
    report_.groups_reused = group_uses_ - report_.groups_created;
  }

  const Plan& plan_;
  const Oracle oracle_;
  Tensors sources_;
  Tensors targets_;
  RunReport report_;
  bool measured_ = false;
  int64_t group_uses_ = 0;  // steps that called a communicator, over the runs of a pass
};

}  // namespace

absl::StatusOr<RunReport> Execute(const Plan& plan, const ExecuteOptions& options) {
  if (!(plan.from().mesh() == plan.to().mesh())) {
    return Unimplemented("a move from mesh {} to mesh {} is not in this version",
                         plan.from().mesh().ToString(), plan.to().mesh().ToString());
  }
  MESHIFT_RETURN_IF_ERROR(CheckMemory(plan));
  MESHIFT_ASSIGN_OR_RETURN(Oracle oracle, Oracle::Create(plan.from(), plan.to()));
  Judge judge(plan, std::move(oracle));
  const std::vector<Fill> exact = {{Values::kExact, options.seed},
                                   {Values::kExact, options.seed + 1},
                                   {Values::kSpecial, options.seed + 2}};
  const ReductionOrder exact_order = options.reduction_order == ReductionOrder::kAdversarial
                                         ? ReductionOrder::kRanks
                                         : options.reduction_order;
  MESHIFT_RETURN_IF_ERROR(judge.Pass(exact, exact_order, /*repeat=*/1));
  MESHIFT_RETURN_IF_ERROR(
      judge.Pass({{Values::kRounding, options.seed + 3}}, options.reduction_order, options.repeat));
  return judge.report();
}

int64_t DomainSize(const Plan& plan) {
  const absl::StatusOr<Topology> topology = Topology::Parse(plan.inputs().topology);
  const int64_t size = topology.ok() ? topology->level(0).domain_size : 0;
  return size > 0 ? size : kDefaultDomainSize;
}

}  // namespace meshift::cli
