#include "cli/rank_context.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "cli/engines.h"
#include "cli/execution_context.h"
#include "cli/gather.h"
#include "cli/local_tensors.h"
#include "cli/run_buffers.h"
#include "cli/text.h"
#include "comm/control/rank_exchange.h"
#include "meshift/bootstrap.h"
#include "meshift/communicator.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"
#include "meshift/plan.h"
#include "meshift/redistributor.h"
#include "meshift/sharding.h"
#include "meshift/status.h"
#include "meshift/tensor_view.h"
#include "meshift/union_mesh.h"
#include "placement/local_box.h"
#include "planner/plan/rank_bytes.h"

namespace meshift::cli {
namespace {

// Numbers as bytes for an exchange; all ranks run on the same kind of machine.
std::string Pack(const std::vector<int64_t>& numbers) {
  return std::string(reinterpret_cast<const char*>(numbers.data()),
                     numbers.size() * sizeof(int64_t));
}

std::vector<int64_t> Unpack(std::string_view bytes) {
  std::vector<int64_t> numbers(bytes.size() / sizeof(int64_t));
  if (!numbers.empty()) {
    std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(int64_t));
  }
  return numbers;
}

// Runs one plan on this rank, and gathers the counts and times of all ranks.
class RankRedistributionRunner {
 public:
  RankRedistributionRunner(const Plan& plan, RankJob* job, RankExchange* meeting,
                           Redistributor redistributor)
      : plan_(plan), job_(*job), meeting_(*meeting), redistributor_(std::move(redistributor)) {}

  // Allocates the memory of all runs; does not wait for other ranks.
  absl::Status Prepare() {
    if (!takes_part_) return absl::OkStatus();
    const auto bytes_of = [&](const Sharding& sharding) {
      return Bytes(sharding.dtype(), NumElements(LocalBoxOf(sharding, job_.engine->rank()).size));
    };
    const int64_t in_bytes = bytes_of(plan_.from());
    const int64_t out_bytes = bytes_of(plan_.to());
    const bool is_one = plan_.options().buffers == Buffers::kOne;
    MESHIFT_ASSIGN_OR_RETURN(
        in_, job_.engine->Allocate(is_one ? std::max(in_bytes, out_bytes) : in_bytes));
    if (!is_one) {
      MESHIFT_ASSIGN_OR_RETURN(out_, job_.engine->Allocate(out_bytes));
    }
    MESHIFT_ASSIGN_OR_RETURN(stream_, job_.engine->CreateStream());
    MESHIFT_ASSIGN_OR_RETURN(const int64_t workspace,
                             redistributor_.WorkspaceBytes(plan_, InView(), OutView(), consumes()));
    peak_bytes_ = workspace + RunBufferBytes(plan_.options().buffers, in_bytes, out_bytes);
    return absl::OkStatus();
  }

  // REQUIRES: Prepare() is OK on all ranks.
  absl::StatusOr<RunStats> Run(const LocalTensors& sources, LocalTensors* targets) {
    // No rank starts the plan's calls before all ranks can; otherwise some would wait for one that
    // never calls.
    MESHIFT_RETURN_IF_ERROR(meeting_.Meet(Fill(sources, *targets), "").status());
    const absl::Status status = RunHere(targets);
    const size_t steps = plan_.steps().size();
    // The peak memory, then for each step: bytes, planned bytes, calls, time.
    std::vector<int64_t> mine;
    if (status.ok() && takes_part_) {
      mine.push_back(peak_bytes_);
      const RunRecord& record = redistributor_.last_run();
      for (int i = 0; i < static_cast<int>(steps); ++i) {
        for (const int64_t number : {record.bytes_sent[i], BytesSent(plan_, i, job_.engine->rank()),
                                     record.calls[i], record.StepNs(i)}) {
          mine.push_back(number);
        }
      }
    }
    MESHIFT_ASSIGN_OR_RETURN(const std::vector<std::string> all, meeting_.Meet(status, Pack(mine)));
    RunStats run;
    run.steps.resize(steps);
    for (const std::string& text : all) {
      const std::vector<int64_t> numbers = Unpack(text);
      if (numbers.empty()) continue;
      run.peak_bytes = std::max(run.peak_bytes, numbers[0]);
      for (size_t i = 0; i < steps; ++i) {
        const absl::Span<const int64_t> of_step = absl::MakeSpan(numbers).subspan(1 + 4 * i, 4);
        RunStats::StepRun& step = run.steps[i];
        step.bytes_sent = std::max(step.bytes_sent, of_step[0]);
        step.calls = std::max(step.calls, of_step[2]);
        step.ns = std::max(step.ns, of_step[3]);
        if (of_step[0] != of_step[1]) ++run.miscounted;
      }
    }
    return run;
  }

