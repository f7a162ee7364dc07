// One rank of a job of many processes, on any engine.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "base/status_macros.h"
#include "cli/gather.h"
#include "cli/handed_tensors.h"
#include "cli/io.h"
#include "cli/site.h"
#include "cli/text.h"
#include "comm/engine/engine.h"
#include "comm/redistributor.h"
#include "comm/tensor/tensor_view.h"
#include "mesh/device_mesh.h"
#include "mesh/union_mesh.h"
#include "placement/local_box.h"
#include "planner/plan/buffers.h"
#include "planner/plan/plan.h"
#include "planner/plan/rank_bytes.h"

namespace meshift::cli {
namespace {

// Numbers as the bytes that ranks exchange; all are of one kind of machine.
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

// Passes `mine` around, or `status`: then all ranks return the first error.
absl::StatusOr<std::vector<std::string>> Meet(Bootstrap& bootstrap, const absl::Status& status,
                                              const std::string& mine) {
  const char code = static_cast<char>(status.code());
  MESHIFT_ASSIGN_OR_RETURN(std::vector<std::string> all,
                           bootstrap.Exchange(code + (status.ok() ? mine : Message(status))));
  const bool alike = std::adjacent_find(all.begin(), all.end(), std::not_equal_to<>()) == all.end();
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].empty()) return Internal("rank {} says nothing", rank);
    const auto its = static_cast<absl::StatusCode>(all[rank][0]);
    all[rank].erase(0, 1);
    if (its == absl::StatusCode::kOk) continue;
    const absl::Status error(its, all[rank]);
    // Mostly all say the same of arguments and files; of failures each has its own.
    const bool of_all = alike && ExitCodeOf(error) != kExitCheckFailed;
    return of_all ? error : Annotate(error, fmt::format("rank {}", rank));
  }
  return all;
}

class RankSiteRunner final : public SiteRunner {
 public:
  RankSiteRunner(const Plan& plan, RankJob* job, Redistributor redistributor)
      : plan_(plan), job_(*job), redistributor_(std::move(redistributor)) {}

  absl::StatusOr<SiteRun> Run(const LocalTensors& sources, LocalTensors* targets) override {
    const absl::Status status = RunHere(sources, targets);
    const size_t steps = plan_.steps().size();
    // The memory; by step: bytes, bytes that are planned, calls, time.
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
    MESHIFT_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                             Meet(*job_.bootstrap, status, Pack(mine)));
    SiteRun run;
    run.steps.resize(steps);
    for (const std::string& text : all) {
      const std::vector<int64_t> numbers = Unpack(text);
      if (numbers.empty()) continue;
      run.peak_bytes = std::max(run.peak_bytes, numbers[0]);
      for (size_t i = 0; i < steps; ++i) {
        const absl::Span<const int64_t> of_step = absl::MakeSpan(numbers).subspan(1 + 4 * i, 4);
        SiteRun::StepRun& step = run.steps[i];
        step.bytes_sent = std::max(step.bytes_sent, of_step[0]);
        step.calls = std::max(step.calls, of_step[2]);
        step.ns = std::max(step.ns, of_step[3]);
        if (of_step[0] != of_step[1]) ++run.miscounted;
      }
    }
    return run;
  }

  absl::StatusOr<int64_t> GroupsCreated() override {
    MESHIFT_ASSIGN_OR_RETURN(
        const std::vector<std::string> all,
        Meet(*job_.bootstrap, absl::OkStatus(), Pack({redistributor_.stats().groups.created})));
    int64_t created = 0;
    for (const std::string& text : all) created = std::max(created, Unpack(text).at(0));
    return created;
  }

 private:
  absl::Status RunHere(const LocalTensors& sources, LocalTensors* targets) {
    Engine& engine = *job_.engine;
    if (!takes_part_) return absl::OkStatus();
    const absl::Span<const std::byte> source = Own(plan_.from(), sources);
    const absl::Span<std::byte> target = Own(plan_.to(), *targets);
    const auto in_bytes = static_cast<int64_t>(source.size());
    const auto out_bytes = static_cast<int64_t>(target.size());
    const bool is_one = plan_.buffers() == Buffers::kOne;
    const bool consumes = plan_.buffers() == Buffers::kConsumed;
    const bool is_first = in_ == nullptr;
    if (is_first) {
      MESHIFT_ASSIGN_OR_RETURN(stream_, engine.CreateStream());
      MESHIFT_ASSIGN_OR_RETURN(in_,
                               engine.Allocate(is_one ? std::max(in_bytes, out_bytes) : in_bytes));
      if (!is_one) {
        MESHIFT_ASSIGN_OR_RETURN(out_, engine.Allocate(out_bytes));
      }
    }
    const Buffer& in = *in_;
    const Buffer& out = is_one ? *in_ : *out_;
    // What it is poisoned with; the source comes later, where both are one.
    MESHIFT_RETURN_IF_ERROR(engine.CopyIn(target.data(), out.data(), out_bytes, *stream_));
    MESHIFT_RETURN_IF_ERROR(engine.CopyIn(source.data(), in.data(), in_bytes, *stream_));
    MESHIFT_RETURN_IF_ERROR(engine.Synchronize(*stream_));
    const auto view = [&](const Sharding& sharding, const Buffer& buffer) {
      return TensorView::Contiguous(buffer.data(), sharding.dtype(),
                                    LocalBoxOf(sharding, engine.rank()).size);
    };
    const TensorView in_view = view(plan_.from(), in);
    const TensorView out_view = view(plan_.to(), out);
    if (is_first) {
      MESHIFT_ASSIGN_OR_RETURN(const int64_t workspace,
                               redistributor_.WorkspaceBytes(plan_, in_view, out_view, consumes));
      peak_bytes_ = workspace + HandedBytes(plan_.buffers(), in_bytes, out_bytes);
    }
    MESHIFT_ASSIGN_OR_RETURN(const RunHandle run, redistributor_.Run(plan_, in_view, out_view,
                                                                     {.consume_source = consumes}));
    MESHIFT_RETURN_IF_ERROR(run.Wait());
    MESHIFT_RETURN_IF_ERROR(engine.CopyOut(out.data(), target.data(), out_bytes, *stream_));
    return engine.Synchronize(*stream_);
  }

  // What this rank holds; nothing where it is not in the tensor's mesh.
  absl::Span<std::byte> Own(const Sharding& sharding, const LocalTensors& tensors) const {
    const std::optional<int64_t> position = sharding.mesh().PositionOf(job_.engine->rank());
    return position ? tensors.at(*position) : absl::Span<std::byte>();
  }

  const Plan& plan_;
  RankJob& job_;
  const bool takes_part_ = plan_.from().mesh().PositionOf(job_.engine->rank()).has_value() ||
                           plan_.to().mesh().PositionOf(job_.engine->rank()).has_value();
  std::unique_ptr<Buffer> in_;
  std::unique_ptr<Buffer> out_;  // null where it is the same
  int64_t peak_bytes_ = 0;
  std::unique_ptr<Stream> stream_;
  Redistributor redistributor_;
};

