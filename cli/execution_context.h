// ExecutionContext: the interface by which a command runs plans, wherever the ranks are. Either all
// ranks are in this process (MakeLocalContext), or this process is one rank of a job
// (cli/rank_context.h).
//
//   MESHIFT_ASSIGN_OR_RETURN(auto runner, context.NewRunner(plan, ReductionOrder::kRanks));
//   MESHIFT_ASSIGN_OR_RETURN(RunStats run, runner->Run(sources, &targets));
//   MESHIFT_RETURN_IF_ERROR(context.Gather(plan.to(), &targets));
//   if (context.is_leader()) ... check all targets ...
//
// The leader is the process that checks and prints: rank 0's. In a job of processes, all of them
// make the same calls in the same order, except the const ones. Not thread-safe.
#ifndef MESHIFT_CLI_EXECUTION_CONTEXT_H_
#define MESHIFT_CLI_EXECUTION_CONTEXT_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/local_tensors.h"
#include "comm/local/reduction_order.h"
#include "meshift/plan.h"
#include "meshift/sharding.h"
#include "meshift/testing.h"

namespace meshift::cli {

// The counts, times and memory of one run, over all ranks.
struct RunStats {
  struct StepRun {
    int64_t bytes_sent = 0;  // by the rank that sent the most, counted from the calls made
    int64_t calls = 0;       // of communicators, by the rank with the most
    int64_t ns = -1;         // on the slowest rank; -1: not measured
  };
  std::vector<StepRun> steps;
  // Pairs of a rank and a step in which the rank sent other bytes than planned.
  int64_t miscounted = 0;
  // Bytes of source, target and workspace on the rank with the most.
  int64_t peak_bytes = 0;
};

// Runs one plan repeatedly, with one redistributor per rank.
class RedistributionRunner {
 public:
  virtual ~RedistributionRunner() = default;
  // Reads the sources of this process's ranks, and writes their targets. The run gets its buffers
  // in the plan's buffer mode (cli/run_buffers.h).
  virtual absl::StatusOr<RunStats> Run(const LocalTensors& sources, LocalTensors* targets) = 0;
  // The number of groups that the rank with the most has created, without the root.
  virtual absl::StatusOr<int64_t> GroupsCreated() = 0;
};

class ExecutionContext {
 public:
  virtual ~ExecutionContext() = default;

  virtual const std::string& engine() const = 0;  // "mpi"
  virtual int64_t num_ranks() const = 0;          // of the job; 0: the number that each plan needs
  // Whether this process checks and prints.
  virtual bool is_leader() const = 0;
  // RESOURCE_EXHAUSTED: this process has too little memory, or a rank is too large for a local
  // world. INVALID_ARGUMENT: the job has too few ranks.
  virtual absl::Status CheckFits(const Plan& plan) const = 0;
  // Tensors of all ranks on the leader, of its own rank in other processes.
  virtual LocalTensors MakeTensors(const Sharding& sharding) const = 0;
  // `plan` must outlive the runner, and so must the context. Destroy a runner before making
  // another. A job of processes ignores `order`.
  virtual absl::StatusOr<std::unique_ptr<RedistributionRunner>> NewRunner(const Plan& plan,
                                                                          ReductionOrder order) = 0;
  // Copies all ranks' tensors to the leader.
  virtual absl::Status Gather(const Sharding& sharding, LocalTensors* tensors) = 0;
  // The first error of any process, returned on all. It names the rank, unless all have the same.
  virtual absl::Status Agree(const absl::Status& status) = 0;
  // As Agree, for the result of `work`, which may take longer than ranks wait for each other.
  virtual absl::Status AgreeAfter(const std::function<absl::Status()>& work) = 0;
  // As AgreeAfter; INVALID_ARGUMENT also if the texts differ: "rank 0 has X, and rank 2 has Y".
  virtual absl::Status AgreeOn(const std::function<absl::StatusOr<std::string>()>& work) = 0;
  // Whether all processes had the last of these errors, with the same text. True if all ranks are
  // in this process. REQUIRES: Agree, AgreeAfter or AgreeOn has returned an error.
  virtual bool AllFailed() const = 0;
  // The result of `check`, which only the leader calls, on all processes.
  virtual absl::StatusOr<testkit::CheckResult> Share(
      const std::function<absl::StatusOr<testkit::CheckResult>()>& check) = 0;
};

// All ranks in this process. `timeout`: for calls that wait for other ranks.
std::unique_ptr<ExecutionContext> MakeLocalContext(
    std::chrono::nanoseconds timeout = std::chrono::minutes(10));
}  // namespace meshift::cli

#endif  // MESHIFT_CLI_EXECUTION_CONTEXT_H_
