// The record of the last calls of an engine's redistributors, and the watchdog that fails calls
// which do not end in time.
//
//   const auto record = CallRecord::Of(engine);
//   auto source = record->Join({.ranks = {0, 1, 2, 3}, .on_failure = ..., .health = ...});
//   CallSlot* slot = source->Begin({...}, &done);
//   ... issue the call ...
//   source->End(slot, {...});
//
// The record keeps the last RecordOptions::calls calls in memory. It is written to a file in the
// dump folder on request, by the watchdog when the trigger file is touched, and on the engine's
// first failure if there is such a folder. Internal to comm/.
//
// The watchdog is one thread per engine, from the first recorded call until the last redistributor
// is destroyed, unless RecordOptions::watchdog is false. It checks the oldest unfinished call of
// each redistributor. It does not see captured calls, nor calls for which Begin() returned null.
// The time-out counts from the time when that call could run: the latest of when it was issued,
// when the calls before it ended, and when the events that it waits for were reached. In an engine
// without a thread of its own only time counts in which a thread waits or polls
// (CallerProgress::AttendedSinceNs). The watchdog also fails a redistributor whose groups report an
// error (`health`).
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
  std::vector<int64_t> ranks;  // ascending; if empty, ReadDump() refuses the written record
  // Called by the watchdog's thread when a call has not ended in time, or a group has failed (then
  // `call` may be -1). It must end all calls of the source and call BeginFailure.
  std::function<void(int64_t call, const absl::Status& status)> on_failure;
  // Returns the first error of the source's groups. Must be cheap. Called by the watchdog's thread.
  std::function<absl::Status()> health;
};

// One redistributor's handle of the record. The destructor calls Leave(). Safe for concurrent use.
class CallSource {
 public:
  ~CallSource() { Leave(); }
  CallSource(const CallSource&) = delete;
  CallSource& operator=(const CallSource&) = delete;

  // As CallRing::Reserve().
  void Reserve();
  // As CallRing::Begin().
  CallSlot* Begin(const CallHead& head, DoneEvents* done);
  // As CallRing::End(). `slot` may be null.
  void End(CallSlot* slot, const CallTail& tail);
  // The source has failed: its calls are no longer watched, and the record keeps their present
  // state.
  void BeginFailure(const absl::Status& status);
  // Writes the record if this was the engine's first failure and there is a folder for it: on this
  // thread if `may_block` or without a watchdog; else on the watchdog's. After all sources have
  // left, it writes on this thread too. With `may_block` the watchdog may begin first: then this
  // returns at once, and AwaitDump() waits for the record.
  void EndFailure(bool may_block);
  // Ends the watching of its calls; waits for a running `on_failure` or `health`. The last source
  // to leave waits for the watchdog's thread to end. BeginFailure and EndFailure are still allowed.
  // May be called twice, by one thread, but not by `on_failure` or `health`.
  void Leave();
  // "ranks 0-3 #0": the ranks, shortened if they are many, and a number among the sources with
  // these ranks. Equal on all of them if they make their sources in the same order.
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
  // The record of `engine`; made by the first call.
  static std::shared_ptr<CallRecord> Of(Engine* engine);
  CallRecord(Engine* engine, const RecordOptions& options);
  ~CallRecord() override;

  // Whether calls are remembered. If not, CallSource::Begin must not be called.
  bool remembers() const { return options_.calls > 0; }
  std::unique_ptr<CallSource> Join(CallSourceOptions options);
  void Log(LogEvent::Kind kind, std::string_view text, int64_t ns) const;
  bool logs() const { return options_.on_log != nullptr; }
  absl::StatusOr<std::string> Dump(const std::string& folder) override;
  absl::Status DumpError(const absl::Status& error) override;
  // Waits at most two seconds for another thread to write the record of a failure. Does not wait on
  // the watchdog's thread.
  void AwaitDump();

 private:
  friend class CallSource;
  struct Source {
    std::string name;
    std::vector<int64_t> ranks;
    std::function<void(int64_t, const absl::Status&)> on_failure;
    std::function<absl::Status()> health;
    bool here = true;           // false once it has left
    bool is_unhealthy = false;  // its groups had failed at an earlier check
    absl::Status failure;
  };

  void StartWatching();
  void Leave(uint32_t number);
  void BeginFailure(uint32_t number, const absl::Status& status);
  void EndFailure(bool may_block);
  void Watch();
  void CheckSources(std::vector<OldestCall>* oldest);
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
  int64_t busy_ MESHIFT_GUARDED_BY(mutex_) = -1;  // the source whose functions the watchdog calls
  absl::Status failure_ MESHIFT_GUARDED_BY(mutex_);  // the engine's first
  enum class Writing : uint8_t { kNo, kExpected, kAsked, kUnderWay, kDone };
  Writing writing_ MESHIFT_GUARDED_BY(mutex_) = Writing::kNo;
  std::thread::id writer_ MESHIFT_GUARDED_BY(mutex_);
  bool stop_ MESHIFT_GUARDED_BY(mutex_) = false;
  std::thread thread_ MESHIFT_GUARDED_BY(mutex_);
  // Only the watchdog's thread uses it.
  int64_t trigger_seen_ns_ = 0;  // the trigger file's time of modification when last seen
};

inline CallSlot* CallSource::Begin(const CallHead& head, DoneEvents* done) {
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