  absl::StatusOr<int64_t> GroupsCreated() {
    MESHIFT_ASSIGN_OR_RETURN(
        const std::vector<std::string> all,
        meeting_.Meet(absl::OkStatus(), Pack({redistributor_.stats().groups.created})));
    int64_t created = 0;
    for (const std::string& text : all) created = std::max(created, Unpack(text).at(0));
    return created;
  }

 private:
  // Copies the source, and the target's bytes (LocalTensors::Poison), into the engine's memory.
  absl::Status Fill(const LocalTensors& sources, const LocalTensors& targets) {
    if (!takes_part_) return absl::OkStatus();
    Engine& engine = *job_.engine;
    const absl::Span<const std::byte> source = Own(plan_.from(), sources);
    const absl::Span<const std::byte> target = Own(plan_.to(), targets);
    // The target first: the source overwrites it if both share a buffer.
    MESHIFT_RETURN_IF_ERROR(
        engine.CopyIn(target.data(), out().data(), static_cast<int64_t>(target.size()), *stream_));
    MESHIFT_RETURN_IF_ERROR(
        engine.CopyIn(source.data(), in_->data(), static_cast<int64_t>(source.size()), *stream_));
    return engine.Synchronize(*stream_);
  }

  // REQUIRES: Fill() is OK on all ranks.
  absl::Status RunHere(LocalTensors* targets) {
    if (!takes_part_) return absl::OkStatus();
    Engine& engine = *job_.engine;
    MESHIFT_ASSIGN_OR_RETURN(
        const RunHandle run,
        redistributor_.Run(plan_, InView(), OutView(), {.consume_source = consumes()}));
    MESHIFT_RETURN_IF_ERROR(run.Wait());
    const absl::Span<std::byte> target = Own(plan_.to(), *targets);
    MESHIFT_RETURN_IF_ERROR(
        engine.CopyOut(out().data(), target.data(), static_cast<int64_t>(target.size()), *stream_));
    return engine.Synchronize(*stream_);
  }

  bool consumes() const { return plan_.options().buffers == Buffers::kConsumed; }
  const Buffer& out() const { return out_ == nullptr ? *in_ : *out_; }
  TensorView View(const Sharding& sharding, const Buffer& buffer) const {
    return TensorView::Contiguous(buffer.data(), sharding.dtype(),
                                  LocalBoxOf(sharding, job_.engine->rank()).size);
  }
  TensorView InView() const { return View(plan_.from(), *in_); }
  TensorView OutView() const { return View(plan_.to(), out()); }

  // This rank's tensor; empty if it is not in the tensor's mesh.
  absl::Span<std::byte> Own(const Sharding& sharding, const LocalTensors& tensors) const {
    const std::optional<int64_t> position = sharding.mesh().PositionOf(job_.engine->rank());
    return position ? tensors.at(*position) : absl::Span<std::byte>();
  }

  const Plan& plan_;
  RankJob& job_;
  RankExchange& meeting_;
  const bool takes_part_ = plan_.from().mesh().PositionOf(job_.engine->rank()).has_value() ||
                           plan_.to().mesh().PositionOf(job_.engine->rank()).has_value();
  std::unique_ptr<Buffer> in_;
  std::unique_ptr<Buffer> out_;  // null if source and target share in_
  int64_t peak_bytes_ = 0;
  std::unique_ptr<Stream> stream_;
  Redistributor redistributor_;
};

class RankContext final : public ExecutionContext {
 public:
  RankContext(RankJob* job, RankExchange* meeting, std::unique_ptr<ControlRoot> root)
      : job_(*job), meeting_(*meeting), root_(std::move(root)) {}

  const std::string& engine() const override { return job_.engine->name(); }
  int64_t num_ranks() const override { return job_.engine->world_size(); }
  bool is_leader() const override { return job_.engine->rank() == 0; }

  absl::Status CheckFits(const Plan& plan) const override {
    for (const DeviceMesh& mesh : plan.meshes()) {
      if (mesh.MaxRank() < num_ranks()) continue;
      return InvalidArgument("mesh {} has rank {}; this job has {}", mesh.ToString(),
                             mesh.MaxRank(), CountText(num_ranks(), "rank"));
    }
    return absl::OkStatus();
  }

  LocalTensors MakeTensors(const Sharding& sharding) const override {
    if (is_leader()) return LocalTensors(sharding);
    return LocalTensors(sharding, [&](int64_t rank) { return rank == job_.engine->rank(); });
  }

  absl::StatusOr<std::unique_ptr<RedistributionRunner>> NewRunner(const Plan& plan,
                                                                  ReductionOrder) override {
    MESHIFT_ASSIGN_OR_RETURN(const DeviceMesh mesh,
                             UnionMesh(plan.from().mesh(), plan.to().mesh()));
    absl::StatusOr<Redistributor> redistributor =
        Redistributor::Create(mesh, job_.engine.get(), {.expert = {.time_steps = true}});
    MESHIFT_RETURN_IF_ERROR(Agree(redistributor.status()));
    runner_ = std::make_unique<RankRedistributionRunner>(plan, &job_, &meeting_,
                                                         *std::move(redistributor));
    MESHIFT_RETURN_IF_ERROR(Agree(runner_->Prepare()));
    return std::make_unique<Handle>(this);
  }

