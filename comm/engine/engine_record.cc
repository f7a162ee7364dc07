// Also implements SetRecord, Dump, CheckRecordOptions and RunRecord::StepNs of meshift/engine.h.
#include "comm/engine/engine_record.h"

#include <cstddef>
#include <utility>

#include "base/status.h"
#include "meshift/status.h"

namespace meshift {

int64_t RunRecord::StepNs(int i) const {
  if (static_cast<size_t>(i) + 1 >= events.size()) return -1;
  const int64_t begin = events[i]->ReachedNs();
  const int64_t end = events[i + 1]->ReachedNs();
  return begin < 0 || end < 0 ? -1 : end - begin;
}

absl::Status Engine::SetRecord(RecordOptions options) {
  return record_->SetOptions(std::move(options));
}

absl::StatusOr<std::string> Engine::Dump(const std::string& folder) const {
  const std::shared_ptr<EngineRecord> record = record_->Get();
  if (record != nullptr) return record->Dump(folder);
  return FailedPrecondition("no redistributor of this engine records its calls");
}

absl::Status CheckRecordOptions(const RecordOptions& options) {
  constexpr int64_t kMaxCalls = 1'000'000;
  if (options.calls >= 0 && options.calls <= kMaxCalls) return absl::OkStatus();
  return InvalidArgument("cannot record {} calls; expected 0 to {}", options.calls, kMaxCalls);
}

absl::Status RecordSlot::SetOptions(RecordOptions options) {
  MESHIFT_RETURN_IF_ERROR(CheckRecordOptions(options));
  const MutexLock lock(mutex_);
  if (record_ != nullptr) {
    return FailedPrecondition("a redistributor of this engine records its calls already");
  }
  options_ = std::move(options);
  return absl::OkStatus();
}

RecordOptions RecordSlot::options() const {
  const MutexLock lock(mutex_);
  return options_;
}

std::shared_ptr<EngineRecord> RecordSlot::Get() const {
  const MutexLock lock(mutex_);
  return record_;
}

std::shared_ptr<EngineRecord> RecordSlot::GetOrMake(
    absl::FunctionRef<std::shared_ptr<EngineRecord>(const RecordOptions&)> make) {
  const MutexLock lock(mutex_);
  if (record_ == nullptr) record_ = make(options_);
  return record_;
}

}  // namespace meshift
