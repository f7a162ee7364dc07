#include "comm/nccl/job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

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
#include "base/status_macros.h"
#include "comm/control/control.h"
#include "comm/nccl/device.h"
#include "comm/nccl/ending_thread.h"
#include "comm/nccl/job_lock.h"
#include "comm/nccl/nccl_library.h"
#include "comm/nccl/pause.h"

namespace meshift {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// How long NCCL is waited for when all is over, before its threads are left to the process.
constexpr nanoseconds kPatience = std::chrono::seconds(2);

// Bad arguments, after which nothing has happened. A non-blocking communicator may keep even these
// as its error, and cannot be used any more then.
bool MayBeHarmless(const absl::Status& status) {
  return status.code() == absl::StatusCode::kInvalidArgument ||
         status.code() == absl::StatusCode::kFailedPrecondition;
}

// The result of a call that makes, or ends, something of a communicator. From a non-blocking one
// NCCL may return success and go on all the same (github.com/NVIDIA/nccl, issue 1472): its state
// is asked.
NcclResult MayGoOn(NcclResult result) {
  if (result.code == ncclSuccess) result.code = ncclInProgress;
  return result;
}

}  // namespace

std::string NcclGroup::ToString() const {
  return fmt::format("group {{{}}}", fmt::join(ranks, ","));
}

NcclJob::NcclJob(std::shared_ptr<const NcclLibrary> nccl, std::shared_ptr<CudaDevice> device,
                 int64_t rank, const NcclJobOptions& options)
    : nccl_(std::move(nccl)), device_(std::move(device)), rank_(rank), options_(options) {}

NcclJob::~NcclJob() {
  const CudaDevice::Scope scope(*device_);
  for (const LaunchRecord& launch : recent_) {
    if (launch.event != nullptr) device_->GiveEvent(launch.event, /*timed=*/false);
  }
  for (const std::shared_ptr<NcclGroup>& group : groups_) Forget(*group);
  if (failed_.load()) device_->AbandonUtility();
  if (unsettled_.load()) device_->Leave();
}

absl::Status NcclJob::Join(ControlChannel* control, absl::Span<const int64_t> ranks) {
  MESHIFT_ASSIGN_OR_RETURN(std::unique_ptr<ControlRoot> root,
                           control->Join(ranks, [this](const absl::Status& error) {
                             Fail(error, /*told=*/true).IgnoreError();
                           }));
  const MutexLock lock(error_mutex_);
  root_ = std::move(root);
  return absl::OkStatus();
}

absl::Status NcclJob::Error() const {
  const MutexLock lock(error_mutex_);
  return error_;
}

absl::Status NcclJob::SetError(const absl::Status& error, bool told) {
  ControlRoot* root = nullptr;
  {
    const MutexLock lock(error_mutex_);
    if (!error_.ok()) return error_;
    error_ = error;
    root = root_.get();
    failed_.store(true);
  }
  if (root != nullptr && !told) root->Fail(error);
  return error;
}

absl::Status NcclJob::Fail(const absl::Status& error, bool told) {
  absl::Status first = SetError(error, told);
  TryEndGroups();
  return first;
}

void NcclJob::TryEndGroups() {
  if (!failed_.load()) return;
  const CudaDevice::Scope scope(*device_);
  const MutexTryLock lock(mutex_);
  if (lock.held()) EndGroups();
}

void NcclJob::EndGroups() {
  if (ended_) return;
  ended_ = true;
  std::vector<ncclComm_t> comms;
  std::vector<ncclComm_t> busy;
  for (const std::shared_ptr<NcclGroup>& group : groups_) {
    if (group->comm == nullptr || group->lent) continue;
    // The abort of one that is not through with a call waits for that call, which kernels of
    // another may hold up: these are stopped first.
    ncclResult_t state = ncclSuccess;
    nccl_->CommGetAsyncError(group->comm, &state);
    (state == ncclInProgress ? busy : comms).push_back(std::exchange(group->comm, nullptr));
  }
  comms.insert(comms.end(), busy.begin(), busy.end());
  if (comms.empty()) return;
  // A communicator that is being made is written to its group.
  aborting_ =
      EndingThread::Abort(nccl_, device_, std::move(comms),
                          std::vector<std::shared_ptr<void>>(groups_.begin(), groups_.end()));
}

