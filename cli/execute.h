// Runs a plan on an engine and checks every element of every rank against the placements' meaning
// (meshift/testing.h), not against the plan.
//
//   MESHIFT_ASSIGN_OR_RETURN(RunTensors tensors, MakeTensors(plan, *context));
//   MESHIFT_ASSIGN_OR_RETURN(RunReport report, Execute(plan, {.repeat = 2}, context, &tensors));
//   if (report.wrong > 0) ...
//
// Execute makes two passes (three with `adversarial`), each with its own redistributors. In the
// exact pass, sums are exact in any order, and results are compared bit for bit, so that rounding
// cannot hide a lost contribution. In the rounding pass, values have full mantissas; results must
// lie within a proven bound, and replicas must be equal. ExecuteLoaded makes only the rounding
// pass, with contributions that the caller provides; testing/given.h describes the comparison. The
// order `adversarial` distorts sums by more than rounding: a pass in rank order then checks the
// values, and the distorted pass only compares replicas. Times and groups are those of the last
// pass.
//
// Wrong elements are counted in the report, and are not an error. In a job of processes Execute and
// ExecuteLoaded are collective: rank 0 checks, and all ranks get its counts, except
// RunReport::repeats_differ.
#ifndef MESHIFT_CLI_EXECUTE_H_
#define MESHIFT_CLI_EXECUTE_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/execution_context.h"
#include "cli/local_tensors.h"
#include "comm/local/reduction_order.h"
#include "meshift/plan.h"

namespace meshift::cli {

struct ExecuteOptions {
  // The order of sums in the rounding pass. The exact pass takes rank order instead of adversarial.
  ReductionOrder reduction_order = ReductionOrder::kRanks;
  int64_t repeat = 1;  // runs of the rounding pass, by one redistributor; 1 or more
  uint64_t seed = 1;   // of the generated contributions
  // The fields below describe the context; Execute does not read them.
  std::string engine = "local";
  int64_t job_ranks = 0;  // the job's processes; 0 if all ranks are in this process
  // The time-out of calls that wait for other ranks, and of their rendezvous.
  std::chrono::nanoseconds timeout = std::chrono::minutes(10);
};

struct StepRun {
  int64_t bytes_sent = 0;  // counted from the calls made; of the worst rank, per run
  int64_t time_ns = 0;     // of the slowest rank; the least over the runs; -1: not measured
};

struct RunReport {
  std::vector<StepRun> steps;   // one per step of the plan
  int64_t wrong = 0;            // elements, over all ranks, in the worst run that checks values
  int64_t replicas_differ = 0;  // replicated elements with different bits, in the worst run
  std::string first_wrong;      // "rank 5 holds 3 (0x4040) at [1,2], not 2 (0x4000)"; empty: none
  std::string first_difference;
  // Groups of the rank with the most groups, in the last pass. A step reuses a group that an
  // earlier step or run has created.
  int64_t groups_created = 0;
  int64_t groups_reused = 0;
  // Pairs of a rank and a step in which the rank sent other bytes than planned, in the worst run.
  int64_t miscounted = 0;
  // Bytes of source, target and workspace on the rank with the most, in any run.
  int64_t peak_bytes = 0;
  // For repeated runs, on rank 0 of the job: by position in the target's mesh, the hash of each
  // rank's target after the first run of the last pass, and the number of pairs of a rank and a
  // later run whose bits differ from it.
  std::vector<Fingerprint> hashes;
  int64_t repeats_differ = 0;
  std::string first_repeat;  // "rank 3 in run 2"
};

// The tensors that a run reads and writes.
struct RunTensors {
  LocalTensors sources;
  LocalTensors targets;
};

// Errors are those of ExecutionContext::CheckFits.
absl::StatusOr<RunTensors> MakeTensors(const Plan& plan, const ExecutionContext& context);

// Both leave the tensors of the last run. Errors are those of the engine and of the oracle
// (meshift/testing.h, testing/given.h).
// REQUIRES: `tensors` are from MakeTensors(plan, *context).
absl::StatusOr<RunReport> Execute(const Plan& plan, const ExecuteOptions& options,
                                  ExecutionContext* context, RunTensors* tensors);
// REQUIRES also: tensors->sources are filled, and CheckSources is OK.
absl::StatusOr<RunReport> ExecuteLoaded(const Plan& plan, const ExecuteOptions& options,
                                        ExecutionContext* context, RunTensors* tensors);
// Checks that ranks with the same part of the source hold equal bits, as a plan presumes.
// INVALID_ARGUMENT names two that differ. For the leader, which has the tensors of all ranks.
absl::Status CheckSources(const Plan& plan, const RunTensors& tensors);

// The number of ranks of a domain if the engine reduces in the topology's order: the domain size of
// the innermost level, or 8 if that level has none.
int64_t DomainSize(const Plan& plan);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_EXECUTE_H_
