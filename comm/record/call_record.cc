#include "comm/record/call_record.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "base/ranges_text.h"
#include "base/status.h"
#include "comm/record/dump_writer.h"
#include "meshift/plan.h"
#include "meshift/status.h"

namespace meshift {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// AwaitDump()'s limit: a failed job must end even if the folder's file system hangs.
constexpr std::chrono::seconds kDumpPatience(2);

int64_t Ms(int64_t ns) { return ns / 1'000'000; }

// "ranks 0-3"; of a long list the beginning, the number of ranks and a hash.
std::string SourceName(const std::string& ranks, size_t num_ranks) {
  constexpr size_t kMaxBytes = 100;
  if (ranks.size() <= kMaxBytes) return "ranks " + ranks;
  return fmt::format("ranks {},... ({}, {})", ranks.substr(0, ranks.rfind(',', kMaxBytes)),
                     num_ranks, Fingerprint::Of(ranks).ToString().substr(0, 8));
}

}  // namespace

void CallSource::Leave() {
  if (!std::exchange(left_, true)) record_->Leave(number_);
}

std::shared_ptr<CallRecord> CallRecord::Of(Engine* engine) {
  return std::static_pointer_cast<CallRecord>(
      engine->record().GetOrMake([engine](const RecordOptions& options) {
        return std::make_shared<CallRecord>(engine, options);
      }));
}

CallRecord::CallRecord(Engine* engine, const RecordOptions& options)
    : engine_(engine), options_(options), ring_(engine, options.calls, options.on_ended) {
  if (!logs()) return;
  const std::string library = engine->Library();
  if (!library.empty()) Log(LogEvent::Kind::kLibrary, library, 0);
}

// All sources have left, and the last one has ended the watchdog's thread.
CallRecord::~CallRecord() = default;

std::unique_ptr<CallSource> CallRecord::Join(CallSourceOptions options) {
  const std::string ranks = RangesText(options.ranks);
  const MutexLock lock(mutex_);
  Source source{
      .name = fmt::format("{} #{}", SourceName(ranks, options.ranks.size()), joins_[ranks]++),
      .ranks = std::move(options.ranks),
      .on_failure = std::move(options.on_failure),
      .health = std::move(options.health),
      .failure = absl::OkStatus()};
  const uint32_t number = ring_.AddSource();
  std::unique_ptr<CallSource> joined(new CallSource(shared_from_this(), number, source.name));
  if (number == sources_.size()) sources_.emplace_back();
  sources_[number] = std::move(source);
  ++num_here_;
  return joined;
}

void CallRecord::Leave(uint32_t number) {
  std::thread thread;
  {
    MutexLock lock(mutex_);
    sources_[number].here = false;
    lock.Wait(changed_, [&]() MESHIFT_REQUIRES(mutex_) { return busy_ != number; });
    if (--num_here_ == 0 && thread_.joinable()) {
      stop_ = true;
      changed_.notify_all();
      thread = std::move(thread_);
    }
  }
  if (thread.joinable()) {
    thread.join();
    const MutexLock lock(mutex_);
    stop_ = false;
    watching_.store(false, std::memory_order_relaxed);
  }
  ring_.RemoveSource(number);
}

void CallRecord::StartWatching() {
  const MutexLock lock(mutex_);
  watching_.store(true, std::memory_order_relaxed);
  if (!options_.watchdog || num_here_ == 0 || thread_.joinable() || stop_) return;
  thread_ = std::thread([this] { Watch(); });
}

// The pause between two checks: 1/16 of the shorter time-out, so that a hang is seen with little
// delay. At least 5 ms; at most 100 ms if on_ended or the trigger file depends on the checks, else
// 1 s.
nanoseconds CallRecord::Tick() const {
  const Timeouts timeouts = engine_->timeouts();
  const nanoseconds least = std::min(timeouts.setup, timeouts.running);
  const nanoseconds most = options_.on_ended || !options_.trigger_file.empty()
                               ? nanoseconds(milliseconds(100))
                               : nanoseconds(std::chrono::seconds(1));
  return std::clamp<nanoseconds>(least / 16, milliseconds(5), most);
}

void CallRecord::Watch() {
  std::vector<OldestCall> oldest;
  IsTriggered();  // ignores a trigger file from before
  for (;;) {
    const nanoseconds tick = Tick();
    bool write = false;
    {
      MutexLock lock(mutex_);
      lock.WaitFor(changed_, tick,
                   [&]() MESHIFT_REQUIRES(mutex_) { return stop_ || writing_ == Writing::kAsked; });
      write = writing_ == Writing::kAsked;
      if (stop_ && !write) return;
    }
    if (write) WriteFailure();
    if (!options_.trigger_file.empty() && IsTriggered()) {
      const auto path = Dump("");
      Log(LogEvent::Kind::kDump, path.ok() ? *path : Message(path.status()), 0);
    }
    CheckSources(&oldest);
  }
}

