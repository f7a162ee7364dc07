// Runs plans with redistributors on memory of many kinds, all ranks from one thread, and judges
// what every rank holds by the definition.
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
  kStrided,           // dims in any order, with holes, backwards; now and then contiguous
  kOneBuffer,         // contiguous
  kStridedOneBuffer,  // both of any strides
  kConsumedSource,    // contiguous
};
inline constexpr int kNumMemories = 4;

struct LayoutOutcome {
  int64_t wrong = 0;         // elements; or replicas that differ
  int64_t spoiled = 0;       // bytes that were written and must not be
  int64_t bytes_differ = 0;  // steps whose worst rank sent another number of bytes than planned
  // Of the worst ranks, as WorkspaceBytes said. A run had exactly that.
  int64_t workspace_bytes = 0;
  std::string message;  // the first fault; empty if none
  bool ok() const { return message.empty(); }
};

// Not for use from several threads.
class LayoutRunner {
 public:
  explicit LayoutRunner(const DeviceMesh& mesh);

  // One exact pass. The layouts follow from `seed`.
  absl::StatusOr<LayoutOutcome> Run(const Plan& plan, Memory memory, uint64_t seed);

 private:
  // A tensor somewhere in `bytes`.
  struct Tensor {
    TensorView view;
    std::vector<int64_t> offsets;  // of its elements in `bytes`, row-major; f4e2m1: of pairs
    int64_t item = 1;              // bytes of one
  };
  struct Rank {
    std::vector<std::byte> bytes;  // of the source, or of both
    std::vector<std::byte> target_bytes;
    std::vector<std::byte> before;  // what `bytes` held
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
  // How many bytes of the rank changed that are none of its target's elements.
  int64_t CountSpoiled(const Rank& rank, Memory memory) const;

  const DeviceMesh mesh_;
  std::unique_ptr<LocalWorld> world_;
  std::vector<Redistributor> redistributors_;  // by position, as `ranks_`
  std::vector<Rank> ranks_;
};

}  // namespace meshift

#endif  // MESHIFT_TESTS_LAYOUT_RUNNER_H_
