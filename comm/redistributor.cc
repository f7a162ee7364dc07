#include "comm/redistributor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "base/status_macros.h"
#include "comm/lowering.h"
#include "comm/lru_cache.h"
#include "comm/program.h"
#include "comm/view_check.h"
#include "planner/verifier.h"

namespace meshift {
namespace {

constexpr size_t kMaxLayouts = 64;  // per plan, besides row-major

// Layouts as a key of a cache.
struct LayoutsKey {
  LoweringOptions layouts;
  friend bool operator==(const LayoutsKey&, const LayoutsKey&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const LayoutsKey& k) {
    return H::combine(std::move(h), k.layouts.source_strides, k.layouts.target_strides,
                      k.layouts.one_buffer, k.layouts.consume_source);
  }
};

// A plan that is ready to run on this rank.
struct Prepared {
  Plan plan;
  Shape source_shape;  // of this rank's local tensors
  Shape target_shape;
  Program program;  // for row-major tensors
  std::vector<Communicator*> communicators;
  LruCache<LayoutsKey, std::unique_ptr<const Program>> others{kMaxLayouts};
};

// Looks up what to plan without copying shardings. An entry's key points into its plan.
struct PlanKey {
  const Sharding* from;
  const Sharding* to;
  std::optional<DType> reduce_dtype;
  friend bool operator==(const PlanKey& a, const PlanKey& b) {
    return *a.from == *b.from && *a.to == *b.to && a.reduce_dtype == b.reduce_dtype;
  }
  template <typename H>
  friend H AbslHashValue(H h, const PlanKey& k) {
    return H::combine(std::move(h), *k.from, *k.to, k.reduce_dtype);
  }
};

struct FingerprintKey {
  Fingerprint fingerprint;
  friend bool operator==(const FingerprintKey&, const FingerprintKey&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const FingerprintKey& k) {
    return H::combine(std::move(h), k.fingerprint.high, k.fingerprint.low);
  }
};

std::string DeviceText(const Device& device) {
  return fmt::format("{}:{}", device.kind == Device::Kind::kHost ? "host" : "cuda", device.index);
}

absl::Status CheckDisjoint(std::string_view name, const MemoryRange& tensor,
                           const MemoryRange& workspace) {
  if (!tensor.Overlaps(workspace)) return absl::OkStatus();
  return InvalidArgument("the {} and the workspace overlap", name);
}

// What views of a plan's local tensors on `rank` mean to the lowering.
absl::StatusOr<LoweringOptions> CheckViews(const Plan& plan, int64_t rank,
                                           const Shape& source_shape, const Shape& target_shape,
                                           const TensorView& source, const TensorView& target,
                                           bool consume_source) {
  MESHIFT_RETURN_IF_ERROR(CheckView("source", source, plan.from().dtype(), source_shape, rank));
  MESHIFT_RETURN_IF_ERROR(CheckView("target", target, plan.to().dtype(), target_shape, rank));
  MESHIFT_RETURN_IF_ERROR(CheckTarget(target));
  if (!(source.device == target.device)) {
    return InvalidArgument("the source is on device {}, the target on device {}",
                           DeviceText(source.device), DeviceText(target.device));
  }
  return LayoutsOf(source, target, consume_source);
}

}  // namespace

struct RunHandle::Rep {
  Rep(const DeviceMesh& mesh, Engine* engine, const RedistributorOptions& options)
      : mesh(mesh),
        engine(engine),
        options(options),
        executor(engine),
        made(options.max_cached_plans),
        brought(options.max_cached_plans) {}

  // Whether this rank is in the mesh.
  bool Takes() const { return groups != nullptr; }

  absl::StatusOr<Prepared*> Find(const PlanKey& what);
  absl::StatusOr<Prepared*> Find(const Plan& plan);
  absl::StatusOr<std::unique_ptr<Prepared>> Make(const Plan& plan);
  absl::StatusOr<const Program*> FindProgram(Prepared& prepared, const LoweringOptions& layouts);
  absl::StatusOr<void*> ReserveWorkspace(int64_t bytes);
  absl::StatusOr<RunHandle> Enqueue(Prepared& prepared, const TensorView& source,
                                    const TensorView& target, const Workspace& workspace,
                                    bool consume_source, const std::shared_ptr<Rep>& self);
  absl::Status Wait();

