// The public functions of Redistributor. RedistributorImpl makes the calls; Empty, View and rank
// are implemented here.
#include "meshift/redistributor.h"

#include <memory>
#include <utility>

#include "comm/redistribution/redistributor_impl.h"
#include "meshift/status.h"

namespace meshift {

using run_internal::RedistributorImpl;

absl::StatusOr<Redistributor> Redistributor::Create(const DeviceMesh& mesh, Engine* engine,
                                                    const RedistributorOptions& options) {
  MESHIFT_ASSIGN_OR_RETURN(std::shared_ptr<RedistributorImpl> impl,
                           RedistributorImpl::Create(mesh, engine, options));
  return Redistributor(std::move(impl));
}

absl::StatusOr<RunHandle> Redistributor::operator()(const Redistribution& what) {
  return impl_->Redistribute(what);
}

absl::StatusOr<RunHandle> Redistributor::operator()(absl::Span<const Redistribution> list,
                                                    const Workspace& workspace,
                                                    std::optional<int64_t> ticket) {
  return impl_->Redistribute(list, workspace, ticket);
}

absl::StatusOr<RunHandle> Redistributor::Run(const Plan& plan, const TensorView& source,
                                             const TensorView& target,
                                             const PlanRunOptions& options) {
  return impl_->RunPlan(
      plan, {.source = source, .target = target, .consume_source = options.consume_source},
      options.workspace, {.stream = options.after, .run = &options.after_run}, options.ticket);
}

absl::StatusOr<Plan> Redistributor::Prepare(const Sharding& from, const Sharding& to,
                                            std::optional<DType> reduce_dtype) {
  return impl_->Prepare(PlanKey{&from, &to, reduce_dtype});
}

absl::Status Redistributor::Prepare(absl::Span<const Plan> plans) { return impl_->Prepare(plans); }

absl::Status Redistributor::Prepare(absl::Span<const Redistribution> list) {
  return impl_->Prepare(list);
}

absl::StatusOr<int64_t> Redistributor::WorkspaceBytes(const Plan& plan, const TensorView& source,
                                                      const TensorView& target,
                                                      bool consume_source) const {
  return impl_->WorkspaceBytes(plan, source, target, consume_source);
}

absl::StatusOr<int64_t> Redistributor::WorkspaceBytes(absl::Span<const Redistribution> list) const {
  return impl_->WorkspaceBytes(list);
}

absl::StatusOr<std::unique_ptr<SymmetricPool>> Redistributor::MakeSymmetricPool(
    absl::Span<const int> mesh_dims, const SymmetricPoolOptions& options) {
  return impl_->MakeSymmetricPool(mesh_dims, options);
}

absl::StatusOr<ShardedTensor> Redistributor::Empty(const Sharding& sharding) const {
  TensorView view = View(sharding, static_cast<void*>(nullptr));
  std::unique_ptr<Buffer> memory;
  if (view.NumBytes() > 0) {
    MESHIFT_ASSIGN_OR_RETURN(memory, impl_->engine().Allocate(view.NumBytes()));
    view.data = memory->data();
  }
  return ShardedTensor(sharding, std::move(view), std::move(memory));
}

TensorView Redistributor::View(const Sharding& sharding, void* data) const {
  return TensorView::Contiguous(data, sharding.dtype(), sharding.LocalBox(rank()).size);
}

TensorView Redistributor::View(const Sharding& sharding, const void* data) const {
  return TensorView::ReadOnly(data, sharding.dtype(), sharding.LocalBox(rank()).size);
}

int64_t Redistributor::rank() const { return impl_->engine().rank(); }

void Redistributor::Abort() { impl_->Abort(); }

RedistributorStats Redistributor::stats() const { return impl_->stats(); }

const RunRecord& Redistributor::last_run() const { return impl_->last_run(); }

const DeviceMesh& Redistributor::mesh() const { return impl_->mesh(); }

}  // namespace meshift
