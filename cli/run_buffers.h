// Provides the buffers that `meshift run` on the local engine passes to a run, in the plan's buffer
// mode (Buffers in meshift/planner_options.h). The tensors are checked after the run, so the run
// gets a copy of a source that it may overwrite. RunBufferBytes() is for the other engines too.
//
//   RunBuffers run_buffers(plan, sources, targets);
//   run_buffers.Fill();
//   ... runner->Run(plan, run_buffers.sources(), run_buffers.targets(), run_buffers.consumes()) ...
//   run_buffers.Take();  // copies the results to the targets
//
// For kTwo the buffers are the tensors themselves. A consumed source is a copy, and so is the
// single buffer of kOne on a rank that has a source and a target. For RunBuffers, all ranks of the
// plan must be in this process. Not thread-safe.
#ifndef MESHIFT_CLI_RUN_BUFFERS_H_
#define MESHIFT_CLI_RUN_BUFFERS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "cli/local_tensors.h"
#include "meshift/plan.h"

namespace meshift::cli {

// The bytes of the buffers on a rank whose tensors have these sizes.
int64_t RunBufferBytes(Buffers buffers, int64_t source_bytes, int64_t target_bytes);
// The most bytes of the tensors that are kept beside those buffers.
int64_t TensorBytesBeside(Buffers buffers, int64_t source_bytes, int64_t target_bytes);

class RunBuffers {
 public:
  // Allocates the copies. `sources` and `targets` hold all ranks; all arguments outlive this.
  RunBuffers(const Plan& plan, const LocalTensors& sources, LocalTensors* targets);

  // Call before a run. Copies the tensors to the buffers; in a shared buffer with a longer target,
  // the source's bytes come first and are followed by the target's.
  void Fill();
  // Call after a run. Copies results from the buffers to the targets.
  void Take();

  // By position in the source's and the target's mesh; null for a rank without elements.
  absl::Span<void* const> sources() const { return source_data_; }
  absl::Span<void* const> targets() const { return target_data_; }
  // Whether the run may overwrite separate sources; false for kOne.
  bool consumes() const { return buffers_ == Buffers::kConsumed; }

 private:
  static constexpr int64_t kNone = -1;
  // Memory that replaces one rank's source, and with kOne its target too.
  struct Copy {
    int64_t source = 0;      // position
    int64_t target = kNone;  // position, if the buffer is also the target
    std::unique_ptr<std::byte[]> memory = nullptr;
  };

  const Buffers buffers_;
  const LocalTensors& sources_;
  LocalTensors& targets_;
  std::vector<Copy> copies_;
  std::vector<void*> source_data_;
  std::vector<void*> target_data_;
};

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_RUN_BUFFERS_H_