absl::Status NcclJob::AwaitComm(ncclComm_t comm, const NcclResult& result, nanoseconds timeout,
                                const NcclGroup& group) {
  ncclResult_t state = result.code;
  for (Pause pause; state == ncclInProgress; pause.Next()) {
    if (failed_.load()) return Error();
    if (pause.elapsed() > timeout) {
      return SetError(absl::DeadlineExceededError(fmt::format(
                          "rank {}: {} of {} has not ended within {} ms", rank_, result.function,
                          group.ToString(), timeout / milliseconds(1))),
                      /*told=*/false);
    }
    const ncclResult_t query = nccl_->CommGetAsyncError(comm, &state);
    if (query != ncclSuccess) state = query;
  }
  if (state == ncclSuccess) [[likely]] {
    return absl::OkStatus();
  }
  absl::Status status = Annotate(nccl_->Check(state, result.function, comm), group.ToString());
  if (MayBeHarmless(status)) {
    ncclResult_t kept = ncclSuccess;
    if (comm == nullptr) return status;
    if (nccl_->CommGetAsyncError(comm, &kept) == ncclSuccess && kept == ncclSuccess) return status;
  }
  return SetError(status, /*told=*/false);
}

absl::Status NcclJob::MakeWord(NcclGroup& group) {
  const CudaDevice::Scope scope(*device_);
  MESHIFT_ASSIGN_OR_RETURN(group.word, device_->Allocate(sizeof(int32_t)));
  MESHIFT_RETURN_IF_ERROR(
      device_->driver().MemsetD8Async(group.word, 0, sizeof(int32_t), device_->utility()));
  MESHIFT_ASSIGN_OR_RETURN(const CUevent event, device_->TakeEvent(/*timed=*/false));
  absl::Status status = device_->driver().EventRecord(event, device_->utility());
  if (status.ok()) status = Await(event);
  device_->GiveEvent(event, /*timed=*/false);
  return status;
}

absl::StatusOr<std::shared_ptr<NcclGroup>> NcclJob::MakeRoot(
    const char* function, std::vector<int64_t> ranks,
    absl::FunctionRef<ncclResult_t(ncclComm_t* comm)> make) {
  const auto group = std::make_shared<NcclGroup>();
  {
    const Lock lock(*this);
    MESHIFT_RETURN_IF_ERROR(Health());
    groups_.push_back(group);
    group->member =
        static_cast<int>(std::lower_bound(ranks.begin(), ranks.end(), rank_) - ranks.begin());
    group->ranks = std::move(ranks);
    const ncclResult_t result = make(&group->comm);
    MESHIFT_RETURN_IF_ERROR(
        AwaitComm(group->comm, {result, function}, options_.setup_timeout, *group));
  }
  MESHIFT_RETURN_IF_ERROR(MakeWord(*group));
  return group;
}

absl::StatusOr<std::shared_ptr<NcclGroup>> NcclJob::Lend(ncclComm_t comm, bool may_split,
                                                         std::vector<int64_t> ranks, int member) {
  const auto group = std::make_shared<NcclGroup>();
  group->comm = comm;
  group->lent = true;
  group->may_split = may_split;
  group->ranks = std::move(ranks);
  group->member = member;
  MESHIFT_RETURN_IF_ERROR(MakeWord(*group));
  const Lock lock(*this);
  groups_.push_back(group);
  return group;
}

absl::StatusOr<std::shared_ptr<NcclGroup>> NcclJob::Split(NcclGroup& parent, int color, int key,
                                                          ncclConfig_t* config,
                                                          std::vector<int64_t> ranks) {
  MESHIFT_RETURN_IF_ERROR(AwaitLast(parent));
  const auto group = std::make_shared<NcclGroup>();
  {
    const Lock lock(*this);
    MESHIFT_RETURN_IF_ERROR(Health());
    Sweep();
    groups_.push_back(group);
    group->ranks = std::move(ranks);
    group->member = key;
    const NcclResult result =
        MayGoOn({nccl_->CommSplit(parent.comm, color, key, &group->comm, config), "ncclCommSplit"});
    MESHIFT_RETURN_IF_ERROR(AwaitComm(parent.comm, result, options_.setup_timeout, parent));
    if (color == NCCL_SPLIT_NOCOLOR) {
      groups_.pop_back();
      return nullptr;
    }
    if (group->comm == nullptr) return Internal("ncclCommSplit gave no communicator");
    MESHIFT_RETURN_IF_ERROR(
        AwaitComm(group->comm, {ncclInProgress, "ncclCommSplit"}, options_.setup_timeout, *group));
  }
  MESHIFT_RETURN_IF_ERROR(MakeWord(*group));
  return group;
}

void NcclJob::Finalize(NcclGroup& group) {
  const absl::Status status = nccl_->Check(nccl_->CommFinalize(group.comm), "ncclCommFinalize");
  group.leaving = true;
  if (!status.ok()) SetError(Annotate(status, group.ToString()), /*told=*/false).IgnoreError();
}