  // The first error ends everything. Returns it.
  absl::Status Fail(const absl::Status& status) {
    {
      const MutexLock lock(mutex);
      if (!error.ok()) return error;
      error = status;
    }
    if (groups != nullptr) groups->AbortAll();
    return status;
  }
  absl::Status Health() const {
    const MutexLock lock(mutex);
    return error;
  }

  const DeviceMesh mesh;
  Engine* const engine;
  const RedistributorOptions options;
  std::unique_ptr<GroupCache> groups;  // null where this rank is not in the mesh
  std::unique_ptr<Buffer> workspace;
  std::vector<std::unique_ptr<Buffer>> outgrown;  // workspaces that work may still use
  Executor executor;
  LruCache<PlanKey, std::unique_ptr<Prepared>> made;
  LruCache<FingerprintKey, std::unique_ptr<Prepared>> brought;
  RunRecord last_run;
  RedistributorStats stats;
  // Destroyed first of all memory that its work uses.
  std::unique_ptr<Stream> stream;

  mutable Mutex mutex;
  absl::Status error MESHIFT_GUARDED_BY(mutex);
};

absl::StatusOr<Prepared*> RunHandle::Rep::Find(const PlanKey& what) {
  if (const auto* found = made.Find(what)) {
    ++stats.plans_reused;
    return found->get();
  }
  MESHIFT_ASSIGN_OR_RETURN(const Plan plan, MakePlan(*what.from, *what.to,
                                                     {.reproducibility = options.reproducibility,
                                                      .topology = options.topology,
                                                      .planner = options.planner,
                                                      .engine = options.capabilities,
                                                      .reduce_dtype = what.reduce_dtype}));
  MESHIFT_ASSIGN_OR_RETURN(std::unique_ptr<Prepared> prepared, Make(plan));
  const PlanKey key{&prepared->plan.from(), &prepared->plan.to(), what.reduce_dtype};
  return made.Insert(key, std::move(prepared))->get();
}

absl::StatusOr<Prepared*> RunHandle::Rep::Find(const Plan& plan) {
  const FingerprintKey key{plan.fingerprint()};
  // Equal fingerprints mean equal steps, but not equal totals: those of another plan are not
  // verified.
  if (const auto* found = brought.Find(key); found != nullptr && (*found)->plan == plan) {
    ++stats.plans_reused;
    return found->get();
  }
  if (options.verify_plans) {
    const Verdict verdict = Verify(plan);
    if (!verdict.ok()) {
      const PlanFault& fault = *verdict.fault;
      const std::string where = fault.step ? fmt::format("step {}: ", *fault.step) : "";
      return InvalidArgument("plan {} breaks rule {}: {}{}", plan.fingerprint().ToString(),
                             fault.rule, where, fault.message);
    }
  }
  MESHIFT_ASSIGN_OR_RETURN(std::unique_ptr<Prepared> prepared, Make(plan));
  return brought.Insert(key, std::move(prepared))->get();
}

absl::StatusOr<std::unique_ptr<Prepared>> RunHandle::Rep::Make(const Plan& plan) {
  MESHIFT_RETURN_IF_ERROR(groups->CheckMesh(plan.from().mesh()));
  MESHIFT_ASSIGN_OR_RETURN(Program program, Lower(plan, engine->rank()));
  ++stats.plans_made;
  std::vector<Communicator*> communicators;
  for (const ProgramGroup& group : program.groups) {
    absl::StatusOr<Communicator*> communicator = groups->Get(plan.from().mesh(), group);
    if (!communicator.ok()) return Fail(communicator.status());
    communicators.push_back(*communicator);
  }
  return std::make_unique<Prepared>(
      Prepared{.plan = plan,
               .source_shape = plan.from().LocalBox(engine->rank()).size,
               .target_shape = plan.to().LocalBox(engine->rank()).size,
               .program = std::move(program),
               .communicators = std::move(communicators)});
}

absl::StatusOr<const Program*> RunHandle::Rep::FindProgram(Prepared& prepared,
                                                           const LoweringOptions& layouts) {
  if (layouts == LoweringOptions{}) return &prepared.program;
  if (const auto* found = prepared.others.Find({layouts})) return found->get();
  MESHIFT_ASSIGN_OR_RETURN(Program program, Lower(prepared.plan, engine->rank(), layouts));
  ++stats.programs_made;
  return prepared.others.Insert({layouts}, std::make_unique<const Program>(std::move(program)))
      ->get();
}

absl::StatusOr<void*> RunHandle::Rep::ReserveWorkspace(int64_t bytes) {
  if (bytes == 0) return nullptr;
  if (workspace == nullptr || workspace->size_bytes() < bytes) {
    absl::StatusOr<std::unique_ptr<Buffer>> buffer = engine->Allocate(bytes);
    // Peers that have memory would wait for this rank.
    if (!buffer.ok()) return Fail(buffer.status());
    if (workspace != nullptr) outgrown.push_back(std::move(workspace));
    workspace = *std::move(buffer);
  }
  return workspace->data();
}

absl::StatusOr<RunHandle> RunHandle::Rep::Enqueue(Prepared& prepared, const TensorView& source,
                                                  const TensorView& target, const Workspace& given,
                                                  bool consume_source,
                                                  const std::shared_ptr<Rep>& self) {
  const Plan& plan = prepared.plan;
  MESHIFT_ASSIGN_OR_RETURN(const LoweringOptions layouts,
                           CheckViews(plan, engine->rank(), prepared.source_shape,
                                      prepared.target_shape, source, target, consume_source));
  for (const auto& [name, view] : {std::pair("source", &source), std::pair("target", &target)}) {
    if (view->data != nullptr || NumElements(view->shape) == 0) continue;
    return InvalidArgument("the {} {} is null", name, view->ToString());
  }
  MESHIFT_ASSIGN_OR_RETURN(const Program* program, FindProgram(prepared, layouts));
  void* scratch = given.data;
  if (given.data != nullptr) {
    if (given.bytes < program->workspace_bytes) {
      return InvalidArgument("the workspace has {} bytes; the plan needs {}", given.bytes,
                             program->workspace_bytes);
    }
    const auto begin = reinterpret_cast<uintptr_t>(given.data);
    if (begin % kWorkspaceAlignment != 0) {
      return InvalidArgument("the workspace is not aligned to {} bytes", kWorkspaceAlignment);
    }
    const MemoryRange work{begin, begin + static_cast<uintptr_t>(given.bytes)};
    MESHIFT_RETURN_IF_ERROR(CheckDisjoint("source", RangeOf(source), work));
    MESHIFT_RETURN_IF_ERROR(CheckDisjoint("target", RangeOf(target), work));
  } else {
    MESHIFT_ASSIGN_OR_RETURN(scratch, ReserveWorkspace(program->workspace_bytes));
  }
  ++stats.calls;
  const absl::Status status =
      executor.Enqueue(*program, prepared.communicators,
                       {.source = source.data, .target = target.data, .workspace = scratch},
                       {.time_steps = options.time_steps}, *stream, &last_run);
  if (!status.ok()) return Fail(status);
  return RunHandle(self);
}

absl::Status RunHandle::Rep::Wait() {
  const absl::Status status = engine->Synchronize(*stream);
  if (!status.ok()) return Fail(status);
  outgrown.clear();
  return Health();
}

absl::Status RunHandle::Wait() const { return rep_ == nullptr ? absl::OkStatus() : rep_->Wait(); }

absl::StatusOr<Redistributor> Redistributor::Create(const DeviceMesh& mesh, Engine* engine,
                                                    const RedistributorOptions& options) {
  if (options.max_cached_plans < 1) {
    return InvalidArgument("max_cached_plans {} is not positive", options.max_cached_plans);
  }
  auto rep = std::make_shared<Rep>(mesh, engine, options);
  if (mesh.PositionOf(engine->rank())) {
    MESHIFT_ASSIGN_OR_RETURN(rep->groups, GroupCache::Create(engine, mesh));
    MESHIFT_ASSIGN_OR_RETURN(rep->stream, engine->CreateStream());
  }
  return Redistributor(std::move(rep));
}

absl::StatusOr<RunHandle> Redistributor::operator()(const Redistribution& what) {
  MESHIFT_RETURN_IF_ERROR(rep_->Health());
  if (!rep_->Takes()) return RunHandle();
  MESHIFT_ASSIGN_OR_RETURN(Prepared * prepared,
                           rep_->Find({&what.from, &what.to, what.reduce_dtype}));
  return rep_->Enqueue(*prepared, what.source, what.target, what.workspace, what.consume_source,
                       rep_);
}

absl::StatusOr<RunHandle> Redistributor::Run(const Plan& plan, const TensorView& source,
                                             const TensorView& target, const Workspace& workspace,
                                             bool consume_source) {
  MESHIFT_RETURN_IF_ERROR(rep_->Health());
  if (!rep_->Takes()) return RunHandle();
  MESHIFT_ASSIGN_OR_RETURN(Prepared * prepared, rep_->Find(plan));
  return rep_->Enqueue(*prepared, source, target, workspace, consume_source, rep_);
}

absl::StatusOr<Plan> Redistributor::Prepare(const Sharding& from, const Sharding& to,
                                            std::optional<DType> reduce_dtype) {
  MESHIFT_RETURN_IF_ERROR(rep_->Health());
  if (!rep_->Takes()) {
    return FailedPrecondition("rank {} is not in mesh {} and has no plans", rep_->engine->rank(),
                              rep_->mesh.ToString());
  }
  MESHIFT_ASSIGN_OR_RETURN(const Prepared* prepared, rep_->Find({&from, &to, reduce_dtype}));
  MESHIFT_RETURN_IF_ERROR(rep_->ReserveWorkspace(prepared->program.workspace_bytes).status());
  return prepared->plan;
}

absl::Status Redistributor::Prepare(absl::Span<const Plan> plans) {
  MESHIFT_RETURN_IF_ERROR(rep_->Health());
  if (!rep_->Takes()) return absl::OkStatus();
  for (const Plan& plan : plans) {
    MESHIFT_ASSIGN_OR_RETURN(const Prepared* prepared, rep_->Find(plan));
    MESHIFT_RETURN_IF_ERROR(rep_->ReserveWorkspace(prepared->program.workspace_bytes).status());
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> Redistributor::WorkspaceBytes(const Plan& plan, const TensorView& source,
                                                      const TensorView& target,
                                                      bool consume_source) const {
  if (!rep_->Takes()) return 0;
  const int64_t rank = rep_->engine->rank();
  MESHIFT_RETURN_IF_ERROR(rep_->groups->CheckMesh(plan.from().mesh()));
  MESHIFT_ASSIGN_OR_RETURN(
      const LoweringOptions layouts,
      CheckViews(plan, rank, plan.from().LocalBox(rank).size, plan.to().LocalBox(rank).size, source,
                 target, consume_source));
  MESHIFT_ASSIGN_OR_RETURN(const Program program, Lower(plan, rank, layouts));
  return program.workspace_bytes;
}

void Redistributor::Abort() {
  rep_->Fail(absl::AbortedError("the redistributor was aborted")).IgnoreError();
}

RedistributorStats Redistributor::stats() const {
  RedistributorStats stats = rep_->stats;
  stats.plans_cached = static_cast<int64_t>(rep_->made.size() + rep_->brought.size());
  if (rep_->Takes()) stats.groups = rep_->groups->stats();
  return stats;
}

const RunRecord& Redistributor::last_run() const { return rep_->last_run; }

const DeviceMesh& Redistributor::mesh() const { return rep_->mesh; }

}  // namespace meshift
