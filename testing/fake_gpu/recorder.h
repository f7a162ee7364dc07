// Records calls and violations, hot path marks, and faults that tests ask for.
//
//   if (const int result = recorder.Enter("cuMemAlloc", kAllocates, "64 bytes")) return result;
//   recorder.Violation("cuMemFree: 0x10 is not the start of an allocation");
//
// Thread-safe; its lock is taken last.
#ifndef MESHIFT_TESTING_FAKE_GPU_RECORDER_H_
#define MESHIFT_TESTING_FAKE_GPU_RECORDER_H_

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/mutex.h"

namespace meshift::fake {

// Effects of a function that are forbidden on the hot path.
enum CallTrait : uint32_t {
  kPlainCall = 0,
  kSynchronises = 1,  // blocks the host until work is done
  kAllocates = 2,     // allocates or frees, or loads code
  kCreatesComm = 4,   // creates or ends a communicator
  kForbiddenOnHotPath = kSynchronises | kAllocates | kCreatesComm,
};

class Recorder {
 public:
  explicit Recorder(const std::string& log_prefix);

  // Records a call. Returns 0, or the result with which the call must fail because a test asked for
  // it.
  int Enter(const char* function, uint32_t traits, const std::string& details);

  void Violation(const std::string& text);
  // As Violation, but records the same text only once.
  void ViolationOnce(const std::string& text);

  void HotBegin(bool whole_process);
  void HotEnd(bool whole_process);
  bool Hot() const;

  void Fail(const std::string& function, int64_t nth, int result);
  void Reset();

  int64_t ViolationCount() const;
  bool ViolationAt(int64_t index, std::string* text) const;
  int64_t CallCount(const char* function) const;
  int64_t LogSize() const;
  bool LogLine(int64_t index, std::string* text) const;

 private:
  struct Fault {
    int64_t countdown = 0;
    int result = 0;
  };

  mutable Mutex mutex_;
  std::vector<std::string> violations_;
  std::set<std::string> said_;
  std::map<std::string, int64_t> counts_;
  std::multimap<std::string, Fault> faults_;
  std::deque<std::string> log_;
  int64_t calls_ = 0;
  int64_t number_ = 0;  // never reset
  std::FILE* file_ = nullptr;
  std::atomic<int> process_hot_ = 0;
};

}  // namespace meshift::fake

#endif  // MESHIFT_TESTING_FAKE_GPU_RECORDER_H_
