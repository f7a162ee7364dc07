// `meshift run`: makes or reads a plan, or makes the plans of a model file (--model). Runs each on
// an engine, and checks every element of every rank against the placements' meaning
// (cli/execute.h).
//
//   meshift run --mesh ddp=8,fsdp=5,tp=1 --tensor 'bf16[4096,512]' --from P,P,R --to R,R,R
//   meshift run --plan plan.json --load in --save out     # .npy files: cli/local_tensors.h
//   mpirun -n 8 meshift run --engine mpi --conformance    # testing/conformance_cases.h
//   mpirun -n 12 meshift run --engine mpi --conformance --cross
//
// With the local engine all ranks are in this process. With the others this process is one rank of
// a job; rank 0 checks and prints. All ranks must make the same plan and have the same arguments.
// Only paths, the topology and the time-out may differ. The other engines refuse --plan -, --ranks,
// and any --reduction-order but "ranks". Options that exclude each other give exit code 2.
#ifndef MESHIFT_CLI_RUN_COMMAND_H_
#define MESHIFT_CLI_RUN_COMMAND_H_

#include <cstdint>
#include <optional>
#include <string>

#include "cli/io.h"
#include "cli/problem.h"

namespace meshift::cli {

struct RunFlags {
  ProblemFlags problem;
  std::optional<std::string> plan;        // a plan file, "-": stdin; excludes a problem
  std::string reduction_order = "ranks";  // or "topology", "adversarial"
  int64_t repeat = 1;                     // runs of the plan in one process
  std::optional<uint64_t> seed;           // of the contributions; none: 1
  std::optional<std::string> load;        // a folder with the contributions; excludes a seed
  std::optional<std::string> save;        // a folder for sources and targets
  bool conformance = false;               // instead of a problem
  bool cross = false;                     // conformance from one mesh to another
  std::optional<int64_t> cases;           // of the conformance set; none: 2,000
  std::optional<int64_t> timeout;         // seconds; none: MESHIFT_TIMEOUT_S, or 10 minutes
  std::optional<int64_t> ranks;           // of the local engine; none: 8, or 12 for `cross`
};

// Returns the exit code (cli/io.h). It is 1 also if an element or a case of the conformance set is
// wrong, the requested promise is not kept, a rank sent other bytes than planned or took more
// memory, or a plan that was read is wrong; 3 also if a file of `load` is not the rank's part
// of the source, or if loaded replicas differ. Reads all files before it runs or saves anything.
// Saves wrong results too. If saving fails, it prints the error and no report.
int RunCommand(const RunFlags& flags, Io& io);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_RUN_COMMAND_H_