bool NcclJob::Sweep() {
  bool more = false;
  std::vector<ncclComm_t> destroyed;
  std::vector<ncclComm_t> aborted;
  std::erase_if(groups_, [&](const std::shared_ptr<NcclGroup>& group) MESHIFT_REQUIRES(mutex_) {
    if (!group->leaving || group->comm == nullptr) return false;
    ncclResult_t state = ncclSuccess;
    if (nccl_->CommGetAsyncError(group->comm, &state) == ncclSuccess && state == ncclInProgress) {
      more = true;
      return false;
    }
    // Whatever became of it, nothing of it is in use any more.
    (state == ncclSuccess ? destroyed : aborted).push_back(std::exchange(group->comm, nullptr));
    Forget(*group);
    return true;
  });
  if (!destroyed.empty()) {
    ending_.push_back(EndingThread::Destroy(nccl_, device_, std::move(destroyed)));
  }
  if (!aborted.empty()) {
    ending_.push_back(EndingThread::Abort(nccl_, device_, std::move(aborted), {}));
  }
  std::erase_if(ending_, [](const auto& ending) { return ending->IsDone(); });
  return more || !ending_.empty();
}

void NcclJob::Forget(NcclGroup& group) {
  if (group.last_event != nullptr) device_->GiveEvent(group.last_event, /*timed=*/false);
  if (group.word != 0) device_->FreeLater(group.word, nullptr);
  group.last_event = nullptr;
  group.word = 0;
  group.last_launch = 0;
}

void NcclJob::Release(NcclGroup& group) {
  const Lock lock(*this);
  if (group.comm == nullptr || group.lent || group.leaving || failed_.load()) return;
  Finalize(group);
  Sweep();
}

absl::StatusOr<ncclWindow_t> NcclJob::RegisterWindow(NcclGroup& group, void* memory,
                                                     int64_t bytes) {
  MESHIFT_RETURN_IF_ERROR(AwaitLast(group));
  const Lock lock(*this);
  MESHIFT_RETURN_IF_ERROR(Health());
  // NCCL may write to it for as long as it is not through.
  auto window = std::make_unique<ncclWindow_t>(nullptr);
  const NcclResult result =
      MayGoOn({nccl_->CommWindowRegister(group.comm, memory, static_cast<size_t>(bytes),
                                         window.get(), NCCL_WIN_COLL_SYMMETRIC),
               "ncclCommWindowRegister"});
  const absl::Status status = AwaitComm(group.comm, result, options_.setup_timeout, group);
  if (!status.ok()) {
    static_cast<void>(window.release());
    return status;
  }
  return *window;
}

bool NcclJob::DropWindow(NcclGroup& group, ncclWindow_t window) {
  if (!AwaitAll().ok()) return false;
  const Lock lock(*this);
  if (failed_.load() || group.comm == nullptr) return false;
  // Where NCCL has no symmetric memory for this group there may be no window.
  if (window == nullptr) return true;
  const NcclResult result =
      MayGoOn({nccl_->CommWindowDeregister(group.comm, window), "ncclCommWindowDeregister"});
  return AwaitComm(group.comm, result, options_.setup_timeout, group).ok();
}

void NcclJob::Close() {
  {
    const Lock lock(*this);
    for (const std::shared_ptr<NcclGroup>& group : groups_) {
      if (failed_.load()) break;
      if (group->comm != nullptr && !group->lent && !group->leaving) Finalize(*group);
    }
    for (Pause pause; !failed_.load() && Sweep(); pause.Next()) {
      if (pause.elapsed() <= options_.setup_timeout) continue;
      SetError(absl::DeadlineExceededError(
                   fmt::format("rank {}: its communicators have not ended within {} ms", rank_,
                               options_.setup_timeout / milliseconds(1))),
               /*told=*/false)
          .IgnoreError();
    }
  }
  std::unique_ptr<ControlRoot> root;
  {
    const MutexLock lock(error_mutex_);
    root.swap(root_);
  }
  root = nullptr;
  std::vector<std::unique_ptr<EndingThread>> ending;
  {
    const MutexLock lock(mutex_);
    ending.swap(ending_);
    if (aborting_ != nullptr) ending.push_back(std::move(aborting_));
  }
  const auto until = std::chrono::steady_clock::now() + kPatience;
  for (const std::unique_ptr<EndingThread>& one : ending) {
    one->Await(std::max<nanoseconds>(until - std::chrono::steady_clock::now(), nanoseconds(0)));
  }
}

}  // namespace meshift
