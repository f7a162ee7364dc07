#include "cli/engines.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/clipped.h"
#include "base/status.h"
#include "cli/text.h"
#include "meshift/engine.h"
#include "meshift/mpi_engine.h"
#include "meshift/nccl_engine.h"
#include "meshift/status.h"

namespace meshift::cli {
namespace {

struct Entry {
  const char* name;
  std::string (*absence)();  // why this build does not have it; empty: it has
  absl::StatusOr<std::unique_ptr<Engine>> (*start)(const JobOptions& options, const RankJob& job);
};

absl::StatusOr<std::unique_ptr<Engine>> StartMpi(const JobOptions& options, const RankJob& job) {
  return CreateMpiEngine({.timeout = options.timeout,
                          .control = job.bootstrap->control(),
                          .bounded_waits = options.bounded_waits && MpiSession::HasThreads()});
}

absl::StatusOr<std::unique_ptr<Engine>> StartNccl(const JobOptions& options, const RankJob& job) {
  return StartNcclEngine(job.bootstrap.get(), Timeouts::Of(options.timeout));
}

const std::array<Entry, 2>& RankEngines() {
  static constexpr std::array<Entry, 2> kEngines = {
      {{"mpi", MpiAbsence, StartMpi}, {"nccl", NcclAbsence, StartNccl}}};
  return kEngines;
}

const char* Variable(const char* name) { return std::getenv(name); }

// The number of ranks that mpirun (Open MPI's or MPICH's) has started; null outside of mpirun, and
// in a build without MPI. mpirun may run inside a job of torchrun, but not the other way round.
const char* MpirunSize() {
  if (!MpiAbsence().empty()) return nullptr;
  const char* const size = Variable("OMPI_COMM_WORLD_SIZE");
  return size != nullptr ? size : Variable("PMI_SIZE");
}
bool HasMpirun() { return MpirunSize() != nullptr; }
bool HasTorchrun() { return Variable("RANK") != nullptr && Variable("WORLD_SIZE") != nullptr; }

// The path of the file that SIGUSR1 touches: a signal handler may not allocate one.
std::array<char, 4096> trigger = {};

void Touch(int) {
  const int saved = errno;
  // O_NONBLOCK: does not wait if a FIFO is there.
  const int fd =
      open(trigger.data(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644);
  if (fd >= 0) {
    futimens(fd, nullptr);
    close(fd);
  }
  errno = saved;
}

// Writes the record of calls to the folder MESHIFT_DUMP after an error. All ranks that share the
// folder write theirs when its file "now" is touched, which SIGUSR1 does.
absl::Status KeepRecord(Engine* engine) {
  const char* const folder = Variable("MESHIFT_DUMP");
  if (folder == nullptr || *folder == '\0') return absl::OkStatus();
  const std::string now = fmt::format("{}/now", folder);
  if (now.size() >= trigger.size()) {
    return InvalidArgument("MESHIFT_DUMP has {} bytes, more than a path may", now.size());
  }
  if (mkdir(folder, 0755) != 0 && errno != EEXIST) {
    return InvalidArgument("MESHIFT_DUMP: cannot make the folder '{}': {}",
                           Clipped(Printable(folder), 200), strerror(errno));
  }
  std::copy(now.begin(), now.end(), trigger.begin());
  struct sigaction action = {};
  action.sa_handler = Touch;
  action.sa_flags = SA_RESTART;
  sigaction(SIGUSR1, &action, nullptr);
  return engine->SetRecord({.dump_folder = folder, .trigger_file = now});
}

}  // namespace

std::string EngineNames() {
  std::string names = "local";
  for (const Entry& entry : RankEngines()) {
    if (entry.absence().empty()) names += fmt::format(" {}", entry.name);
  }
  return names;
}

absl::Status CheckEngine(const std::string& name) {
  if (name == "local") return absl::OkStatus();
  for (const Entry& entry : RankEngines()) {
    if (name != entry.name) continue;
    const std::string absence = entry.absence();
    if (absence.empty()) return absl::OkStatus();
    return Unimplemented("--engine: {} is not in this build: {} (available: {})", name, absence,
                         EngineNames());
  }
  return InvalidArgument("--engine: unknown engine '{}'; expected one of: {}", name, EngineNames());
}

absl::StatusOr<std::chrono::nanoseconds> JobTimeout(const std::optional<int64_t>& seconds) {
  if (seconds) return std::chrono::seconds(*seconds);
  const char* const text = Variable("MESHIFT_TIMEOUT_S");
  if (text == nullptr) return std::chrono::minutes(10);
  int64_t value = 0;
  const char* const end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, value);
  if (error == std::errc() && stop == end && value >= 1 && value <= kMaxTimeoutSeconds) {
    return std::chrono::seconds(value);
  }
  return InvalidArgument("MESHIFT_TIMEOUT_S is '{}', not a number of seconds in 1..{}",
                         Clipped(text, 40), kMaxTimeoutSeconds);
}

bool IsInJob() {
  const char* const size = HasMpirun()     ? MpirunSize()
                           : HasTorchrun() ? Variable("WORLD_SIZE")
                                           : "1";
  return std::string_view(size) != "1";
}

absl::StatusOr<RankJob> JoinJob(const std::string& name, std::chrono::nanoseconds timeout) {
  RankJob job;
  if (name == "mpi" || HasMpirun()) {
    MESHIFT_ASSIGN_OR_RETURN(MpiSession session, MpiSession::Start());
    job.session = std::make_shared<MpiSession>(std::move(session));
    MESHIFT_ASSIGN_OR_RETURN(job.bootstrap, MpiBootstrap(timeout));
  } else if (HasTorchrun()) {
    MESHIFT_ASSIGN_OR_RETURN(job.bootstrap, Bootstrap::FromTorchrun(timeout));
  } else {
    return FailedPrecondition(
        "the {} engine runs one rank per process: start it with mpirun{}, or with RANK, "
        "WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT in the environment, as torchrun does",
        name,
        MpiAbsence().empty() ? "" : " (which this build does not have: " + MpiAbsence() + ")");
  }
  return job;
}

absl::Status StartEngine(const std::string& name, const JobOptions& options, RankJob* job) {
  for (const Entry& entry : RankEngines()) {
    if (name != entry.name) continue;
    MESHIFT_ASSIGN_OR_RETURN(job->engine, entry.start(options, *job));
    return KeepRecord(job->engine.get());
  }
  return InvalidArgument("--engine: '{}' does not run one rank per process", name);
}

void LeaveJob(int exit_code) { std::_Exit(exit_code); }

}  // namespace meshift::cli
