#include "comm/nccl/launches.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "comm/nccl/device.h"
#include "comm/nccl/groups.h"
#include "meshift/status.h"

namespace meshift {
namespace {

int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Launches>> Launches::Create(std::shared_ptr<CudaDevice> device,
                                                           int in_flight) {
  auto launches = std::unique_ptr<Launches>(new Launches(std::move(device), in_flight));
  MESHIFT_RETURN_IF_ERROR(launches->AddRecords(kFirstCapacity));
  return launches;
}

absl::Status Launches::AddRecords(uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    auto record = std::make_unique<Record>();
    MESHIFT_ASSIGN_OR_RETURN(record->before, device_->TakeEvent(/*timed=*/false));
    absl::StatusOr<CUevent> after = device_->TakeEvent(/*timed=*/false);
    if (!after.ok()) {
      device_->GiveEvent(record->before, /*timed=*/false);
      return after.status();
    }
    record->after = *after;
    const MutexLock lock(mutex_);
    ring_.push_back(std::move(record));
  }
  return absl::OkStatus();
}

Launches::~Launches() {
  const CudaDevice::Scope scope(*device_);
  const MutexLock lock(mutex_);
  for (uint64_t number = first_; number < next_; ++number) device_->Abandon(At(number).after);
  for (const std::unique_ptr<Record>& record : ring_) {
    device_->GiveEvent(record->before, /*timed=*/false);
    device_->GiveEvent(record->after, /*timed=*/false);
  }
}

absl::StatusOr<bool> Launches::HaveEnded(uint64_t first, uint64_t last) {
  for (uint64_t number = first; number <= last; ++number) {
    MESHIFT_ASSIGN_OR_RETURN(const bool reached, device_->IsReached(At(number).after));
    if (!reached) return false;
  }
  return true;
}

absl::Status Launches::MakeRoom() {
  {
    const MutexLock lock(mutex_);
    if (next_ - first_ < ring_.size()) return absl::OkStatus();
    // Usually the older half has ended. It has if the last in_flight_ launches of it have, since
    // every earlier launch ends before one of them.
    const uint64_t half = first_ + ring_.size() / 2;
    MESHIFT_ASSIGN_OR_RETURN(const bool ended,
                             HaveEnded(half - std::min(half - first_, in_flight_ - 1), half));
    if (ended) {
      first_ = half + 1;
      return absl::OkStatus();
    }
    MESHIFT_ASSIGN_OR_RETURN(const bool one, HaveEnded(first_, first_));
    if (one) {
      ++first_;
      return absl::OkStatus();
    }
  }
  // The oldest remembered launch is pending: double the capacity.
  uint64_t size = 0;
  {
    const MutexLock lock(mutex_);
    size = ring_.size();
  }
  MESHIFT_RETURN_IF_ERROR(AddRecords(size));
  const MutexLock lock(mutex_);
  std::vector<std::unique_ptr<Record>> larger(ring_.size());
  for (uint64_t i = 0; i < size; ++i) {
    const uint64_t number = first_ + i;
    larger[number % larger.size()] = std::move(ring_[number % size]);
  }
  uint64_t spare = size;
  for (std::unique_ptr<Record>& record : larger) {
    if (record == nullptr) record = std::move(ring_[spare++]);
  }
  ring_ = std::move(larger);
  return absl::OkStatus();
}

absl::Status Launches::Open(const std::shared_ptr<NcclGroup>& group, const LaunchText& text,
                            bool setup, const std::shared_ptr<DeviceStream>& stream,
                            uint64_t capture) {
  CUevent before = nullptr;
  CUevent waits[2] = {};
  if (capture == 0) {
    MESHIFT_RETURN_IF_ERROR(MakeRoom());
    const MutexLock lock(mutex_);
    before = At(next_).before;
    const auto wait_for = [&](uint64_t number) MESHIFT_REQUIRES(mutex_) -> CUevent {
      const Record& earlier = At(number);
      return IsSameStream(*earlier.stream, *stream) ? nullptr : earlier.after;
    };
    if (next_ > in_flight_) waits[0] = wait_for(next_ - in_flight_);
    // Also wait for the group's previous launch, as NCCL does within one communicator.
    const uint64_t last = group->last_launch;
    if (last >= first_ && last + in_flight_ > next_) waits[1] = wait_for(last);
  }
  if (before != nullptr) {
    MESHIFT_RETURN_IF_ERROR(device_->driver().EventRecord(before, stream->handle));
  }
  for (const CUevent event : waits) {
    if (event == nullptr) continue;
    MESHIFT_RETURN_IF_ERROR(device_->driver().StreamWaitEvent(stream->handle, event, 0));
  }
  const MutexLock lock(mutex_);
  open_ = true;
  captured_ = capture != 0;
  inside_.group = group;
  inside_.call = group->calls;
  inside_.follows = group->last_launch;
  inside_.text = text;
  inside_.setup = setup;
  inside_.stream = stream;
  inside_.since_ns = 0;
  return absl::OkStatus();
}

absl::Status Launches::Close() {
  CUevent after = nullptr;
  CUstream stream = nullptr;
  {
    const MutexLock lock(mutex_);
    if (captured_) {
      open_ = false;
      return absl::OkStatus();
    }
    after = At(next_).after;
    stream = inside_.stream->handle;
  }
  // Until the event is recorded, CheckTimeouts() counts the launch as inside NCCL.
  absl::Status status = device_->driver().EventRecord(after, stream);
  const MutexLock lock(mutex_);
  open_ = false;
  if (!status.ok()) return status;
  Record& record = At(next_);
  std::swap(record.group, inside_.group);
  std::swap(record.stream, inside_.stream);
  record.call = inside_.call;
  record.follows = inside_.follows;
  record.text = inside_.text;
  record.setup = inside_.setup;
  record.since_ns = 0;
  last_ = next_++;
  return absl::OkStatus();
}

void Launches::Drop() {
  const MutexLock lock(mutex_);
  open_ = false;
}

absl::StatusOr<bool> Launches::IsDone(uint64_t number) {
  const MutexLock lock(mutex_);
  if (number < first_) return true;
  return HaveEnded(number, number);
}

CUevent Launches::EventOf(uint64_t number) {
  const MutexLock lock(mutex_);
  return number < first_ || number >= next_ ? nullptr : At(number).after;
}

std::string Launches::TextOf(const Record& record) {
  const LaunchText& text = record.text;
  return fmt::format("call {} of {}, {} of {} {} ({} bytes),", record.call,
                     record.group->ToString(), Name(text.kind), text.count, Name(text.dtype),
                     Bytes(text.dtype, text.count));
}

absl::StatusOr<std::optional<Launches::Late>> Launches::CheckTimeouts(const Timeouts& timeouts) {
  const int64_t now = NowNs();
  const auto late = [&](Record& record, bool launched) -> std::optional<Late> {
    if (record.since_ns == 0) record.since_ns = now;
    const int64_t limit = (record.setup ? timeouts.setup : timeouts.running).count();
    if (now - record.since_ns < limit) return std::nullopt;
    return Late{.text = TextOf(record), .launched = launched, .limit_ns = limit};
  };
  const MutexLock lock(mutex_);
  while (first_ < next_) {
    MESHIFT_ASSIGN_OR_RETURN(const bool ended, HaveEnded(first_, first_));
    if (!ended) break;
    ++first_;
  }
  // Check the first launch that has not ended of each class of numbers modulo in_flight_.
  std::vector<bool> seen(in_flight_, false);
  uint64_t classes = 0;
  for (uint64_t number = first_; number < next_ && classes < in_flight_; ++number) {
    if (seen[number % in_flight_]) continue;
    Record& record = At(number);
    MESHIFT_ASSIGN_OR_RETURN(const bool ended, device_->IsReached(record.after));
    if (ended) continue;
    seen[number % in_flight_] = true;
    ++classes;
    MESHIFT_ASSIGN_OR_RETURN(bool may_run, device_->IsReached(record.before));
    if (may_run && record.follows >= first_) {
      MESHIFT_ASSIGN_OR_RETURN(may_run, HaveEnded(record.follows, record.follows));
    }
    if (!may_run) continue;
    if (std::optional<Late> found = late(record, /*launched=*/true)) return found;
  }
  // A launch inside NCCL waits for its peers, or for room in the device's queue. If an earlier
  // launch of its class is pending, that one counts instead.
  if (open_ && (captured_ || !seen[next_ % in_flight_])) return late(inside_, /*launched=*/false);
  return std::optional<Late>();
}

}  // namespace meshift
