// Implements the methods of NcclContext (context.h) that order launches and wait for them. A launch
// has no time-out here: the watchdog fails the context. After a failure, each wait for the device
// takes at most kGrace. A thread inside NCCL's call waits until that returns; if the call has
// returned but NCCL still works on the launch, it waits at most kSettleGrace for the abort.
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "comm/nccl/backoff.h"
#include "comm/nccl/context.h"
#include "comm/nccl/device.h"
#include "comm/nccl/groups.h"
#include "comm/nccl/launches.h"
#include "comm/nccl/nccl_library.h"
#include "comm/nccl/shutdown_times.h"
#include "comm/nccl/trace_range.h"
#include "meshift/dtype.h"
#include "meshift/status.h"

namespace meshift {
namespace {

using Clock = std::chrono::steady_clock;

// Calls of more bytes count as another kind: NCCL may use another algorithm, which connects first.
constexpr int64_t kSmallBytes = 64 << 10;

// The call's bit in NcclGroup::kinds.
uint32_t KindBit(const LaunchText& text) {
  const bool large = Bytes(text.dtype, text.count) > kSmallBytes;
  // A barrier is an all-reduce of one element.
  const CollectiveKind kind =
      text.kind == CollectiveKind::kBarrier ? CollectiveKind::kAllReduce : text.kind;
  return 1U << (2 * static_cast<unsigned>(kind) + (large ? 1 : 0));
}

}  // namespace

absl::Status NcclContext::Launch(const std::shared_ptr<NcclGroup>& group, const LaunchText& text,
                                 const std::shared_ptr<DeviceStream>& stream,
                                 absl::FunctionRef<NcclResult()> issue) {
  const CudaDevice::Scope scope(*device_);
  const MutexLock lock(mutex_);
  return LaunchNext(group, text, Purpose::kCall, stream, issue);
}

absl::Status NcclContext::LaunchNext(const std::shared_ptr<NcclGroup>& group,
                                     const LaunchText& text, Purpose purpose,
                                     const std::shared_ptr<DeviceStream>& stream,
                                     absl::FunctionRef<NcclResult()> issue) {
  MESHIFT_RETURN_IF_ERROR(Health());
  const TraceRange range(group->name.empty() ? "meshift" : group->name.c_str());
  MESHIFT_ASSIGN_OR_RETURN(const uint64_t capture, device_->CaptureOf(stream->handle));
  if (capture != 0) MESHIFT_RETURN_IF_ERROR(ChainInCapture(stream, capture));
  const uint32_t kind = KindBit(text);
  const bool setup = purpose == Purpose::kConnect || (group->kinds & kind) == 0;
  MESHIFT_RETURN_IF_ERROR(launches_->Open(group, text, setup, stream, capture));
  absl::StatusOr<NcclResult> result = Call(*group, /*makes=*/false, issue);
  // No time-out here: the watchdog ends it.
  absl::Status launched =
      result.ok() ? AwaitComm(*group, *result, std::chrono::nanoseconds(0)) : result.status();
  if (!launched.ok()) {
    launches_->Drop();
    const bool going_on = result.ok() && result->code == ncclInProgress;
    if (going_on && failed_.load() && !Settle(*group)) {
      unsettled_.store(true, std::memory_order_release);
    }
    return launched;
  }
  group->kinds |= kind;
  MESHIFT_RETURN_IF_ERROR(launches_->Close());
  if (capture == 0) {
    group->last_launch = launches_->last();
    if (purpose == Purpose::kCall) ++group->calls;
    return absl::OkStatus();
  }
  captured_.push_back(stream);
  if (captured_.size() > static_cast<size_t>(options_.max_in_flight)) {
    captured_.erase(captured_.begin());
  }
  return absl::OkStatus();
}

absl::Status NcclContext::ChainInCapture(const std::shared_ptr<DeviceStream>& stream,
                                         uint64_t capture) {
  // Work in a graph cannot wait for launches outside of it.
  if (std::exchange(capture_, capture) != capture) captured_.clear();
  if (captured_.size() < static_cast<size_t>(options_.max_in_flight)) return absl::OkStatus();
  return ChainCaptured(*captured_.front(), stream->handle, capture);
}

absl::Status NcclContext::ChainCaptured(const DeviceStream& before, CUstream stream,
                                        uint64_t capture) {
  if (before.handle == stream || !before.alive.load()) return absl::OkStatus();
  MESHIFT_ASSIGN_OR_RETURN(const uint64_t other, device_->CaptureOf(before.handle));
  if (other != capture) return absl::OkStatus();
  MESHIFT_ASSIGN_OR_RETURN(const CUevent event, device_->TakeEvent(/*timed=*/false));
  absl::Status status = device_->driver().EventRecord(event, before.handle);
  if (status.ok()) status = device_->driver().StreamWaitEvent(stream, event, 0);
  device_->GiveEvent(event, /*timed=*/false);
  return status;
}

absl::Status NcclContext::AwaitUntil(absl::FunctionRef<absl::StatusOr<bool>()> done,
                                     absl::FunctionRef<CUevent()> abandoned) {
  const CudaDevice::Scope scope(*device_);
  std::optional<Clock::time_point> failed_since;
  for (Backoff pause;; pause.Next()) {
    const absl::StatusOr<bool> is_done = done();
    if (!is_done.ok()) return Fail(is_done.status());
    if (*is_done) return Health();
    if (!failed_.load()) continue;
    const Clock::time_point now = Clock::now();
    if (!failed_since) failed_since = now;
    // The abort may not have finished, and lent groups are not aborted: their work may never end.
    if (now - *failed_since <= kGrace) continue;
    if (const CUevent event = abandoned(); event != nullptr) device_->Abandon(event);
    return Error();
  }
}

absl::Status NcclContext::Await(CUevent event) {
  return AwaitUntil([&] { return device_->IsReached(event); }, [&] { return event; });
}

absl::Status NcclContext::AwaitLaunch(uint64_t number) {
  return AwaitUntil([&] { return launches_->IsDone(number); },
                    [&] { return launches_->EventOf(number); });
}

absl::Status NcclContext::AwaitLast(NcclGroup& group) {
  uint64_t last = 0;
  {
    const MutexLock lock(mutex_);
    last = group.last_launch;
  }
  return last == 0 ? Health() : AwaitLaunch(last);
}

absl::Status NcclContext::AwaitAll() {
  for (const std::shared_ptr<NcclGroup>& group : groups_->all()) {
    MESHIFT_RETURN_IF_ERROR(AwaitLast(*group));
  }
  return absl::OkStatus();
}

}  // namespace meshift
