// Of a job: its launches, their order, and waiting for them.
#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "base/status.h"
#include "base/status_macros.h"
#include "comm/nccl/device.h"
#include "comm/nccl/job.h"
#include "comm/nccl/job_lock.h"
#include "comm/nccl/nccl_library.h"
#include "comm/nccl/pause.h"
#include "placement/dtype.h"

namespace meshift {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// How long aborted work may take to leave the device, and NCCL to be through with a launch, before
// the rank goes on without. NCCL's abort also waits for a thread that looks up every half second.
constexpr nanoseconds kGrace = milliseconds(300);
constexpr nanoseconds kSettleGrace = milliseconds(700);

}  // namespace

absl::Status NcclJob::Launch(const std::shared_ptr<NcclGroup>& group, const CallText& text,
                             const std::shared_ptr<DeviceStream>& stream,
                             absl::FunctionRef<NcclResult()> issue) {
  const Lock lock(*this);
  MESHIFT_RETURN_IF_ERROR(Health());
  MESHIFT_ASSIGN_OR_RETURN(const uint64_t capture, device_->CaptureOf(stream->handle));
  MESHIFT_RETURN_IF_ERROR(Order(*stream, capture));
  absl::Status launched = AwaitComm(group->comm, issue(), options_.timeout, *group);
  if (!launched.ok()) {
    if (failed_.load()) Settle(*group);
    return launched;
  }
  if (capture == 0) return Remember(group, text, stream);
  captured_.push_back(stream);
  if (captured_.size() > static_cast<size_t>(options_.max_in_flight)) {
    captured_.erase(captured_.begin());
  }
  return absl::OkStatus();
}

void NcclJob::Settle(const NcclGroup& group) {
  EndGroups();
  if (!group.lent) {
    if (aborting_ != nullptr && aborting_->Await(kSettleGrace)) return;
  } else {
    // Nobody here may abort it.
    for (Pause pause; pause.elapsed() < kSettleGrace; pause.Next()) {
      ncclResult_t state = ncclInProgress;
      const ncclResult_t query = nccl_->CommGetAsyncError(group.comm, &state);
      if (query == ncclSuccess && state == ncclSuccess) return;
    }
  }
  unsettled_.store(true, std::memory_order_release);
}

absl::Status NcclJob::Order(const DeviceStream& stream, uint64_t capture) {
  const auto back = static_cast<uint64_t>(options_.max_in_flight);
  if (capture == 0) {
    const uint64_t number = launches_ + 1;
    if (number <= back) return absl::OkStatus();
    const LaunchRecord& before = recent_[(number - back) % kRemembered];
    if (IsSame(*before.stream, stream)) return absl::OkStatus();
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

absl::Status NcclJob::AwaitAll() {
  std::vector<std::shared_ptr<NcclGroup>> groups;
  {
    const Lock lock(*this);
    groups = groups_;
  }
  for (const std::shared_ptr<NcclGroup>& group : groups) {
    MESHIFT_RETURN_IF_ERROR(AwaitLast(*group));
  }
  return absl::OkStatus();
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
  const CudaDevice::Scope scope(*device_);
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
                                                   options_.timeout / milliseconds(1))))
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

}  // namespace meshift
