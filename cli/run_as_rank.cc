#include "cli/run_as_rank.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <ostream>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "base/status.h"
#include "cli/engines.h"
#include "cli/execution_context.h"
#include "cli/io.h"
#include "cli/rank_context.h"
#include "comm/control/rank_exchange.h"
#include "comm/engine/engine_record.h"
#include "meshift/bootstrap.h"
#include "meshift/engine.h"
#include "meshift/status.h"

namespace meshift::cli {
namespace {

// After an error of its own, a rank waits this long before it exits, so that the others can print
// the error too.
constexpr std::chrono::milliseconds kFarewell(300);
// A rank with wrong arguments waits at most this long for the others: their arguments may need no
// job.
constexpr std::chrono::seconds kSearch(30);

// How often a rank that plans, fills or checks tells the others that it still works; more often if
// the time-out is short.
constexpr std::chrono::nanoseconds kPeriod = std::chrono::seconds(1);

// This process's job, for ReportExitReason.
std::atomic<Bootstrap*> current_job = nullptr;

// Calls `late` once `timeout` has passed, unless it is destroyed first.
class Alarm {
 public:
  Alarm(std::chrono::nanoseconds timeout, std::function<void()> late)
      : thread_([this, timeout, late = std::move(late)] {
          {
            MutexLock lock(mutex_);
            if (lock.WaitFor(changed_, timeout,
                             [this]() MESHIFT_REQUIRES(mutex_) { return off_; })) {
              return;
            }
          }
          late();
        }) {}
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;
  ~Alarm() {
    {
      const MutexLock lock(mutex_);
      off_ = true;
      changed_.notify_all();
    }
    thread_.join();
  }

