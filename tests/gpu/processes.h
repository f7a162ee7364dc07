// Child processes with an environment and a log of their own, waited for and ended by their ids.
//
//   MESHIFT_ASSIGN_OR_RETURN(Processes ranks, Processes::Start({{argv, {"RANK=0"}, "rank0.log"}}));
//   for (const ProcessEnd& end : ranks.Wait(std::chrono::minutes(5), std::chrono::seconds(20))) ...
#ifndef MESHIFT_TESTS_GPU_PROCESSES_H_
#define MESHIFT_TESTS_GPU_PROCESSES_H_

#include <sys/types.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace meshift {

struct ProcessSpec {
  std::vector<std::string> argv;         // the program's path first
  std::vector<std::string> environment;  // "NAME=value", added to this process's own
  std::string log;                       // file that takes stdout and stderr
  // How variables of this process begin that it must not have.
  std::vector<std::string> left_out = {};
};

struct ProcessEnd {
  int code = -1;        // exit code; -1: ended by a signal
  int signal = 0;       // that ended it
  bool killed = false;  // by us, after a time limit
  bool ok() const { return code == 0; }
  std::string ToString() const;  // "exit code 1", "signal 9 (killed after the time limit)"
};

// Processes that still run are killed when this is destroyed.
class Processes {
 public:
  static absl::StatusOr<Processes> Start(const std::vector<ProcessSpec>& specs);
  Processes(Processes&& other) noexcept : pids_(std::exchange(other.pids_, {})) {}
  Processes& operator=(Processes&&) = delete;
  ~Processes();

  // Until all have ended. Kills what still runs after `limit`, or `grace` after one has failed:
  // others may wait for it for ever.
  std::vector<ProcessEnd> Wait(std::chrono::milliseconds limit, std::chrono::milliseconds grace);

 private:
  Processes() = default;

  std::vector<pid_t> pids_;
};

// A process that Processes::Start has started calls this first: it is killed when its starter ends,
// and exits at once where the starter has ended already. Any other process is only killed when its
// parent ends.
void EndWithStarter();

// The folder `named`, made where it is missing; a new one in the system's for temporary files,
// whose name begins with `prefix`, where it is empty. UNAVAILABLE: it cannot be made.
absl::StatusOr<std::string> MakeLogFolder(const std::string& named, const std::string& prefix);

}  // namespace meshift

#endif  // MESHIFT_TESTS_GPU_PROCESSES_H_
