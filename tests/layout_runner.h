// Runs plans with redistributors on tensors with many memory layouts, all ranks from one thread,
// and checks each rank's result with the oracle.
//
//   LayoutRunner runner(mesh);
//   LayoutOutcome outcome = runner.Run(plan, Memory::kStrided, /*seed=*/7).value();
//   EXPECT_TRUE(outcome.ok()) << outcome.message;
#ifndef MESHIFT_TESTS_LAYOUT_RUNNER_H_
#define MESHIFT_TESTS_LAYOUT_RUNNER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshift/device_mesh.h"
#include "meshift/local_world.h"
#include "meshift/plan.h"
#include "meshift/redistributor.h"
#include "meshift/sharding.h"
#include "meshift/tensor_view.h"
#include "meshift/testing.h"
#include "testing/random.h"

namespace meshift {

enum class Memory {
  kStrided,           // dims in any order, with gaps, backwards; sometimes contiguous
  kOneBuffer,         // contiguous
  kStridedOneBuffer,  // both with any strides
  kConsumedSource,    // contiguous
};
inline constexpr int kNumMemories = 4;

struct LayoutOutcome {
  int64_t wrong = 0;         // wrong elements, or replicas that differ
  int64_t spoiled = 0;       // bytes that were written but must not be
  int64_t bytes_differ = 0;  // steps whose worst rank sent other bytes than planned
  // The largest over the ranks, by WorkspaceBytes. A run gets exactly that.
  int64_t workspace_bytes = 0;
  std::string message;  // the first fault; empty if none
  bool ok() const { return message.empty(); }
};

// Not thread-safe.
class LayoutRunner {
 public:
  explicit LayoutRunner(const DeviceMesh& mesh);

  // One exact pass. `seed` determines the layouts.
  absl::StatusOr<LayoutOutcome> Run(const Plan& plan, Memory memory, uint64_t seed);

 private:
  // A tensor at some place in `bytes`.
  struct Tensor {
    TensorView view;
    std::vector<int64_t> offsets;  // of its elements in `bytes`, row-major; for f4e2m1 of pairs
    int64_t item = 1;              // bytes of one
  };
  struct Rank {
    std::vector<std::byte> bytes;  // of the source, or of source and target
    std::vector<std::byte> target_bytes;
    std::vector<std::byte> before;  // `bytes` before the run
    std::vector<std::byte> workspace;
    std::vector<std::byte> dense;  // the target, row-major
    Tensor source;
    Tensor target;
    int64_t workspace_begin = 0;
    int64_t workspace_bytes = 0;
  };

  absl::Status Lay(const Plan& plan, const testkit::Oracle& oracle, const testkit::Fill& fill,
                   Memory memory, int64_t position, testkit::Random& random);
  absl::Status LayWorkspace(const Plan& plan, Memory memory, int64_t position);
  // The number of changed bytes of the rank outside its target's elements.
  int64_t CountSpoiled(const Rank& rank, Memory memory) const;

  const DeviceMesh mesh_;
  std::unique_ptr<LocalWorld> world_;
  std::vector<Redistributor> redistributors_;  // by position, as `ranks_`
  std::vector<Rank> ranks_;
};

}  // namespace meshift

#endif  // MESHIFT_TESTS_LAYOUT_RUNNER_H_
