#include "tests/gpu/processes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "meshift/status.h"

namespace meshift {
namespace {

using Clock = std::chrono::steady_clock;

// The process id of the starter.
constexpr const char* kStarter = "MESHIFT_STARTER";

// Whether the variable was set for other runs and must be removed.
bool IsLeftOut(const std::string& variable, const std::vector<std::string>& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](const std::string& prefix) { return variable.starts_with(prefix); });
}

// This process's variables, without those that are replaced or removed, and then `given`.
std::vector<std::string> EnvironmentWith(const std::vector<std::string>& given,
                                         const std::vector<std::string>& left_out) {
  std::vector<std::string> result = given;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string variable(*entry);
    const std::string name = variable.substr(0, variable.find('=') + 1);
    const bool replaced = std::any_of(given.begin(), given.end(), [&](const std::string& g) {
      return g.compare(0, name.size(), name) == 0;
    });
    if (!replaced && !IsLeftOut(variable, left_out)) result.push_back(variable);
  }
  return result;
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

absl::StatusOr<pid_t> Spawn(const ProcessSpec& spec) {
  std::vector<std::string> arguments = spec.argv;
  std::vector<std::string> given = spec.environment;
  given.push_back(fmt::format("{}={}", kStarter, getpid()));
  std::vector<std::string> variables = EnvironmentWith(given, spec.left_out);
  const std::vector<char*> argv = Pointers(arguments);
  const std::vector<char*> environment = Pointers(variables);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, spec.log.c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC, 0644);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return FailedPrecondition("cannot start {}: {}", argv[0], std::strerror(error));
  return pid;
}

}  // namespace

std::string ProcessEnd::ToString() const {
  if (signal == 0) return fmt::format("exit code {}", code);
  return fmt::format("signal {}{}", signal, killed ? " (killed after the time limit)" : "");
}

absl::StatusOr<Processes> Processes::Start(const std::vector<ProcessSpec>& specs) {
  Processes processes;
  for (const ProcessSpec& spec : specs) {
    MESHIFT_ASSIGN_OR_RETURN(const pid_t pid, Spawn(spec));
    processes.pids_.push_back(pid);
  }
  return processes;
}

Processes::~Processes() {
  for (const pid_t pid : pids_) {
    if (pid < 0) continue;
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
}

std::vector<ProcessEnd> Processes::Wait(std::chrono::milliseconds limit,
                                        std::chrono::milliseconds grace) {
  std::vector<ProcessEnd> ends(pids_.size());
  Clock::time_point deadline = Clock::now() + limit;
  size_t running = std::count_if(pids_.begin(), pids_.end(), [](pid_t pid) { return pid >= 0; });
  while (running > 0) {
    const bool late = Clock::now() >= deadline;
    for (size_t i = 0; i < pids_.size(); ++i) {
      if (pids_[i] < 0) continue;
      if (late) {
        kill(pids_[i], SIGKILL);
        ends[i].killed = true;
      }
      int status = 0;
      if (waitpid(pids_[i], &status, late ? 0 : WNOHANG) != pids_[i]) continue;
      pids_[i] = -1;
      --running;
      if (WIFEXITED(status)) ends[i].code = WEXITSTATUS(status);
      if (WIFSIGNALED(status)) ends[i].signal = WTERMSIG(status);
      if (!ends[i].ok()) deadline = std::min(deadline, Clock::now() + grace);
    }
    if (running > 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return ends;
}

void EndWithStarter() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The starter may have ended before that.
  const char* const starter = std::getenv(kStarter);
  if (starter != nullptr && std::atoll(starter) != getppid()) _exit(1);
}

absl::StatusOr<std::string> MakeLogFolder(const std::string& named, const std::string& prefix) {
  std::error_code error;
  std::string folder = named;
  if (!folder.empty()) {
    std::filesystem::create_directories(folder, error);
    if (!error) return folder;
    return absl::UnavailableError(
        fmt::format("cannot make the folder {}: {}", folder, error.message()));
  }
  folder = std::filesystem::temp_directory_path(error) / (prefix + "XXXXXX");
  if (!error && mkdtemp(folder.data()) != nullptr) return folder;
  return absl::UnavailableError(fmt::format("cannot make a folder for logs: {}", folder));
}

}  // namespace meshift
