#include "testing/fake_gpu/recorder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <string_view>
#include <utility>

namespace meshift::fake {
namespace {

constexpr size_t kLogLines = 65536;
constexpr size_t kMostViolations = 1000;

thread_local int thread_hot = 0;

int ThreadNumber() {
  static std::atomic<int> threads = 0;
  thread_local const int number = ++threads;
  return number;
}

}  // namespace

Recorder::Recorder(const std::string& log_prefix) {
  if (!log_prefix.empty())
    file_ = std::fopen(fmt::format("{}.{}", log_prefix, getpid()).c_str(), "a");
}

namespace {

// Calls that accompany most others, or that waiting threads repeat: the slower the machine, the
// more. They would push the calls that tests look for out of the log.
bool IsNoise(std::string_view function) {
  for (const std::string_view prefix :
       {"cuCtx", "cuEvent", "cuStreamIsCapturing", "cuStreamGetCaptureInfo",
        "cuThreadExchangeStreamCaptureMode", "ncclCommGetAsyncError"}) {
    if (function.substr(0, prefix.size()) == prefix) return true;
  }
  return false;
}

}  // namespace

int Recorder::Enter(const char* function, uint32_t traits, const std::string& details) {
  const bool broken = (traits & kForbiddenOnHotPath) != 0 && Hot();
  int result = 0;
  {
    MutexLock lock(mutex_);
    ++calls_;
    ++counts_[function];
    std::string line = fmt::format("{} {} {} {}", ++number_, ThreadNumber(), function, details);
    if (file_ != nullptr) {
      std::fprintf(file_, "%s\n", line.c_str());
      std::fflush(file_);
    }
    if (!IsNoise(function)) {
      log_.push_back(std::move(line));
      if (log_.size() > kLogLines) log_.pop_front();
    }
    const auto range = faults_.equal_range(function);
    for (auto it = range.first; it != range.second;) {
      if (--it->second.countdown > 0) {
        ++it;
        continue;
      }
      result = it->second.result;
      it = faults_.erase(it);
    }
  }
  if (broken) {
    Violation(fmt::format("{} on the hot path: it {}", function,
                          (traits & kSynchronises) ? "synchronises the host with a device"
                          : (traits & kAllocates)  ? "allocates, frees or loads"
                                                   : "creates or ends a communicator"));
  }
  return result;
}

void Recorder::Violation(const std::string& text) {
  MutexLock lock(mutex_);
  if (file_ != nullptr) {
    std::fprintf(file_, "VIOLATION %s\n", text.c_str());
    std::fflush(file_);
  }
  if (violations_.size() < kMostViolations) violations_.push_back(text);
}

void Recorder::ViolationOnce(const std::string& text) {
  {
    MutexLock lock(mutex_);
    if (!said_.insert(text).second) return;
  }
  Violation(text);
}

void Recorder::HotBegin(bool whole_process) {
  if (whole_process) {
    ++process_hot_;
  } else {
    ++thread_hot;
  }
}

void Recorder::HotEnd(bool whole_process) {
  const bool open = whole_process ? process_hot_-- > 0 : thread_hot-- > 0;
  if (open) return;
  HotBegin(whole_process);
  Violation("hot_end without hot_begin");
}

bool Recorder::Hot() const { return thread_hot > 0 || process_hot_ > 0; }

void Recorder::Fail(const std::string& function, int64_t nth, int result) {
  MutexLock lock(mutex_);
  faults_.insert({function, {.countdown = nth, .result = result}});
}

void Recorder::Reset() {
  MutexLock lock(mutex_);
  violations_.clear();
  said_.clear();
  counts_.clear();
  faults_.clear();
  log_.clear();
  calls_ = 0;
  process_hot_ = 0;
  thread_hot = 0;
}

int64_t Recorder::ViolationCount() const {
  MutexLock lock(mutex_);
  return static_cast<int64_t>(violations_.size());
}

bool Recorder::ViolationAt(int64_t index, std::string* text) const {
  MutexLock lock(mutex_);
  if (index < 0 || index >= static_cast<int64_t>(violations_.size())) return false;
  *text = violations_[static_cast<size_t>(index)];
  return true;
}

int64_t Recorder::CallCount(const char* function) const {
  MutexLock lock(mutex_);
  if (function == nullptr) return calls_;
  const auto it = counts_.find(function);
  return it == counts_.end() ? 0 : it->second;
}

int64_t Recorder::LogSize() const {
  MutexLock lock(mutex_);
  return static_cast<int64_t>(log_.size());
}

bool Recorder::LogLine(int64_t index, std::string* text) const {
  MutexLock lock(mutex_);
  if (index < 0 || index >= static_cast<int64_t>(log_.size())) return false;
  *text = log_[static_cast<size_t>(index)];
  return true;
}

}  // namespace meshift::fake