  absl::Status Gather(const Sharding& sharding, LocalTensors* tensors) override {
    absl::StatusOr<TensorGather> gather =
        TensorGather::Prepare(*job_.engine, sharding.mesh(), *tensors);
    MESHIFT_RETURN_IF_ERROR(Agree(gather.status()));
    gather_.emplace(*std::move(gather));
    const absl::Status status = gather_->Run(tensors);
    if (!status.ok()) return Failed(root_->Health().ok() ? status : root_->Health());
    gather_.reset();
    return absl::OkStatus();
  }

  absl::Status Agree(const absl::Status& status) override {
    return Failed(meeting_.Meet(status, "").status());
  }
  absl::Status AgreeAfter(const std::function<absl::Status()>& work) override {
    const auto told = [&]() -> absl::StatusOr<std::string> {
      MESHIFT_RETURN_IF_ERROR(work());
      return "";
    };
    return Failed(meeting_.MeetAfter(told).status());
  }
  absl::Status AgreeOn(const std::function<absl::StatusOr<std::string>()>& work) override {
    return Failed(meeting_.Agree(work));
  }
  bool AllFailed() const override { return meeting_.failed_ranks() == FailedRanks::kAll; }

  absl::StatusOr<testkit::CheckResult> Share(
      const std::function<absl::StatusOr<testkit::CheckResult>()>& check) override {
    const auto told = [&]() -> absl::StatusOr<std::string> {
      if (!is_leader()) return "";
      MESHIFT_ASSIGN_OR_RETURN(const testkit::CheckResult result, check());
      return Pack({result.wrong, result.replicas_differ,
                   static_cast<int64_t>(result.first_wrong.size())}) +
             result.first_wrong + result.first_difference;
    };
    absl::StatusOr<std::vector<std::string>> met = meeting_.MeetAfter(told);
    MESHIFT_RETURN_IF_ERROR(Failed(met.status()));
    const std::vector<std::string>& all = *met;
    constexpr size_t kNumbers = 3 * sizeof(int64_t);
    const std::string_view first = all[0];
    const std::vector<int64_t> numbers = Unpack(first.substr(0, kNumbers));
    testkit::CheckResult shared;
    shared.wrong = numbers.at(0);
    shared.replicas_differ = numbers.at(1);
    shared.first_wrong = all[0].substr(kNumbers, numbers.at(2));
    shared.first_difference = all[0].substr(kNumbers + numbers.at(2));
    return shared;
  }

 private:
  // Lends the runner to the caller. After a failure the runner stays until the other ranks know of
  // it, because its destructor may wait for them (NCCL).
  class Handle final : public RedistributionRunner {
   public:
    explicit Handle(RankContext* context) : context_(*context) {}
    ~Handle() override {
      if (!context_.failed_ && std::uncaught_exceptions() == 0) context_.runner_.reset();
    }
    absl::StatusOr<RunStats> Run(const LocalTensors& sources, LocalTensors* targets) override {
      absl::StatusOr<RunStats> run = context_.runner_->Run(sources, targets);
      context_.Failed(run.status()).IgnoreError();
      return run;
    }
    absl::StatusOr<int64_t> GroupsCreated() override {
      absl::StatusOr<int64_t> created = context_.runner_->GroupsCreated();
      context_.Failed(created.status()).IgnoreError();
      return created;
    }

   private:
    RankContext& context_;
  };

  absl::Status Failed(absl::Status status) {
    failed_ = failed_ || !status.ok();
    return status;
  }

  RankJob& job_;
  RankExchange& meeting_;
  const std::unique_ptr<ControlRoot> root_;
  std::unique_ptr<RankRedistributionRunner> runner_;
  std::optional<TensorGather> gather_;  // while it runs
  bool failed_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ExecutionContext>> MakeRankContext(RankJob* job,
                                                                  RankExchange* meeting) {
  std::vector<int64_t> ranks(job->engine->world_size());
  std::iota(ranks.begin(), ranks.end(), 0);
  // Wakes a rank that waits in a call outside of a redistributor when another rank ends.
  const auto end = [world = job->engine->world()](const absl::Status&) { world->Abort(); };
  MESHIFT_ASSIGN_OR_RETURN(std::unique_ptr<ControlRoot> root,
                           job->bootstrap->control()->Join(ranks, end));
  return std::make_unique<RankContext>(job, meeting, std::move(root));
}

}  // namespace meshift::cli