 private:
  Mutex mutex_;
  std::condition_variable changed_;
  bool off_ MESHIFT_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

[[noreturn]] void Leave(int exit_code, Io& io) {
  io.out.flush();
  io.err.flush();
  LeaveJob(exit_code);
}

std::string TimeoutText(std::chrono::nanoseconds timeout) {
  return fmt::format("--timeout is {} s", timeout / std::chrono::seconds(1));
}

// Adds the time-out, and the option that sets it, to a time-out error.
absl::Status WithTimeout(const absl::Status& error, const JobOptions& options) {
  const std::string message = Message(error);
  if (!absl::IsDeadlineExceeded(error) || message.find("--timeout is ") != std::string::npos) {
    return error;
  }
  return absl::DeadlineExceededError(fmt::format("{}; {}", message, TimeoutText(options.timeout)));
}

// With an alarm, because MPI waits forever for ranks that do not start.
absl::StatusOr<RankJob> Join(const JobCall& call, Io& io) {
  const bool only_tells = !call.arguments_error.ok();
  const std::chrono::nanoseconds timeout =
      only_tells ? std::min<std::chrono::nanoseconds>(kSearch, call.options.timeout)
                 : call.options.timeout;
  const Alarm alarm(timeout + kFarewell, [&] {
    const absl::Status late = absl::DeadlineExceededError(
        fmt::format("not all ranks of the job have joined; {}", TimeoutText(timeout)));
    Leave(Fail(io, only_tells ? call.arguments_error : late), io);
  });
  return JoinJob(call.engine, timeout);
}

// Returns the result of `body`, or an error for its bad_alloc or system_error.
absl::StatusOr<int> NoThrow(const std::function<absl::StatusOr<int>()>& body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(kNoMemory);
  } catch (const std::system_error& error) {
    return absl::UnavailableError(
        fmt::format("cannot create a thread or lock a mutex: {}", error.what()));
  }
}

// With MESHIFT_DUMP, writes the record of calls, if there is one, with the job's error, even if no
// engine call failed.
void DumpError(const RankJob& job, const absl::Status& error) {
  if (job.engine == nullptr) return;
  const std::shared_ptr<EngineRecord> record = job.engine->record().Get();
  if (record != nullptr) record->DumpError(error).IgnoreError();
}

// Tells the other ranks and prints the error. Returns the exit code.
int FailHere(const absl::Status& error, RankJob& job, Io& io) {
  DumpError(job, error);
  const std::string message = Message(error);
  // "rank 3: ..." comes from a rank that has already told all others.
  const bool is_told =
      BeginsWithRank(message) && message[message.find_first_of(" :", sizeof("rank"))] == ':';
  if (!is_told) job.bootstrap->Leave(error);
  const int exit_code = Fail(
      io, is_told ? error : Annotate(error, fmt::format("rank {}", job.bootstrap->job().rank)));
  io.out.flush();
  io.err.flush();
  std::this_thread::sleep_for(kFarewell);
  return exit_code;
}

}  // namespace

int RunAsRank(const JobCall& call, const RankBody& body, Io& io) {
  absl::StatusOr<RankJob> job = Join(call, io);
  if (!job.ok()) {
    return Fail(io, call.arguments_error.ok() ? WithTimeout(job.status(), call.options)
                                              : call.arguments_error);
  }
  current_job = job->bootstrap.get();
  const bool is_leader = job->bootstrap->job().rank == 0;
  std::ostream nowhere(nullptr);
  Io quiet{io.in, nowhere, nowhere};
  Io& own = is_leader ? io : quiet;
  RankExchange meeting(job->bootstrap.get(), std::min(kPeriod, call.options.timeout / 4),
                       [&](const absl::Status& error) {
                         Leave(FailHere(WithTimeout(error, call.options), *job, io), io);
                       });
  std::unique_ptr<ExecutionContext> context;
  const absl::StatusOr<int> code = NoThrow([&]() -> absl::StatusOr<int> {
    MESHIFT_RETURN_IF_ERROR(meeting.Compare(call.arguments_error, call.verb, call.arguments));
    const absl::Status started = StartEngine(call.engine, call.options, &*job);
    MESHIFT_RETURN_IF_ERROR(meeting.Meet(started, "").status());
    MESHIFT_ASSIGN_OR_RETURN(context, MakeRankContext(&*job, &meeting));
    MESHIFT_ASSIGN_OR_RETURN(const int result, body(&*job, context.get(), own));
    io.out.flush();
    const absl::Status written =
        io.out ? absl::OkStatus() : absl::InternalError("the output cannot be written");
    io.out.clear();  // reported here, not by RunMeshift
    MESHIFT_RETURN_IF_ERROR(meeting.Meet(written, "").status());
    return result;
  });
  io.out.flush();
  // From here on the job ends normally.
  current_job = nullptr;
  if (code.ok()) return *code;
  if (meeting.failed_ranks() == FailedRanks::kHere) {
    Leave(FailHere(WithTimeout(code.status(), call.options), *job, io), io);
  }
  DumpError(*job, code.status());
  const int exit_code = Fail(meeting.failed_ranks() == FailedRanks::kAll ? own : io,
                             WithTimeout(code.status(), call.options));
  io.out.flush();
  io.err.flush();
  // mpirun kills all ranks as soon as one exits with an error: wait until all have printed it.
  job->bootstrap->Exchange("").IgnoreError();
  // After a failure, work may still run for which destructors would wait.
  if (exit_code == kExitCheckFailed) Leave(exit_code, io);
  return exit_code;
}

int FailAsRank(const std::string& engine, const absl::Status& arguments_error, Io& io) {
  if (engine == "local" || !IsInJob()) return Fail(io, arguments_error);
  const auto no_body = [](RankJob*, ExecutionContext*, Io&) -> absl::StatusOr<int> {
    return Internal("a rank with wrong arguments runs");
  };
  return RunAsRank({.engine = engine, .arguments_error = arguments_error}, no_body, io);
}

void ReportExitReason(const char* reason) {
  Bootstrap* const job = current_job.exchange(nullptr);
  if (job == nullptr) return;
  // This thread may hold a lock that telling needs: end after a second in any case.
  std::signal(SIGALRM, [](int) { std::_Exit(kExitCheckFailed); });
  alarm(1);
  try {
    job->Leave(absl::ResourceExhaustedError(reason));
  } catch (...) {
    // Out of memory again: nothing more can be told.
  }
}

}  // namespace meshift::cli
