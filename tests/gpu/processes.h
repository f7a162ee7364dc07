// Child processes, each with its own environment and log. They are waited for and killed by process
// id.
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
  std::vector<std::string> environment;  // "NAME=value", added to this process's environment
  std::string log;                       // file for stdout and stderr
  // Prefixes of this process's variables that the child must not get.
  std::vector<std::string> left_out = {};
};

struct ProcessEnd {
  int code = -1;        // exit code; -1: ended by a signal
  int signal = 0;       // the signal that ended it
  bool killed = false;  // by us, after a time limit
  bool ok() const { return code == 0; }
  std::string ToString() const;  // "exit code 1", "signal 9 (killed after the time limit)"
};

// Kills processes that still run when it is destroyed.
class Processes {
 public:
  static absl::StatusOr<Processes> Start(const std::vector<ProcessSpec>& specs);
  Processes(Processes&& other) noexcept : pids_(std::exchange(other.pids_, {})) {}
  Processes& operator=(Processes&&) = delete;
  ~Processes();

  // Waits until all have ended. Kills processes that still run after `limit`, or `grace` after one
  // has failed, since others may wait for it forever.
  std::vector<ProcessEnd> Wait(std::chrono::milliseconds limit, std::chrono::milliseconds grace);

 private:
  Processes() = default;

  std::vector<pid_t> pids_;
};

// A process started by Processes::Start must call this first: it is then killed when its starter
// ends, and exits at once if the starter has ended already. Any other process is only killed when
// its parent ends.
void EndWithStarter();

// Makes the folder `named` if it is missing. If `named` is empty, makes a new temporary folder
// whose name begins with `prefix`. UNAVAILABLE if it cannot be made.
absl::StatusOr<std::string> MakeLogFolder(const std::string& named, const std::string& prefix);

}  // namespace meshift

#endif  // MESHIFT_TESTS_GPU_PROCESSES_H_
