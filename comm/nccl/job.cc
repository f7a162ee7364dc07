#include "comm/nccl/job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "base/status.h"
#include "base/status_macros.h"
#include "comm/control/control.h"
#include "comm/nccl/abort_thread.h"
#include "comm/nccl/device.h"
#include "comm/nccl/nccl_library.h"

namespace meshift {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// How long aborted work may take to leave the device before its rank goes on without it.
constexpr nanoseconds kGrace = milliseconds(300);

// Waits between two looks at something: first not at all, then ever longer.
class Pause {
 public:
  nanoseconds elapsed() const { return Clock::now() - start_; }
  // True once in a while: time for the dearer looks.
  bool IsTime() const { return tries_ % 16 == 15; }
  void Next() {
    if (++tries_ <= 64) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(tries_ < 256 ? microseconds(20) : microseconds(100));
    }
  }

 private:
  const Clock::time_point start_ = Clock::now();
  int64_t tries_ = 0;
};

int64_t Milliseconds(nanoseconds time) { return time / milliseconds(1); }

// After which nothing has happened, and the communicator can be used.
bool IsHarmless(const absl::Status& status) {
  return status.code() == absl::StatusCode::kInvalidArgument ||
         status.code() == absl::StatusCode::kFailedPrecondition;
}

}  // namespace

std::string NcclGroup::ToString() const {
  return fmt::format("group {{{}}}", fmt::join(ranks, ","));
}

