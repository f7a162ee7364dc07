#include "comm/nccl/groups.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "base/status.h"
#include "comm/nccl/nccl_library.h"
#include "comm/nccl/side_thread.h"

namespace meshift {
namespace {

// How long an abort waits for calls inside NCCL to return by themselves. A call that does not wait
// for a peer takes some microseconds.
constexpr std::chrono::milliseconds kCallGrace(100);

}  // namespace

std::string NcclGroup::ToString() const {
  return fmt::format("group {{{}}}", fmt::join(ranks, ","));
}

void NcclGroups::Add(const std::shared_ptr<NcclGroup>& group, ncclComm_t comm) {
  group->comm_.store(comm, std::memory_order_release);
  const MutexLock lock(mutex_);
  groups_.push_back(group);
}

ncclComm_t* NcclGroups::Make(const std::shared_ptr<NcclGroup>& group) {
  const MutexLock lock(mutex_);
  group->making_ = true;
  groups_.push_back(group);
  return &group->made_;
}

bool NcclGroups::Adopt(NcclGroup& group) {
  ncclComm_t comm = nullptr;
  {
    const MutexLock lock(mutex_);
    // Atomic, since a thread of NCCL's writes it.
    comm = std::atomic_ref(group.made_).exchange(nullptr, std::memory_order_acq_rel);
    group.making_ = false;
    if (!collected_) {
      group.comm_.store(comm, std::memory_order_release);
      return !ended_;
    }
  }
  // The abort of all communicators has missed this one.
  if (comm != nullptr) AbortTogether({comm});
  return false;
}

void NcclGroups::Drop(const NcclGroup& group) {
  const MutexLock lock(mutex_);
  std::erase_if(groups_, [&](const auto& one) { return one.get() == &group; });
}

std::vector<std::shared_ptr<NcclGroup>> NcclGroups::all() const {
  const MutexLock lock(mutex_);
  return groups_;
}

bool NcclGroups::Begin(NcclGroup& group) {
  const MutexLock lock(mutex_);
  if (ended_ || group.comm() == nullptr) return false;
  ++calling_;
  group.busy_ = true;
  return true;
}

void NcclGroups::End(NcclGroup& group, bool through) {
  const MutexLock lock(mutex_);
  if (through) group.busy_ = false;
  --calling_;
  if (ended_) changed_.notify_all();
}

bool NcclGroups::Ask(NcclGroup& group, ncclResult_t* state) {
  const MutexLock lock(mutex_);
  const ncclComm_t comm = group.comm();
  if (comm == nullptr) return false;
  const ncclResult_t query = nccl_->CommGetAsyncError(comm, state);
  if (query != ncclSuccess) *state = query;
  if (*state != ncclInProgress) group.busy_ = false;
  return true;
}

absl::Status NcclGroups::StatusOf(const NcclGroup& group, ncclResult_t result,
                                  const char* function) const {
  const MutexLock lock(mutex_);
  return Annotate(nccl_->Check(result, function, group.comm()), group.ToString());
}

absl::Status NcclGroups::AsyncErrors() {
  const MutexLock lock(mutex_);
  if (ended_) return absl::OkStatus();
  for (const std::shared_ptr<NcclGroup>& group : groups_) {
    const ncclComm_t comm = group->comm();
    if (comm == nullptr || group->lent || (group->busy_ && !group->blocking)) continue;
    ncclResult_t state = ncclSuccess;
    const ncclResult_t query = nccl_->CommGetAsyncError(comm, &state);
    const absl::Status status =
        nccl_->Check(query == ncclSuccess ? state : query, "ncclCommGetAsyncError", comm);
    if (!status.ok()) return Annotate(status, group->ToString());
  }
  return absl::OkStatus();
}

ncclComm_t NcclGroups::Take(NcclGroup& group) {
  const MutexLock lock(mutex_);
  return group.comm_.exchange(nullptr, std::memory_order_acq_rel);
}

void NcclGroups::Abort() {
  const MutexLock lock(mutex_);
  if (ended_) return;
  ended_ = true;
  bool any = false;
  for (const std::shared_ptr<NcclGroup>& group : groups_) any = any || !group->lent;
  collected_ = !any;
  if (!any) return;
  aborting_ = SideThread::Start(device_, [self = shared_from_this()] { return self->AbortAll(); });
}

bool NcclGroups::AwaitAbort(std::chrono::nanoseconds patience) {
  Abort();
  std::shared_ptr<SideThread> aborting;
  {
    const MutexLock lock(mutex_);
    aborting = aborting_;
  }
  return aborting != nullptr && aborting->Await(patience);
}

bool NcclGroups::AbortTogether(const std::vector<ncclComm_t>& comms) const {
  if (comms.empty()) return true;
  bool aborted = nccl_->GroupStart() == ncclSuccess;
  for (const ncclComm_t comm : comms) aborted = nccl_->CommAbort(comm) == ncclSuccess && aborted;
  return nccl_->GroupEnd() == ncclSuccess && aborted;
}

bool NcclGroups::AbortAll() {
  std::vector<ncclComm_t> comms;
  std::vector<ncclComm_t> busy;
  {
    MutexLock lock(mutex_);
    lock.WaitFor(changed_, kCallGrace, [&]() MESHIFT_REQUIRES(mutex_) { return calling_ == 0; });
    for (const std::shared_ptr<NcclGroup>& group : groups_) {
      if (group->lent) continue;
      const ncclComm_t comm = group->comm_.exchange(nullptr, std::memory_order_acq_rel);
      // The abort of a communicator with an unfinished call waits for that call. Kernels of other
      // communicators may delay it, so those are aborted first.
      if (comm != nullptr) (group->busy_ ? busy : comms).push_back(comm);
    }
    collected_ = true;
  }
  comms.insert(comms.end(), busy.begin(), busy.end());
  const bool aborted = AbortTogether(comms);
  // If the abort succeeded, NCCL does not store handles of their children any more.
  std::vector<ncclComm_t> children;
  if (aborted) {
    const MutexLock lock(mutex_);
    for (const std::shared_ptr<NcclGroup>& group : groups_) {
      if (!group->making_ || !group->handle_stored_by_nccl_thread) continue;
      const ncclComm_t child =
          std::atomic_ref(group->made_).exchange(nullptr, std::memory_order_acq_rel);
      if (child != nullptr) children.push_back(child);
    }
  } else {
    // NCCL may write to the groups at any time, so they are leaked.
    const MutexLock lock(mutex_);
    static_cast<void>(new std::vector<std::shared_ptr<NcclGroup>>(groups_));
  }
  return AbortTogether(children) && aborted;
}

}  // namespace meshift
