// What an engine's redistributors remember of their calls: options, and where the record is found.
// comm/record/call_record.h keeps it.
//
//   MESHIFT_RETURN_IF_ERROR(engine->SetRecord({.dump_folder = "/var/tmp/job7"}));
//   MESHIFT_ASSIGN_OR_RETURN(std::string path, engine->Dump());
#ifndef MESHIFT_COMM_ENGINE_ENGINE_RECORD_H_
#define MESHIFT_COMM_ENGINE_ENGINE_RECORD_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"

namespace meshift {

// A call of a redistributor whose work is done.
struct EndedCall {
  int64_t call = 0;         // its number in the redistributor
  std::string_view groups;  // "ranks 0-7", or the groups that its steps are of
  std::string_view plan;    // the fingerprint, and from what to what
  int64_t bytes = 0;        // sent by this rank
  // From when it could run to its end; -1: not known.
  int64_t ns = -1;
};

// Something that happens seldom.
struct LogEvent {
  enum class Kind : uint8_t { kRedistributor, kSplit, kTimeout, kAbort, kDump };
  Kind kind = Kind::kRedistributor;
  std::string_view text;  // one line
  int64_t ns = 0;         // how long it took
};

struct RecordOptions {
  // How many of the last calls are remembered; 0: none, and nobody watches.
  int64_t calls = 2000;
  // Whether a thread looks at the calls in flight, so that one that takes longer than the engine's
  // time-out (Engine::SetTimeouts) ends all, also while nobody waits for it.
  bool watchdog = true;
  // Where the record is written on the first error, as Engine::Dump() does; empty: nowhere.
  std::string dump_folder = {};
  // Whenever this file appears, or is touched, the record is written. Needs the watchdog.
  std::string trigger_file = {};
  // Called for each call that has ended, soon after it has; by one thread at a time. Must return
  // soon, and not call the engine or its redistributors.
  std::function<void(const EndedCall&)> on_ended = {};
  // Called likewise, from any thread.
  std::function<void(const LogEvent&)> on_log = {};
};

// INVALID_ARGUMENT: `calls` is negative or more than a million.
absl::Status CheckRecordOptions(const RecordOptions& options);

class EngineRecord {
 public:
  virtual ~EngineRecord() = default;
  // Writes what is remembered to a file in `folder`, whose path it returns.
  virtual absl::StatusOr<std::string> Dump(const std::string& folder) = 0;
  // Writes it to the folder of the options, with an error that is not the engine's, unless there is
  // no such folder or an error of the engine has had it written.
  virtual absl::Status DumpError(const absl::Status& error) = 0;
};

// An engine's record, which its first redistributor makes. Safe for concurrent use.
class RecordSlot {
 public:
  // FAILED_PRECONDITION once the record is made.
  absl::Status SetOptions(RecordOptions options);
  RecordOptions options() const;
  std::shared_ptr<EngineRecord> Get() const;
  std::shared_ptr<EngineRecord> GetOrMake(
      absl::FunctionRef<std::shared_ptr<EngineRecord>(const RecordOptions&)> make);

 private:
  mutable Mutex mutex_;
  RecordOptions options_ MESHIFT_GUARDED_BY(mutex_);
  std::shared_ptr<EngineRecord> record_ MESHIFT_GUARDED_BY(mutex_);
};

}  // namespace meshift

#endif  // MESHIFT_COMM_ENGINE_ENGINE_RECORD_H_