class MESHIFT_THREAD_ANNOTATION_(scoped_lockable) NcclJob::Lock {
 public:
  explicit Lock(NcclJob& job) MESHIFT_THREAD_ANNOTATION_(acquire_capability(job.mutex_))
      : job_(job), scope_(*job.device_) {
    lock_.emplace(job.mutex_);
  }
  ~Lock() MESHIFT_THREAD_ANNOTATION_(release_capability()) {
    if (job_.failed_.load()) job_.EndGroups();
    lock_.reset();
    // Who failed just now found the lock held, and left the end to its holder.
    job_.TryEndGroups();
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  NcclJob& job_;
  const Device::Scope scope_;
  std::optional<MutexLock> lock_;
};

NcclJob::NcclJob(std::shared_ptr<const NcclLibrary> nccl, std::shared_ptr<Device> device,
                 int64_t rank, const NcclJobOptions& options)
    : nccl_(std::move(nccl)), device_(std::move(device)), rank_(rank), options_(options) {}

NcclJob::~NcclJob() {
  const Device::Scope scope(*device_);
  for (const LaunchRecord& launch : recent_) {
    if (launch.event != nullptr) device_->GiveEvent(launch.event, /*timed=*/false);
  }
  for (const std::shared_ptr<NcclGroup>& group : groups_) Forget(*group);
  if (failed_.load()) device_->AbandonUtility();
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
  const Device::Scope scope(*device_);
  const MutexTryLock lock(mutex_);
  if (lock.held()) EndGroups();
}

void NcclJob::EndGroups() {
  if (ended_) return;
  ended_ = true;
  std::vector<ncclComm_t> comms;
  for (const std::shared_ptr<NcclGroup>& group : groups_) {
    if (group->comm == nullptr || group->lent) continue;
    comms.push_back(std::exchange(group->comm, nullptr));
  }
  if (comms.empty()) return;
  // A communicator that is being made is written to its group.
  aborting_ = std::make_unique<AbortThread>(
      nccl_, device_, std::move(comms),
      std::vector<std::shared_ptr<void>>(groups_.begin(), groups_.end()));
}

absl::Status NcclJob::AwaitComm(ncclComm_t comm, const NcclResult& result, nanoseconds timeout,
                                const NcclGroup& group) {
  ncclResult_t state = result.code;
  for (Pause pause; state == ncclInProgress; pause.Next()) {
    if (failed_.load()) return Error();
    if (pause.elapsed() > timeout) {
      return SetError(absl::DeadlineExceededError(
                          fmt::format("rank {}: {} of {} has not ended within {} ms", rank_,
                                      result.function, group.ToString(), Milliseconds(timeout))),
                      /*told=*/false);
    }
    const ncclResult_t query = nccl_->CommGetAsyncError(comm, &state);
    if (query != ncclSuccess) state = query;
  }
  if (state == ncclSuccess) [[likely]] {
    return absl::OkStatus();
  }
  const absl::Status status =
      Annotate(nccl_->Check(state, result.function, comm), group.ToString());
  return IsHarmless(status) ? status : SetError(status, /*told=*/false);
}

absl::Status NcclJob::MakeWord(NcclGroup& group) {
  const Device::Scope scope(*device_);
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
    const NcclResult result{nccl_->CommSplit(parent.comm, color, key, &group->comm, config),
                            "ncclCommSplit"};
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
  std::erase_if(groups_, [&](const std::shared_ptr<NcclGroup>& group) MESHIFT_REQUIRES(mutex_) {
    if (!group->leaving || group->comm == nullptr) return false;
    ncclResult_t state = ncclSuccess;
    if (nccl_->CommGetAsyncError(group->comm, &state) == ncclSuccess && state == ncclInProgress) {
      more = true;
      return false;
    }
    // Whatever became of it, nothing of it is in use any more.
    state == ncclSuccess ? nccl_->CommDestroy(group->comm) : nccl_->CommAbort(group->comm);
    group->comm = nullptr;
    Forget(*group);
    return true;
  });
  return more;
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
  const NcclResult result{nccl_->CommWindowRegister(group.comm, memory, static_cast<size_t>(bytes),
                                                    window.get(), NCCL_WIN_COLL_SYMMETRIC),
                          "ncclCommWindowRegister"};
  const absl::Status status = AwaitComm(group.comm, result, options_.setup_timeout, group);
  if (!status.ok()) {
    static_cast<void>(window.release());
    return status;
  }
  return *window;
}

bool NcclJob::DropWindow(NcclGroup& group, ncclWindow_t window) {
  if (!AwaitLast(group).ok()) return false;
  const Lock lock(*this);
  if (failed_.load() || group.comm == nullptr) return false;
  // Where NCCL has no symmetric memory for this group there may be no window.
  if (window == nullptr) return true;
  const NcclResult result{nccl_->CommWindowDeregister(group.comm, window),
                          "ncclCommWindowDeregister"};
  return AwaitComm(group.comm, result, options_.setup_timeout, group).ok();
}

absl::Status NcclJob::Launch(const std::shared_ptr<NcclGroup>& group, const CallText& text,
                             const std::shared_ptr<DeviceStream>& stream,
                             absl::FunctionRef<NcclResult()> issue) {
  const Lock lock(*this);
  MESHIFT_RETURN_IF_ERROR(Health());
  MESHIFT_ASSIGN_OR_RETURN(const uint64_t capture, device_->CaptureOf(stream->handle));
  MESHIFT_RETURN_IF_ERROR(Order(*stream, capture));
  MESHIFT_RETURN_IF_ERROR(AwaitComm(group->comm, issue(), options_.timeout, *group));
  if (capture == 0) return Remember(group, text, stream);
  captured_.push_back(stream);
  if (captured_.size() > static_cast<size_t>(options_.max_in_flight)) {
    captured_.erase(captured_.begin());
  }
  return absl::OkStatus();
}

absl::Status NcclJob::Order(const DeviceStream& stream, uint64_t capture) {
  const auto back = static_cast<uint64_t>(options_.max_in_flight);
  if (capture == 0) {
    const uint64_t number = launches_ + 1;
    if (number <= back) return absl::OkStatus();
    const LaunchRecord& before = recent_[(number - back) % kRemembered];
    if (before.stream->handle == stream.handle) return absl::OkStatus();
    return device_->driver().StreamWaitEvent(stream.handle, before.event, 0);
  }
  // Nothing in a graph can wait for what was launched outside of it.
  if (std::exchange(capture_, capture) != capture) captured_.clear();
  if (captured_.size() < back) return absl::OkStatus();
  return ChainCaptured(*captured_.front(), stream.handle, capture);
}

absl::Status NcclJob::ChainCaptured(const DeviceStream& before, CUstream stream, uint64_t capture) {
  if (before.handle == stream || !before.alive.load()) return absl::OkStatus();
  MESHIFT_ASSIGN_OR_RETURN(const uint64_t other, device_->CaptureOf(before.handle));
  if (other != capture) return absl::OkStatus();
  MESHIFT_ASSIGN_OR_RETURN(const CUevent event, device_->TakeEvent(/*timed=*/false));
  absl::Status status = device_->driver().EventRecord(event, before.handle);
  if (status.ok()) status = device_->driver().StreamWaitEvent(stream, event, 0);
  device_->GiveEvent(event, /*timed=*/false);
  return status;
}

absl::Status NcclJob::Remember(const std::shared_ptr<NcclGroup>& group, const CallText& text,
                               const std::shared_ptr<DeviceStream>& stream) {
  LaunchRecord& record = recent_[++launches_ % kRemembered];
  if (record.number != 0 && record.group->last_launch == record.number) {
    std::swap(record.event, record.group->last_event);
  }
  if (record.event == nullptr) {
    MESHIFT_ASSIGN_OR_RETURN(record.event, device_->TakeEvent(/*timed=*/false));
  }
  record.number = launches_;
  record.group = group;
  record.call = group->calls++;
  record.text = text;
  record.stream = stream;
  group->last_launch = launches_;
  return device_->driver().EventRecord(record.event, stream->handle);
}

absl::Status NcclJob::AwaitLast(NcclGroup& group) {
  CUevent event = nullptr;
  {
    const Lock lock(*this);
    if (group.last_launch == 0) return absl::OkStatus();
    const LaunchRecord& record = recent_[group.last_launch % kRemembered];
    event = record.number == group.last_launch ? record.event : group.last_event;
  }
  return Await(event);
}

absl::Status NcclJob::AsyncErrors() {
  for (const std::shared_ptr<NcclGroup>& group : groups_) {
    if (group->comm == nullptr) continue;
    ncclResult_t state = ncclSuccess;
    const ncclResult_t query = nccl_->CommGetAsyncError(group->comm, &state);
    const absl::Status status =
        nccl_->Check(query == ncclSuccess ? state : query, "ncclCommGetAsyncError", group->comm);
    if (!status.ok()) return Annotate(status, group->ToString());
  }
  return absl::OkStatus();
}

std::string NcclJob::FirstUnfinished() {
  const MutexTryLock lock(mutex_);
  if (!lock.held()) return "its work";
  const uint64_t first = launches_ < kRemembered ? 1 : launches_ - kRemembered + 1;
  for (uint64_t number = first; number <= launches_; ++number) {
    const LaunchRecord& record = recent_[number % kRemembered];
    const absl::StatusOr<bool> done = device_->IsReached(record.event);
    if (done.ok() && *done) continue;
    return fmt::format("call {} of {}, {} of {} {},", record.call, record.group->ToString(),
                       record.text.name, record.text.count, Name(record.text.dtype));
  }
  return "its work";
}

absl::Status NcclJob::Await(CUevent event) {
  const Device::Scope scope(*device_);
  std::optional<Clock::time_point> failed_since;
  for (Pause pause;; pause.Next()) {
    const absl::StatusOr<bool> done = device_->IsReached(event);
    if (!done.ok()) return Fail(done.status());
    if (*done) return Health();
    if (failed_.load()) {
      const Clock::time_point now = Clock::now();
      if (!failed_since) failed_since = now;
      // The groups may not be ended yet, and lent ones are not: their work may never end.
      TryEndGroups();
      if (now - *failed_since > kGrace) {
        device_->Abandon(event);
        return Error();
      }
    } else if (pause.elapsed() > options_.timeout) {
      Fail(absl::DeadlineExceededError(fmt::format("rank {}: {} has not ended within {} ms", rank_,
                                                   FirstUnfinished(),
                                                   Milliseconds(options_.timeout))))
          .IgnoreError();
    } else if (pause.IsTime()) {
      absl::Status status;
      {
        const MutexTryLock lock(mutex_);
        if (lock.held()) status = AsyncErrors();
      }
      if (!status.ok()) Fail(status).IgnoreError();
    }
  }
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
                               Milliseconds(options_.setup_timeout))),
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
  std::unique_ptr<AbortThread> aborting;
  {
    const MutexLock lock(mutex_);
    aborting.swap(aborting_);
  }
}

}  // namespace meshift