class RankSite final : public Site {
 public:
  explicit RankSite(RankJob* job) : job_(*job) {}

  const std::string& engine() const override { return job_.engine->name(); }
  int64_t num_ranks() const override { return job_.engine->world_size(); }
  bool leads() const override { return job_.engine->rank() == 0; }

  absl::Status CheckFits(const Plan& plan) const override {
    for (const DeviceMesh& mesh : plan.meshes()) {
      if (mesh.MaxRank() < num_ranks()) continue;
      return InvalidArgument("mesh {} has rank {}; this job has {}", mesh.ToString(),
                             mesh.MaxRank(), CountText(num_ranks(), "rank"));
    }
    return absl::OkStatus();
  }

  LocalTensors MakeTensors(const Sharding& sharding) const override {
    if (leads()) return LocalTensors(sharding);
    return LocalTensors(sharding, [&](int64_t rank) { return rank == job_.engine->rank(); });
  }

  absl::StatusOr<std::unique_ptr<SiteRunner>> NewRunner(const Plan& plan, ReductionOrder) override {
    MESHIFT_ASSIGN_OR_RETURN(const DeviceMesh mesh,
                             UnionMesh(plan.from().mesh(), plan.to().mesh()));
    absl::StatusOr<Redistributor> redistributor =
        Redistributor::Create(mesh, job_.engine.get(), {.time_steps = true});
    MESHIFT_RETURN_IF_ERROR(Agree(redistributor.status()));
    return std::make_unique<RankSiteRunner>(plan, &job_, *std::move(redistributor));
  }

  absl::Status Gather(const Sharding& sharding, LocalTensors* tensors) override {
    absl::StatusOr<TensorGather> gather =
        TensorGather::Prepare(*job_.engine, sharding.mesh(), *tensors);
    MESHIFT_RETURN_IF_ERROR(Agree(gather.status()));
    return gather->Run(tensors);
  }

  absl::Status Agree(const absl::Status& status) override {
    return Meet(*job_.bootstrap, status, "").status();
  }

  absl::StatusOr<testkit::CheckResult> Share(
      const absl::StatusOr<testkit::CheckResult>& result) override {
    std::string mine;
    if (leads() && result.ok()) {
      mine = Pack({result->wrong, result->replicas_differ,
                   static_cast<int64_t>(result->first_wrong.size())}) +
             result->first_wrong + result->first_difference;
    }
    MESHIFT_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                             Meet(*job_.bootstrap, result.status(), mine));
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
  RankJob& job_;
};

// All ranks find the same.
absl::Status CheckAsked(Bootstrap& bootstrap, const std::string& asked) {
  MESHIFT_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                           Meet(bootstrap, absl::OkStatus(), asked));
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    return InvalidArgument("rank 0 was asked to {}, and rank {} to {}", all[0], rank, all[rank]);
  }
  return absl::OkStatus();
}

}  // namespace

int RunAsRank(const std::string& engine, bool bounded_waits, const std::string& asked,
              const RankBody& body, Io& io) {
  absl::StatusOr<RankJob> job = StartRankJob(engine, bounded_waits);
  if (!job.ok()) return Fail(io, job.status());
  const std::unique_ptr<Site> site = MakeRankSite(&*job);
  std::ostream nowhere(nullptr);
  Io quiet{io.in, nowhere, nowhere};
  Io& own = site->leads() ? io : quiet;
  const absl::Status alike = CheckAsked(*job->bootstrap, asked);
  const absl::StatusOr<int> code = alike.ok() ? body(&*job, site.get(), own) : alike;
  // mpirun ends all ranks as soon as one has left with an error.
  io.out.flush();
  if (code.ok()) return *code;
  // Errors of arguments and files are everybody's, and leave nothing behind.
  if (ExitCodeOf(code.status()) != kExitCheckFailed) return Fail(own, code.status());
  const int exit_code =
      Fail(io, Annotate(code.status(), fmt::format("rank {}", job->engine->rank())));
  io.out.flush();
  io.err.flush();
  LeaveJob(exit_code);
}

std::unique_ptr<Site> MakeRankSite(RankJob* job) { return std::make_unique<RankSite>(job); }

}  // namespace meshift::cli
