// Runs a framework's own code for a redistribution and compares what every rank then holds with the
// definition of its placements. Knows nothing of planner and engines.
//
//   // The gradient sync of a data-parallel layer: partial over dp in, replicated out.
//   const Sharding from = *Sharding::Parse("f32[7,5] on dp=3,tp=2 as P,S(0)");
//   const Sharding to = *from.WithPlacements("R,S(0)");
//   const auto result = testkit::CheckLayer(
//       {.from = from, .to = to}, [](const testkit::LocalTensors& local) {
//         ... local.source<float>(position) ... local.target<float>(position) ...
//         return absl::OkStatus();
//       });
//   ASSERT_TRUE(result.ok()) << result.status();
//   EXPECT_TRUE(result->ok()) << result->ToString();
//   // 12 wrong elements: rank 0 holds 1 (0x3f800000) at [3,1], not 0 (0x0)
#ifndef MESHIFT_TESTING_LAYER_CHECK_H_
#define MESHIFT_TESTING_LAYER_CHECK_H_

#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "meshift/sharding.h"
#include "testing/definition.h"

namespace meshift::testkit {

// The local tensors of all ranks, by position in the mesh (on a row-major mesh: by rank); each the
// row-major content of the rank's box (Sharding::BoxAt), aligned to 16 bytes.
class LocalTensors {
 public:
  LocalTensors(absl::Span<const absl::Span<const std::byte>> sources,
               absl::Span<const absl::Span<std::byte>> targets)
      : sources_(sources), targets_(targets) {}

  int64_t num_sources() const { return static_cast<int64_t>(sources_.size()); }
  int64_t num_targets() const { return static_cast<int64_t>(targets_.size()); }
  absl::Span<const std::byte> source_bytes(int64_t position) const { return sources_[position]; }
  absl::Span<std::byte> target_bytes(int64_t position) const { return targets_[position]; }
  // As elements of a type that has the size of the dtype.
  template <typename T>
  absl::Span<const T> source(int64_t position) const {
    const absl::Span<const std::byte> bytes = sources_[position];
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
  template <typename T>
  absl::Span<T> target(int64_t position) const {
    const absl::Span<std::byte> bytes = targets_[position];
    return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
  }

 private:
  absl::Span<const absl::Span<const std::byte>> sources_;
  absl::Span<const absl::Span<std::byte>> targets_;
};

struct LayerCheck {
  const Sharding& from;
  const Sharding& to;  // may be on another mesh
  uint64_t seed = 1;   // of the values
  // Let min and max also meet zeros of both signs, infinities and NaN. For a layer that does not
  // keep to docs/dtypes.md there: off.
  bool special_values = true;
};

// Fills the targets from the sources, for all ranks; may start threads, and waits for them.
using LayerFn = absl::FunctionRef<absl::Status(const LocalTensors& local)>;

// Calls `layer` four times: twice with sums that are exact in any order, compared bit for bit; with
// special values; with full mantissas, compared within a sound bound and, replica with replica, bit
// for bit. Counts are sums over these. Targets are poisoned before each call.
// Errors: those of Oracle::Create; of `layer`; FAILED_PRECONDITION where it wrote to a source or
// next to a target.
absl::StatusOr<CheckResult> CheckLayer(const LayerCheck& check, LayerFn layer);

}  // namespace meshift::testkit

#endif  // MESHIFT_TESTING_LAYER_CHECK_H_
