// Implements the methods of NcclContext (context.h) that make communicators and windows. NCCL may
// block in a split or a registration: they run on a SideThread, and fail after the set-up time-out.
// MakeRoot() and DropWindow() call NCCL on the caller's thread.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "base/status.h"
#include "comm/nccl/context.h"
#include "comm/nccl/device.h"
#include "comm/nccl/groups.h"
#include "comm/nccl/launches.h"
#include "comm/nccl/nccl_library.h"
#include "meshift/dtype.h"
#include "meshift/status.h"

namespace meshift {

// A split in progress. Keeps alive everything that NCCL may use until it has finished.
struct NcclContext::Splitting {
  std::shared_ptr<NcclGroup> parent;
  std::shared_ptr<NcclGroup> group;  // null: this rank gets none
  NcclSplit split;
  ncclComm_t none = nullptr;  // where NCCL stores the handle if this rank gets no group
};

absl::Status NcclContext::AllocateBarrierMemory(NcclGroup& group) {
  const auto bytes = static_cast<int64_t>(sizeof(int32_t) * (1 + group.ranks.size()));
  MESHIFT_ASSIGN_OR_RETURN(group.barrier_memory, device_->Allocate(bytes));
  MESHIFT_RETURN_IF_ERROR(device_->driver().MemsetD8Async(
      group.barrier_memory, 0, static_cast<size_t>(bytes), device_->utility()));
  MESHIFT_ASSIGN_OR_RETURN(const CUevent event, device_->TakeEvent(/*timed=*/false));
  absl::Status status = device_->driver().EventRecord(event, device_->utility());
  if (status.ok()) status = Await(event);
  device_->GiveEvent(event, /*timed=*/false);
  return status;
}

absl::StatusOr<std::shared_ptr<NcclGroup>> NcclContext::MakeRoot(
    const char* function, std::vector<int64_t> ranks,
    absl::FunctionRef<ncclResult_t(ncclComm_t* comm)> make) {
  const CudaDevice::Scope scope(*device_);
  const auto group = std::make_shared<NcclGroup>();
  group->member =
      static_cast<int>(std::lower_bound(ranks.begin(), ranks.end(), rank_) - ranks.begin());
  group->ranks = std::move(ranks);
  {
    const MutexLock lock(mutex_);
    MESHIFT_RETURN_IF_ERROR(Health());
    ncclResult_t result = make(groups_->Make(group));
    if (!groups_->Adopt(*group)) return Error();
    if (result == ncclSuccess) result = ncclInProgress;
    MESHIFT_RETURN_IF_ERROR(AwaitComm(*group, {result, function}, timeouts_.Get().setup));
  }
  if (!options_.blocking_groups) MESHIFT_RETURN_IF_ERROR(AllocateBarrierMemory(*group));
  return group;
}

absl::StatusOr<std::shared_ptr<NcclGroup>> NcclContext::Lend(ncclComm_t comm, bool may_split,
                                                             std::vector<int64_t> ranks,
                                                             int member) {
  const CudaDevice::Scope scope(*device_);
  const auto group = std::make_shared<NcclGroup>();
  group->lent = true;
  group->may_split = may_split;
  group->ranks = std::move(ranks);
  group->member = member;
  MESHIFT_RETURN_IF_ERROR(AllocateBarrierMemory(*group));
  groups_->Add(group, comm);
  return group;
}

std::shared_ptr<NcclGroup> NcclContext::FindGroup(const NcclSplit& split) const {
  if (split.color == NCCL_SPLIT_NOCOLOR) return nullptr;
  for (const std::shared_ptr<NcclGroup>& group : groups_->all()) {
    // A root that is only split, never called, has no memory for barriers.
    if (group->ranks == split.ranks && group->config == split.kind && group->barrier_memory != 0 &&
        !group->lent && group->comm() != nullptr) {
      return group;
    }
  }
  return nullptr;
}

absl::StatusOr<std::shared_ptr<NcclGroup>> NcclContext::Split(
    const std::shared_ptr<NcclGroup>& parent, NcclSplit split) {
  MESHIFT_RETURN_IF_ERROR(AwaitLast(*parent));
  const CudaDevice::Scope scope(*device_);
  const MutexLock lock(mutex_);
  MESHIFT_RETURN_IF_ERROR(Health());
  const auto splitting = std::make_shared<Splitting>();
  splitting->parent = parent->splitter != nullptr ? parent->splitter : parent;
  const std::shared_ptr<NcclGroup> existing = FindGroup(split);
  if (existing != nullptr) split.color = NCCL_SPLIT_NOCOLOR;
  if (split.color != NCCL_SPLIT_NOCOLOR) {
    const auto group = std::make_shared<NcclGroup>();
    group->blocking = options_.blocking_groups;
    group->handle_stored_by_nccl_thread = !splitting->parent->blocking && !splitting->parent->lent;
    group->ranks = split.ranks;
    group->member = split.key;
    group->config = split.kind;
    group->name = split.name;
    // Splits of this group use the parent instead, which has the same ranks and does not block.
    if (group->handle_stored_by_nccl_thread && group->ranks == splitting->parent->ranks) {
      group->splitter = splitting->parent;
    }
    splitting->group = group;
  }
  splitting->split = std::move(split);
  MESHIFT_RETURN_IF_ERROR(
      RunAside("ncclCommSplit", *parent, [this, splitting] { return MakeChild(*splitting); }));
  return existing != nullptr ? existing : splitting->group;
}

absl::Status NcclContext::MakeChild(Splitting& splitting) {
  NcclGroup& parent = *splitting.parent;
  const std::shared_ptr<NcclGroup>& group = splitting.group;
  ncclConfig_t& config = splitting.split.config;
  config.blocking = options_.blocking_groups ? 1 : 0;
  if (group != nullptr && !group->name.empty()) config.commName = group->name.c_str();
  if (!splitting.split.net_name.empty()) config.netName = splitting.split.net_name.c_str();
  ncclComm_t* const made = group != nullptr ? groups_->Make(group) : &splitting.none;
  absl::StatusOr<NcclResult> result = Call(parent, /*makes=*/true, [&]() -> NcclResult {
    return {
        nccl_->CommSplit(parent.comm(), splitting.split.color, splitting.split.key, made, &config),
        "ncclCommSplit"};
  });
  absl::Status status =
      result.ok() ? AwaitComm(parent, *result, std::chrono::nanoseconds(0)) : result.status();
  if (!status.ok()) {
    // The child may exist once NCCL has finished with the split. Adopt it, so that it is aborted.
    const bool through = !result.ok() || result->code != ncclInProgress || !failed_.load() ||
                         (parent.lent && Settle(parent));
    if (group != nullptr && through && !(failed_.load() && group->handle_stored_by_nccl_thread)) {
      groups_->Adopt(*group);
      if (group->comm() == nullptr) groups_->Drop(*group);
    }
    return status;
  }
  if (group == nullptr) return absl::OkStatus();
  if (!groups_->Adopt(*group)) return Error();
  if (group->comm() == nullptr) return Fail(Internal("ncclCommSplit gave no communicator"));
  MESHIFT_RETURN_IF_ERROR(
      AwaitComm(*group, {ncclInProgress, "ncclCommSplit"}, std::chrono::nanoseconds(0)));
  MESHIFT_RETURN_IF_ERROR(AllocateBarrierMemory(*group));
  return group->blocking ? Connect(group) : absl::OkStatus();
}

// NCCL connects members for an algorithm at its first call, so this makes a small all-reduce and a
// small all-gather. Other algorithms connect at their first call; messages, each with its peer.
absl::Status NcclContext::Connect(const std::shared_ptr<NcclGroup>& group) {
  void* const barrier = reinterpret_cast<void*>(group->barrier_memory);
  int32_t* const all = reinterpret_cast<int32_t*>(group->barrier_memory) + 1;
  MESHIFT_RETURN_IF_ERROR(LaunchNext(group, {CollectiveKind::kAllReduce, 1, DType::kI32},
                                     Purpose::kConnect, utility_, [&]() -> NcclResult {
                                       return {
                                           nccl_->AllReduce(barrier, barrier, 1, ncclInt32, ncclSum,
                                                            group->comm(), utility_->handle),
                                           "ncclAllReduce"};
                                     }));
  MESHIFT_RETURN_IF_ERROR(LaunchNext(group, {CollectiveKind::kAllGather, 1, DType::kI32},
                                     Purpose::kConnect, utility_, [&]() -> NcclResult {
                                       return {
                                           nccl_->AllGather(all + group->member, all, 1, ncclInt32,
                                                            group->comm(), utility_->handle),
                                           "ncclAllGather"};
                                     }));
  return AwaitLaunch(launches_->last());
}

absl::StatusOr<ncclWindow_t> NcclContext::RegisterWindow(const std::shared_ptr<NcclGroup>& group,
                                                         void* memory, int64_t bytes) {
  MESHIFT_RETURN_IF_ERROR(AwaitLast(*group));
  const CudaDevice::Scope scope(*device_);
  const MutexLock lock(mutex_);
  MESHIFT_RETURN_IF_ERROR(Health());
  const auto window = std::make_shared<ncclWindow_t>(nullptr);
  const absl::Status status =
      RunAside("ncclCommWindowRegister", *group, [=, this]() -> absl::Status {
        MESHIFT_ASSIGN_OR_RETURN(
            const NcclResult result, Call(*group, /*makes=*/true, [&]() -> NcclResult {
              return {nccl_->CommWindowRegister(group->comm(), memory, static_cast<size_t>(bytes),
                                                window.get(), NCCL_WIN_COLL_SYMMETRIC),
                      "ncclCommWindowRegister"};
            }));
        return AwaitComm(*group, result, std::chrono::nanoseconds(0));
      });
  if (!status.ok()) {
    // NCCL may still write to it, so it is leaked.
    static_cast<void>(new std::shared_ptr<ncclWindow_t>(window));
    return status;
  }
  return *window;
}

bool NcclContext::DropWindow(NcclGroup& group, ncclWindow_t window) {
  if (!AwaitAll().ok()) return false;
  const CudaDevice::Scope scope(*device_);
  const MutexLock lock(mutex_);
  if (failed_.load() || group.comm() == nullptr) return false;
  // NCCL gives a null window if it does not support symmetric memory for this group.
  if (window == nullptr) return true;
  const absl::StatusOr<NcclResult> result = Call(group, /*makes=*/true, [&]() -> NcclResult {
    return {nccl_->CommWindowDeregister(group.comm(), window), "ncclCommWindowDeregister"};
  });
  return result.ok() && AwaitComm(group, *result, timeouts_.Get().setup).ok();
}

}  // namespace meshift
