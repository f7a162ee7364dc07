// The place where an engine keeps its record of calls and the options for it. The record itself is
// in comm/record/call_record.h. Internal: programs call Engine::SetRecord and Engine::Dump.
//
//   std::shared_ptr<EngineRecord> record = engine->record().Get();   // null: no redistributor yet
#ifndef MESHIFT_COMM_ENGINE_ENGINE_RECORD_H_
#define MESHIFT_COMM_ENGINE_ENGINE_RECORD_H_

#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "base/mutex.h"
#include "meshift/engine.h"

namespace meshift {

// Holds an engine's record, which the engine's first redistributor makes. Safe for concurrent use.
class RecordSlot {
 public:
  // Errors as those of CheckRecordOptions; FAILED_PRECONDITION if the record exists already.
  absl::Status SetOptions(RecordOptions options);
  RecordOptions options() const;
  std::shared_ptr<EngineRecord> Get() const;
  // The first call makes the record. `make` runs under the slot's lock: it must not use the slot.
  std::shared_ptr<EngineRecord> GetOrMake(
      absl::FunctionRef<std::shared_ptr<EngineRecord>(const RecordOptions&)> make);

 private:
  mutable Mutex mutex_;
  RecordOptions options_ MESHIFT_GUARDED_BY(mutex_);
  std::shared_ptr<EngineRecord> record_ MESHIFT_GUARDED_BY(mutex_);
};

}  // namespace meshift

#endif  // MESHIFT_COMM_ENGINE_ENGINE_RECORD_H_
