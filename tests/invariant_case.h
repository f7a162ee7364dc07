// Cases of the promise `batch-invariant`. Elements with known contributions are sent in several
// batches: in tensors of several sizes, at different places, on different shards, in one tensor or
// in parts, alone or with other elements. Their bits must be equal in all batches.
//
//   InvariantCase c(seed);
//   InvariantBits bits;                               // of the case
//   for (const InvariantBatch& batch : c.Batches()) {
//     MESHIFT_ASSIGN_OR_RETURN(InvariantRun run,
//                              InvariantRun::Start(c, batch, engine, redistribute));
//     MESHIFT_RETURN_IF_ERROR(run.Finish(&bits));     // DATA_LOSS: an element has other bits
//   }
//
// Each rank runs its part; the results of all ranks must be merged (InvariantBits::Merge).
#ifndef MESHIFT_TESTS_INVARIANT_CASE_H_
#define MESHIFT_TESTS_INVARIANT_CASE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"
#include "meshift/redistributor.h"
#include "meshift/sharding.h"
#include "meshift/topology.h"
#include "testing/random.h"

namespace meshift {

// A tensor of one dim, and the identity of each of its elements: a tracked element, or another.
struct InvariantTensor {
  Sharding from;
  Sharding to;
  std::vector<int64_t> ids;
};
using InvariantBatch = std::vector<InvariantTensor>;  // sent in one call

class InvariantCase {
 public:
  // `ranks`: the size of the world; 0: chosen by the case, at most 40.
  explicit InvariantCase(uint64_t seed, int64_t ranks = 0);

  const DeviceMesh& mesh() const { return *mesh_; }
  DType dtype() const { return dtype_; }
  int64_t domain() const { return domain_; }
  Topology topology() const;  // groups may fill its domains unevenly
  std::string ToString() const;
  InvariantBatch First() const;
  std::vector<InvariantBatch> Batches() const;

 private:
  InvariantTensor Make(std::vector<int64_t> ids) const;

  testkit::Random random_;
  std::optional<DeviceMesh> mesh_;
  DType dtype_ = DType::kF32;
  int64_t domain_ = 8;
  bool averages_ = false;
  std::string from_;
  std::string to_;
};

// The bits of each element.
class InvariantBits {
 public:
  // DATA_LOSS if the element had other bits before.
  absl::Status Add(int64_t id, uint32_t bits);
  // For ranks in different processes.
  std::string Pack() const;
  absl::Status Merge(std::string_view packed);
  int64_t size() const { return static_cast<int64_t>(bits_.size()); }

 private:
  std::map<int64_t, uint32_t> bits_;
};

// One rank's part of a batch. `redistribute` must be on the case's mesh.
class InvariantRun {
 public:
  static absl::StatusOr<InvariantRun> Start(const InvariantCase& c, const InvariantBatch& batch,
                                            Engine* engine, Redistributor& redistribute);
  absl::Status Finish(InvariantBits* bits);

 private:
  struct Part {
    std::vector<int64_t> ids;  // elements of this rank's target
    std::unique_ptr<Buffer> source;
    std::unique_ptr<Buffer> target;
  };
  Engine* engine_ = nullptr;
  int64_t item_ = 4;
  std::unique_ptr<Stream> stream_;
  std::vector<Part> parts_;
  RunHandle run_;
};

}  // namespace meshift

#endif  // MESHIFT_TESTS_INVARIANT_CASE_H_
