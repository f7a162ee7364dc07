#include "comm/redistributor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstddef>
#include <cstdint>
#include <memory>
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
#include "planner/verifier.h"

namespace meshift {
namespace {

// A plan that is ready to run on this rank.
struct Prepared {
  Plan plan;
  Shape source_shape;  // of this rank's local tensors
  Shape target_shape;
  Program program;
  std::vector<Communicator*> communicators;
};

// Looks up pairs of shardings without copying them. An entry's key points into its plan.
struct ShardingPair {
  const Sharding* from;
  const Sharding* to;
  friend bool operator==(const ShardingPair& a, const ShardingPair& b) {
    return *a.from == *b.from && *a.to == *b.to;
  }
  template <typename H>
  friend H AbslHashValue(H h, const ShardingPair& p) {
    return H::combine(std::move(h), *p.from, *p.to);
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

absl::Status CheckView(std::string_view name, const TensorView& view, DType dtype,
                       const Shape& shape, int64_t rank) {
  if (view.dtype != dtype || view.shape != shape) {
    return InvalidArgument("the {} is {}; rank {} holds {}[{}]", name, view.ToString(), rank,
                           Name(dtype), fmt::join(shape, ","));
  }
  if (view.strides.size() != view.shape.size()) {
    return InvalidArgument("the {} {} has {} strides for {} dims", name, view.ToString(),
                           view.strides.size(), view.shape.size());
  }
  if (!view.IsContiguous()) {
    return Unimplemented("the {} {} has strides ({}); only contiguous tensors can be run yet", name,
                         view.ToString(), fmt::join(view.strides, ","));
  }
  if (view.data == nullptr && NumElements(shape) > 0) {
    return InvalidArgument("the {} {} is null", name, view.ToString());
  }
  return absl::OkStatus();
}

std::string DeviceText(const Device& device) {
  return fmt::format("{}:{}", device.kind == Device::Kind::kHost ? "host" : "cuda", device.index);
}

struct Memory {
  std::string_view name;
  const void* data;
  int64_t bytes;
};

absl::Status CheckDisjoint(const Memory& a, const Memory& b) {
  const auto a_begin = reinterpret_cast<uintptr_t>(a.data);
  const auto b_begin = reinterpret_cast<uintptr_t>(b.data);
  if (a.bytes == 0 || b.bytes == 0) return absl::OkStatus();
  if (a_begin + a.bytes <= b_begin || b_begin + b.bytes <= a_begin) return absl::OkStatus();
  return InvalidArgument("the {} and the {} overlap", a.name, b.name);
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

  absl::StatusOr<const Prepared*> Find(const Sharding& from, const Sharding& to);
  absl::StatusOr<const Prepared*> Find(const Plan& plan);
  absl::StatusOr<std::unique_ptr<const Prepared>> Make(const Plan& plan);
  absl::StatusOr<void*> ReserveWorkspace(int64_t bytes);
  absl::StatusOr<RunHandle> Enqueue(const Prepared& prepared, const TensorView& source,
                                    const TensorView& target, const Workspace& workspace,
                                    const std::shared_ptr<Rep>& self);
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
  LruCache<ShardingPair, std::unique_ptr<const Prepared>> made;
  LruCache<FingerprintKey, std::unique_ptr<const Prepared>> brought;
  RunRecord last_run;
  RedistributorStats stats;
  // Destroyed first of all memory that its work uses.
  std::unique_ptr<Stream> stream;

  mutable Mutex mutex;
  absl::Status error MESHIFT_GUARDED_BY(mutex);
};

absl::StatusOr<const Prepared*> RunHandle::Rep::Find(const Sharding& from, const Sharding& to) {
  if (const auto* found = made.Find({&from, &to})) {
    ++stats.plans_reused;
    return found->get();
  }
  MESHIFT_ASSIGN_OR_RETURN(const Plan plan, MakePlan(from, to,
                                                     {.reproducibility = options.reproducibility,
                                                      .topology = options.topology,
                                                      .planner = options.planner,
                                                      .engine = options.capabilities}));
  MESHIFT_ASSIGN_OR_RETURN(std::unique_ptr<const Prepared> prepared, Make(plan));
  const ShardingPair key{&prepared->plan.from(), &prepared->plan.to()};
  return made.Insert(key, std::move(prepared))->get();
}

absl::StatusOr<const Prepared*> RunHandle::Rep::Find(const Plan& plan) {
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
  MESHIFT_ASSIGN_OR_RETURN(std::unique_ptr<const Prepared> prepared, Make(plan));
  return brought.Insert(key, std::move(prepared))->get();
}

absl::StatusOr<std::unique_ptr<const Prepared>> RunHandle::Rep::Make(const Plan& plan) {
  MESHIFT_RETURN_IF_ERROR(groups->CheckMesh(plan.from().mesh()));
  MESHIFT_ASSIGN_OR_RETURN(Program program, Lower(plan, engine->rank()));
  ++stats.plans_made;
  std::vector<Communicator*> communicators;
  for (const ProgramGroup& group : program.groups) {
    absl::StatusOr<Communicator*> communicator = groups->Get(plan.from().mesh(), group);
    if (!communicator.ok()) return Fail(communicator.status());
    communicators.push_back(*communicator);
  }
  return std::make_unique<const Prepared>(Prepared{plan, plan.from().LocalBox(engine->rank()).size,
                                                   plan.to().LocalBox(engine->rank()).size,
                                                   std::move(program), std::move(communicators)});
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

absl::StatusOr<RunHandle> RunHandle::Rep::Enqueue(const Prepared& prepared,
                                                  const TensorView& source,
                                                  const TensorView& target, const Workspace& given,
                                                  const std::shared_ptr<Rep>& self) {
  const Program& program = prepared.program;
  MESHIFT_RETURN_IF_ERROR(CheckView("source", source, prepared.plan.from().dtype(),
                                    prepared.source_shape, program.rank));
  MESHIFT_RETURN_IF_ERROR(
      CheckView("target", target, prepared.plan.to().dtype(), prepared.target_shape, program.rank));
  if (!(source.device == target.device)) {
    return InvalidArgument("the source is on device {}, the target on device {}",
                           DeviceText(source.device), DeviceText(target.device));
  }
  const Memory in{"source", source.data, source.NumBytes()};
  const Memory out{"target", target.data, target.NumBytes()};
  MESHIFT_RETURN_IF_ERROR(CheckDisjoint(in, out));
  void* scratch = given.data;
  if (given.data != nullptr) {
    if (given.bytes < program.workspace_bytes) {
      return InvalidArgument("the workspace has {} bytes; the plan needs {}", given.bytes,
                             program.workspace_bytes);
    }
    if (reinterpret_cast<uintptr_t>(given.data) % kWorkspaceAlignment != 0) {
      return InvalidArgument("the workspace is not aligned to {} bytes", kWorkspaceAlignment);
    }
    const Memory work{"workspace", given.data, given.bytes};
    MESHIFT_RETURN_IF_ERROR(CheckDisjoint(in, work));
    MESHIFT_RETURN_IF_ERROR(CheckDisjoint(out, work));
  } else {
    MESHIFT_ASSIGN_OR_RETURN(scratch, ReserveWorkspace(program.workspace_bytes));
  }
  ++stats.calls;
  const absl::Status status =
      executor.Enqueue(program, prepared.communicators,
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
  MESHIFT_ASSIGN_OR_RETURN(const Prepared* prepared, rep_->Find(what.from, what.to));
  return rep_->Enqueue(*prepared, what.source, what.target, what.workspace, rep_);
}

absl::StatusOr<RunHandle> Redistributor::Run(const Plan& plan, const TensorView& source,
                                             const TensorView& target, const Workspace& workspace) {
  MESHIFT_RETURN_IF_ERROR(rep_->Health());
  if (!rep_->Takes()) return RunHandle();
  MESHIFT_ASSIGN_OR_RETURN(const Prepared* prepared, rep_->Find(plan));
  return rep_->Enqueue(*prepared, source, target, workspace, rep_);
}

absl::StatusOr<Plan> Redistributor::Prepare(const Sharding& from, const Sharding& to) {
  MESHIFT_RETURN_IF_ERROR(rep_->Health());
  if (!rep_->Takes()) {
    return FailedPrecondition("rank {} is not in mesh {} and has no plans", rep_->engine->rank(),
                              rep_->mesh.ToString());
  }
  MESHIFT_ASSIGN_OR_RETURN(const Prepared* prepared, rep_->Find(from, to));
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
