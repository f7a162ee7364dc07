// RedistributorImpl's calls that name symmetric memory, and its MakeSymmetricPool().
//
// Whether such a call uses it depends on the plan and on the call's arguments: the pool, the blocks
// and the offsets. The fingerprint that is posted covers all of them, so that ranks with different
// arguments get the errors of different plans (Agreement in meshift/redistributor.h). The addresses
// and strides of a rank's tensors do not change the decision: INVALID_ARGUMENT if they do not match
// the blocks.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "base/status.h"
#include "comm/program/step_geometry.h"
#include "comm/redistribution/redistributor_impl.h"
#include "comm/symmetric/symmetric_form.h"
#include "meshift/status.h"

namespace meshift::run_internal {
namespace {

// INVALID_ARGUMENT unless the tensor is contiguous memory at its offset in its block, or has no
// block or no elements.
absl::Status CheckPlace(const char* name, const TensorView& view, const SymmetricTensor& tensor,
                        const SymmetricBlock& block) {
  if (tensor.block == 0 || NumElements(view.shape) == 0) return absl::OkStatus();
  const char* const begin = static_cast<const char*>(block.data) + tensor.offset;
  if (view.data != begin || !view.IsContiguous()) {
    return InvalidArgument("the {} {} is not contiguous memory at offset {} of block {}", name,
                           view.ToString(), tensor.offset, tensor.block);
  }
  return absl::OkStatus();
}

// Whether the block has `bytes` bytes after the tensor's offset, and the offset is aligned for
// every dtype.
bool Fits(const SymmetricTensor& tensor, const SymmetricBlock& block, int64_t bytes) {
  constexpr int64_t kElement = 16;  // bytes of the largest dtype
  return tensor.offset >= 0 && tensor.offset % kElement == 0 &&
         bytes <= block.bytes - tensor.offset;
}

bool Overlap(const SymmetricBlock& a, int64_t a_bytes, int64_t a_offset, const SymmetricBlock& b,
             int64_t b_bytes, int64_t b_offset) {
  return a.number == b.number && a_offset < b_offset + b_bytes && b_offset < a_offset + a_bytes;
}

std::string PlaceText(const SymmetricTensor& tensor, const SymmetricBlock& block) {
  if (tensor.block == 0) return "none";
  return fmt::format("block {}+{} (buffer {}+{}, {} bytes)", tensor.block, tensor.offset,
                     block.buffer, block.offset, block.bytes);
}

}  // namespace

SymmetricDecision RedistributorImpl::Decide(const PlanEntry& plan, const SymmetricUse& use,
                                            const SymmetricBlock& source,
                                            const SymmetricBlock& target) {
  SymmetricDecision decision;
  const SymmetricPool& pool = *use.pool;
  decision.text = std::make_shared<const std::string>(
      fmt::format("{}, symmetric pool {}: source {}, target {}", *plan.call->text, pool.id(),
                  PlaceText(use.source, source), PlaceText(use.target, target)));
  decision.fingerprint = Fingerprint::Of(*decision.text);
  const auto miss = [&](SymmetricMiss reason) {
    decision.miss = reason;
    return decision;
  };
  if (use.source.block == 0) return miss(SymmetricMiss::kSource);
  if (use.target.block == 0) return miss(SymmetricMiss::kTarget);
  auto form = std::make_shared<SymmetricForm>(SymmetricFormOf(plan.plan, engine_->rank()));
  if (form->miss) return miss(*form->miss);
  if (form->ranks != pool.ranks()) return miss(SymmetricMiss::kGroup);
  if (!Fits(use.source, source, form->source_bytes) ||
      !Fits(use.target, target, form->target_bytes)) {
    return miss(SymmetricMiss::kSize);
  }
  if (Overlap(source, form->source_bytes, use.source.offset, target, form->target_bytes,
              use.target.offset)) {
    return miss(SymmetricMiss::kOverlap);
  }
  decision.call = {.kind = form->kind,
                   .dtype = form->dtype,
                   .reduction = form->reduction,
                   .counts = form->counts,
                   .send = pool.PlaceOf(source, use.source.offset),
                   .recv = pool.PlaceOf(target, use.target.offset)};
  using Support = Communicator::SymmetricSupport;
  const Support support = pool.communicator()->SupportOf(decision.call);
  if (support == Support::kNone) return miss(SymmetricMiss::kEngine);
  if (support == Support::kOtherBits && form->needs_same_bits) return miss(SymmetricMiss::kPromise);
  decision.record = std::make_shared<RunRecord>(
      RunRecord{.bytes_sent = {form->bytes_sent}, .calls = {1}, .events = {}});
  decision.form = std::move(form);
  return decision;
}

absl::Status RedistributorImpl::CheckPool(const SymmetricUse& use) const {
  if (use.pool != nullptr && use.pool->owner() == this) return absl::OkStatus();
  return InvalidArgument("the symmetric use does not name a pool of this redistributor");
}

absl::StatusOr<RunHandle> RedistributorImpl::RunSymmetric(PlanEntry& plan,
                                                          const Redistribution& what) {
  const SymmetricUse& use = *what.symmetric;
  MESHIFT_RETURN_IF_ERROR(CheckPool(use));
  SymmetricBlock blocks[2];
  for (const auto& [name, tensor, view, block] :
       {std::tuple("source", &use.source, &what.source, &blocks[0]),
        std::tuple("target", &use.target, &what.target, &blocks[1])}) {
    if (tensor->block == 0) continue;
    absl::StatusOr<SymmetricBlock> found = use.pool->Find(tensor->block);
    if (!found.ok()) return InvalidArgument("the {}: {}", name, Message(found.status()));
    *block = *found;
    MESHIFT_RETURN_IF_ERROR(CheckPlace(name, *view, *tensor, *block));
  }
  const SymmetricKey key{plan.plan.fingerprint(), use.pool->id(), use.source, use.target};
  SymmetricDecision* decision = decisions_.Find(key);
  if (decision == nullptr) {
    decision = decisions_.Insert(key, Decide(plan, use, blocks[0], blocks[1]));
  }
  const TensorArgs tensor{
      .source = what.source, .target = what.target, .consume_source = what.consume_source};
  const After after{.stream = what.after, .run = &what.after_run};
  if (decision->miss) {
    absl::StatusOr<RunHandle> handle =
        RunOne(plan, decision->fingerprint, decision->text, tensor, what.workspace, after);
    if (handle.ok()) CountMiss(use, *decision->miss);
    return handle;
  }
  MESHIFT_RETURN_IF_ERROR(CheckAfter(after.run));
  MESHIFT_ASSIGN_OR_RETURN(Call* const call, CallFor(plan, tensor));
  RunHandle handle = NewHandle();
  Run* const run = handle.run_;
  MESHIFT_RETURN_IF_ERROR(BeginAfter(after, run));
  MESHIFT_ASSIGN_OR_RETURN(const Issued issued,
                           BeginIssue(*call, decision->fingerprint, decision->text, run));
  MESHIFT_RETURN_IF_ERROR(EndIssue(issued, CallSymmetric(use, *decision, *call, run), run));
  ++symmetric_.hits;
  use.pool->CountHit();
  return handle;
}

void RedistributorImpl::CountMiss(const SymmetricUse& use, SymmetricMiss miss) {
  ++symmetric_.misses[static_cast<size_t>(miss)];
  use.pool->CountMiss(miss);
}

absl::Status RedistributorImpl::CallSymmetric(const SymmetricUse& use,
                                              const SymmetricDecision& decision, const Call& call,
                                              Run* run) {
  // The plan's only group has the pool's ranks, and there is one communicator per set of ranks.
  Communicator& communicator = *use.pool->communicator();
  const std::vector<Communicator*>& groups = call.parts[0].program->communicators;
  if (groups.size() != 1 || groups[0] != &communicator) {
    return Internal("{} does not have the communicator of the plan", use.pool->ToString());
  }
  MESHIFT_ASSIGN_OR_RETURN(GroupStream * group_stream, group_streams_.Of(&communicator));
  Stream& stream = group_stream->stream();
  MESHIFT_RETURN_IF_ERROR(WaitBefore(stream, *run));
  const bool timed = options_.expert.time_steps;
  RunRecord* const record = NewRecord(decision.record);
  if (timed) MESHIFT_RETURN_IF_ERROR(MarkSteps(0, stream, record));
  MESHIFT_RETURN_IF_ERROR(communicator.CallSymmetric(decision.call, stream));
  if (timed) MESHIFT_RETURN_IF_ERROR(MarkSteps(1, stream, record));
  run->ends.push_back(&stream);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<SymmetricPool>> RedistributorImpl::MakeSymmetricPool(
    absl::Span<const int> mesh_dims, const SymmetricPoolOptions& options) {
  MESHIFT_RETURN_IF_ERROR(MayCall());
  if (!IsInMesh()) {
    return FailedPrecondition("rank {} is not in mesh {} and has no group", engine_->rank(),
                              mesh_.ToString());
  }
  // Mesh dims of size 1 are in no plan's groups.
  ProgramGroup group;
  int last = -1;
  for (const int d : mesh_dims) {
    if (d <= last || d >= mesh_.NumDims()) {
      return InvalidArgument("mesh dim {} of a symmetric pool is out of range or not in mesh order",
                             d);
    }
    last = d;
    if (mesh_.dim(d).size > 1) group.mesh_dims.push_back(d);
  }
  if (group.mesh_dims.empty()) {
    return InvalidArgument("a symmetric pool needs groups of two or more ranks");
  }
  Coordinate at = *mesh_.CoordinateOf(engine_->rank());
  group.number = lowering_internal::GroupNumber(mesh_, group.mesh_dims, at);
  const lowering_internal::Members members(mesh_, group.mesh_dims, at);
  std::vector<int64_t> ranks;
  for (int64_t number = 0; number < members.size(); ++number) {
    members.SetCoordinate(members.IndexOfNumber(number), &at);
    ranks.push_back(mesh_.RankAt(at));
  }
  group.ranks = RankList(ranks);
  MESHIFT_RETURN_IF_ERROR(CheckOptions(options));
  const MutexLock lock(issuing_);
  const int64_t id = ++num_pools_;
  const auto text = std::make_shared<const std::string>(fmt::format(
      "symmetric pool {} over mesh dims {}: {} of at most {} buffers of {} bytes", id,
      fmt::join(group.mesh_dims, ","), options.buffers, options.max_buffers, options.buffer_bytes));
  MESHIFT_ASSIGN_OR_RETURN(const int64_t call, TakeNumber(Fingerprint::Of(*text), text));
  absl::StatusOr<Communicator*> communicator = groups_->Get(mesh_, group);
  if (!communicator.ok()) return FailCall(call, communicator.status());
  auto pool = SymmetricPool::Create(engine_, *communicator, options);
  if (!pool.ok()) {
    // An error that all members get does not end the redistributor.
    const absl::StatusCode code = pool.status().code();
    const bool refused = code == absl::StatusCode::kUnimplemented ||
                         code == absl::StatusCode::kInvalidArgument ||
                         code == absl::StatusCode::kResourceExhausted;
    return refused ? pool.status() : FailCall(call, pool.status());
  }
  (*pool)->SetOwner(shared_from_this(), id, std::move(ranks));
  return pool;
}

}  // namespace meshift::run_internal