void CallRecord::CheckSources(std::vector<OldestCall>* oldest) {
  ring_.Poll(oldest);
  const Timeouts timeouts = engine_->timeouts();
  // Before this time no thread advanced the work.
  const CallerProgress* const callers = engine_->caller_progress();
  const int64_t attended_ns = callers == nullptr ? 0 : callers->AttendedSinceNs();
  const int64_t now_ns = SteadyNowNs();
  for (uint32_t number = 0; number < oldest->size(); ++number) {
    const OldestCall& each = (*oldest)[number];
    std::function<absl::Status()> health;
    std::string name;
    {
      const MutexLock lock(mutex_);
      const Source& source = sources_[number];
      if (!source.here || !source.failure.ok()) continue;
      busy_ = number;
      health = source.health;
      name = source.name;
    }
    const int64_t limit_ns = (each.call.is_first ? timeouts.setup : timeouts.running).count();
    absl::Status status = health ? health() : absl::OkStatus();
    // Wait for a second check: the thread that makes the call, or waits for it, sees the failure
    // too and has more details.
    if (!status.ok()) {
      const MutexLock lock(mutex_);
      if (!std::exchange(sources_[number].is_unhealthy, true)) status = absl::OkStatus();
    }
    if (status.ok() && each.found && each.since_ns &&
        now_ns - std::max(*each.since_ns, attended_ns) > limit_ns) {
      status = absl::DeadlineExceededError(
          fmt::format("call {} of the redistributor of {} ({}) {} {} ms", each.call.call, name,
                      each.call.text->plan,
                      each.call.state == CallState::kIssuing ? "is still being issued after"
                                                             : "has not ended for",
                      Ms(limit_ns)));
      Log(LogEvent::Kind::kTimeout, Message(status), now_ns - *each.since_ns);
    }
    if (!status.ok()) FailSource(number, each.found ? each.call.call : -1, status);
    const MutexLock lock(mutex_);
    busy_ = -1;
    changed_.notify_all();
  }
}

void CallRecord::FailSource(uint32_t number, int64_t call, const absl::Status& status) {
  std::function<void(int64_t, const absl::Status&)> on_failure;
  {
    const MutexLock lock(mutex_);
    on_failure = sources_[number].on_failure;
  }
  if (on_failure) on_failure(call, status);
}

void CallRecord::BeginFailure(uint32_t number, const absl::Status& status) {
  // Finds the calls that have ended before the failure.
  std::vector<OldestCall> oldest;
  ring_.Poll(&oldest);
  ring_.CloseSource(number);
  const MutexLock lock(mutex_);
  sources_[number].failure = status;
  if (!failure_.ok()) return;
  failure_ = status;
  if (!options_.dump_folder.empty()) writing_ = Writing::kExpected;
}

void CallRecord::EndFailure(bool may_block) {
  {
    const MutexLock lock(mutex_);
    if (writing_ != Writing::kExpected) return;
    if (num_here_ == 0) may_block = true;  // the watchdog has ended
    writing_ = Writing::kAsked;
    changed_.notify_all();
  }
  if (may_block || !options_.watchdog) {
    WriteFailure();
  } else {
    StartWatching();
  }
}

void CallRecord::WriteFailure() {
  {
    const MutexLock lock(mutex_);
    if (writing_ != Writing::kAsked) return;
    writing_ = Writing::kUnderWay;
    writer_ = std::this_thread::get_id();
  }
  const int64_t begin_ns = SteadyNowNs();
  const absl::StatusOr<std::string> path = Dump("");
  Log(LogEvent::Kind::kDump, path.ok() ? *path : Message(path.status()), SteadyNowNs() - begin_ns);
  const MutexLock lock(mutex_);
  writing_ = Writing::kDone;
  writer_ = std::thread::id();
  changed_.notify_all();
}

void CallRecord::AwaitDump() {
  MutexLock lock(mutex_);
  const std::thread::id self = std::this_thread::get_id();
  if (self == thread_.get_id() || self == writer_) return;
  lock.WaitFor(changed_, kDumpPatience, [&]() MESHIFT_REQUIRES(mutex_) {
    return writing_ == Writing::kNo || writing_ == Writing::kDone;
  });
}

bool CallRecord::IsTriggered() {
  struct stat file = {};
  if (options_.trigger_file.empty() || stat(options_.trigger_file.c_str(), &file) != 0) {
    return false;
  }
  const int64_t touched_ns = file.st_mtim.tv_sec * 1'000'000'000 + file.st_mtim.tv_nsec;
  if (touched_ns == trigger_seen_ns_) return false;
  trigger_seen_ns_ = touched_ns;
  return true;
}

void CallRecord::Log(LogEvent::Kind kind, std::string_view text, int64_t ns) const {
  if (options_.on_log) options_.on_log({.kind = kind, .text = text, .ns = ns});
}

absl::StatusOr<std::string> CallRecord::Dump(const std::string& folder) {
  const std::string& where = folder.empty() ? options_.dump_folder : folder;
  if (where.empty()) {
    return FailedPrecondition("no folder is given to write the record of rank {} to",
                              engine_->rank());
  }
  meshift::Dump dump;
  dump.calls = ring_.Snapshot();
  dump.engine = engine_->name();
  dump.library = engine_->Library();
  dump.host = DumpHostName();
  dump.rank = engine_->rank();
  dump.world_size = engine_->world_size();
  dump.written_unix_ns =
      std::chrono::duration_cast<nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
          .count();
  dump.now_ns = SteadyNowNs();
  dump.timeouts = engine_->timeouts();
  {
    const MutexLock lock(mutex_);
    dump.failure = failure_;
    for (const Source& source : sources_) {
      dump.sources.push_back(
          {.name = source.name, .ranks = source.ranks, .failure = source.failure});
    }
  }
  return WriteDump(dump, where);
}

absl::Status CallRecord::DumpError(const absl::Status& error) {
  {
    const MutexLock lock(mutex_);
    if (options_.dump_folder.empty() || !failure_.ok()) return absl::OkStatus();
    failure_ = error;
  }
  return Dump("").status();
}

}  // namespace meshift
