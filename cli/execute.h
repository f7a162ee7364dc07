// Runs a plan on an engine and judges every element of every rank against the definition of
// the placements: what the ranks must hold, not what the plan says.
//
//   MESHIFT_ASSIGN_OR_RETURN(RunTensors tensors, MakeTensors(plan, *site));
//   MESHIFT_ASSIGN_OR_RETURN(RunReport report, Execute(plan, {.repeat = 2}, site, &tensors));
//   if (report.wrong > 0) ...
//
// Execute makes two passes. The exact one has contributions whose sums are exact in any order, by
// several fills, compared bit for bit: a lost contribution cannot hide in rounding. The rounding
// one has full mantissas: replicas are compared with each other, values within a sound bound. The
// passes have redistributors of their own; steps are measured, and groups counted, in the last.
// ExecuteGiven makes one, with contributions that are there already: testing/given.h says what is
// compared, and how. No bound on rounding holds for sums that the engine distorts (adversarial):
// then a pass in rank order judges the values, and the one that distorts compares replicas only.
#ifndef MESHIFT_CLI_EXECUTE_H_
#define MESHIFT_CLI_EXECUTE_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/local_tensors.h"
#include "cli/site.h"
#include "comm/local/reduction_order.h"
#include "meshift/plan.h"

namespace meshift::cli {

struct ExecuteOptions {
  // Of the rounding pass. The exact pass takes rank order where this one distorts (adversarial).
  ReductionOrder reduction_order = ReductionOrder::kRanks;
  int64_t repeat = 1;  // runs of each rounding pass, by one redistributor
  uint64_t seed = 1;   // of what Execute makes up
  std::string engine = "local";
  int64_t job_ranks = 0;  // processes, where a rank is one
  // Of calls that wait for other ranks, and of their rendezvous.
  std::chrono::nanoseconds timeout = std::chrono::minutes(10);
};

struct StepRun {
  int64_t bytes_sent = 0;  // counted from the calls that were made; of the worst rank, per run
  int64_t time_ns = 0;     // of the slowest rank; the least over the runs
};

struct RunReport {
  std::vector<StepRun> steps;   // one per step of the plan
  int64_t wrong = 0;            // elements, over all ranks, in the worst run of either pass
  int64_t replicas_differ = 0;  // replicated elements with different bits, in the worst run
  std::string first_wrong;      // "rank 5 holds 3 (0x4040) at [1,2], not 2 (0x4000)"
  std::string first_difference;
  // Of the rank that is in the most groups, in the rounding pass. A group is reused by each step of
  // each run that finds it there.
  int64_t groups_created = 0;
  int64_t groups_reused = 0;
  // Pairs of a rank and a step in which it sent other bytes than the plan says for it, in the worst
  // run.
  int64_t miscounted = 0;
  // Of source, target and workspace, on the rank that had most, in any run.
  int64_t peak_bytes = 0;
  // Of runs that are repeated, in the pass that is: by position, the hash of what each rank holds
  // after the first of them, and the pairs of a rank and a later run that left other bits.
  std::vector<Fingerprint> hashes;
  int64_t repeats_differ = 0;
  std::string first_repeat;  // "rank 3 in run 2"
};

// What a run reads and writes.
struct RunTensors {
  LocalTensors sources;
  LocalTensors targets;
};

// RESOURCE_EXHAUSTED where the run would not fit into memory.
absl::StatusOr<RunTensors> MakeTensors(const Plan& plan, const Site& site);

// Both leave the tensors of the last run, and return the engine's error where it has one.
// REQUIRES: MakeTensors(plan).
absl::StatusOr<RunReport> Execute(const Plan& plan, const ExecuteOptions& options, Site* site,
                                  RunTensors* tensors);
// REQUIRES: CheckSources.
absl::StatusOr<RunReport> ExecuteGiven(const Plan& plan, const ExecuteOptions& options, Site* site,
                                       RunTensors* tensors);
// Whether ranks that hold the same part of the source hold equal bits, as a plan presumes.
// INVALID_ARGUMENT names two that do not.
absl::Status CheckSources(const Plan& plan, const RunTensors& tensors);

// Ranks of one domain when the engine reduces in the topology's order: the domain size of its
// innermost level, 8 where it has none.
int64_t DomainSize(const Plan& plan);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_EXECUTE_H_
