// What an engine's redistributors remember of their calls, and the thread that watches them.
//
//   const auto record = CallRecord::Of(engine);
//   auto source = record->Join({.ranks = {0, 1, 2, 3}, .on_timeout = ..., .health = ...});
//   CallSlot* slot = source->Begin({...}, &events);
//   ... the call is issued ...
//   source->End(slot, {...});
//
// The watchdog is one thread per engine, from its first call to the end of its last redistributor.
// It looks at the oldest call of each redistributor that has not ended. The time-out counts from
// when that call could run: from its issuing, the end of the calls before it, and what it was to
// come after.
#ifndef MESHIFT_COMM_RECORD_CALL_RECORD_H_
#define MESHIFT_COMM_RECORD_CALL_RECORD_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "comm/engine/engine_record.h"
#include "comm/record/call_ring.h"
#include "meshift/engine.h"

namespace meshift {

class CallRecord;

struct CallSourceOptions {
  std::vector<int64_t> ranks;  // ascending
  // A call has not ended in time, or a group has failed (then `call` may be -1): from the
  // watchdog's thread. Ends all calls of the source, whose BeginFailure it calls.
  std::function<void(int64_t call, const absl::Status& status)> on_failure;
  // The first error of its groups. Cheap; from the watchdog's thread.
  std::function<absl::Status()> health;
};

// One redistributor's part. Leaves when destroyed, which waits for the watchdog to have left
// `on_failure`. Safe for concurrent use.
class CallSource {
 public:
  ~CallSource() { Leave(); }
  CallSource(const CallSource&) = delete;
  CallSource& operator=(const CallSource&) = delete;

  // Makes what the first call would.
  void Reserve();
  CallSlot* Begin(const CallHead& head, EventList* done);
  // `slot` may be null.
  void End(CallSlot* slot, const CallTail& tail);
  // The source has failed: its calls are no longer watched, and are remembered as they are now.
  void BeginFailure(const absl::Status& status);
  // Where that was the first failure of the engine's the record is written. `may_block`: by this
  // thread, before this returns; else by the watchdog's.
  void EndFailure(bool may_block);
  // Its calls are watched no more; waits for `on_failure` where that is under way. Failures may be
  // told all the same. May be called twice, by one thread.
  void Leave();
  // "ranks 0-3 #0": the ranks, and which of those with these ranks.
  const std::string& name() const { return name_; }

 private:
  friend class CallRecord;
  CallSource(std::shared_ptr<CallRecord> record, uint32_t number, std::string name)
      : record_(std::move(record)), number_(number), name_(std::move(name)) {}

  const std::shared_ptr<CallRecord> record_;
  const uint32_t number_;
  const std::string name_;
  bool left_ = false;
};

// Safe for concurrent use.
class CallRecord final : public EngineRecord, public std::enable_shared_from_this<CallRecord> {
 public:
  // The engine's, made by the first that asks.
  static std::shared_ptr<CallRecord> Of(Engine* engine);
  CallRecord(Engine* engine, const RecordOptions& options);
  ~CallRecord() override;

  // Whether calls are remembered. Else nobody is to call CallSource::Begin.
  bool remembers() const { return options_.calls > 0; }
  std::unique_ptr<CallSource> Join(CallSourceOptions options);
  void Log(LogEvent::Kind kind, std::string_view text, int64_t ns) const;
  bool logs() const { return options_.on_log != nullptr; }
  absl::StatusOr<std::string> Dump(const std::string& folder) override;
  absl::Status DumpError(const absl::Status& error) override;
  // Waits, for two seconds at most, while the record of a failure is being written by another
  // thread.
  void AwaitDump();

 private:
  friend class CallSource;
  struct Source {
    std::string name;
    std::vector<int64_t> ranks;
    std::function<void(int64_t, const absl::Status&)> on_failure;
    std::function<absl::Status()> health;
    bool here = true;
    absl::Status failure;
  };

  void StartWatching();
  void Leave(uint32_t number);
  void BeginFailure(uint32_t number, const absl::Status& status);
  void EndFailure(bool may_block);
  void Watch();
  void LookOnce(std::vector<OldestCall>* oldest);
  void FailSource(uint32_t number, int64_t call, const absl::Status& status);
  void WriteFailure();
  bool IsTriggered();
  std::chrono::nanoseconds Tick() const;

  Engine* const engine_;
  const RecordOptions options_;
  CallRing ring_;
  std::atomic<bool> watching_ = false;

  Mutex mutex_;
  std::condition_variable changed_;
  std::vector<Source> sources_ MESHIFT_GUARDED_BY(mutex_);
  std::map<std::string, int64_t> joins_ MESHIFT_GUARDED_BY(mutex_);  // by ranks
  int num_here_ MESHIFT_GUARDED_BY(mutex_) = 0;
  int64_t busy_ MESHIFT_GUARDED_BY(mutex_) = -1;     // the source that the watchdog is in
  absl::Status failure_ MESHIFT_GUARDED_BY(mutex_);  // the first
  enum class Writing : uint8_t { kNo, kExpected, kAsked, kUnderWay, kDone };
  Writing writing_ MESHIFT_GUARDED_BY(mutex_) = Writing::kNo;
  std::thread::id writer_ MESHIFT_GUARDED_BY(mutex_);
  bool stop_ MESHIFT_GUARDED_BY(mutex_) = false;
  std::thread thread_ MESHIFT_GUARDED_BY(mutex_);
  // The watchdog's.
  int64_t trigger_seen_ns_ = 0;  // when the trigger was last touched
  std::vector<bool> unhealthy_;  // sources whose groups had failed at the last look
};

inline CallSlot* CallSource::Begin(const CallHead& head, EventList* done) {
  if (!record_->watching_.load(std::memory_order_relaxed)) [[unlikely]]
    record_->StartWatching();
  return record_->ring_.Begin(number_, head, done);
}

inline void CallSource::Reserve() { record_->ring_.Reserve(); }

inline void CallSource::End(CallSlot* slot, const CallTail& tail) {
  if (slot != nullptr) record_->ring_.End(slot, tail);
}

inline void CallSource::BeginFailure(const absl::Status& status) {
  record_->BeginFailure(number_, status);
}

inline void CallSource::EndFailure(bool may_block) { record_->EndFailure(may_block); }

}  // namespace meshift

#endif  // MESHIFT_COMM_RECORD_CALL_RECORD_H_
