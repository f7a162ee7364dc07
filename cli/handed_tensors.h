// What a run is handed of sources and targets: as the plan's buffers say, beside the tensors that
// are judged, which outlive it.
//
//   HandedTensors handed(plan, sources, targets);
//   handed.Fill();
//   ... runner->Run(plan, handed.sources(), handed.targets(), handed.consumes()) ...
//   handed.Take();                       // the targets have what the run has left
//
// Of two buffers these are the tensors themselves. A source that is consumed is a copy, and so is
// one buffer that is source and target.
#ifndef MESHIFT_CLI_HANDED_TENSORS_H_
#define MESHIFT_CLI_HANDED_TENSORS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "cli/local_tensors.h"
#include "meshift/plan.h"

namespace meshift::cli {

// Bytes of a rank that is handed tensors of so many.
int64_t HandedBytes(Buffers buffers, int64_t source_bytes, int64_t target_bytes);
// Bytes that are kept beside them, so that all can be judged.
int64_t KeptBytes(Buffers buffers, int64_t source_bytes, int64_t target_bytes);

class HandedTensors {
 public:
  // The plan's, on all its ranks; all must outlive this.
  HandedTensors(const Plan& plan, const LocalTensors& sources, LocalTensors* targets);

  // Before a run: what is copied is what the tensors hold; where both share a buffer and the target
  // is longer, the source's content is followed by the target's.
  void Fill();
  // After it.
  void Take();

  // By position in the mesh of the source, of the target; null where a rank has no elements.
  absl::Span<void* const> sources() const { return source_data_; }
  absl::Span<void* const> targets() const { return target_data_; }
  bool consumes() const { return buffers_ == Buffers::kConsumed; }

 private:
  static constexpr int64_t kNone = -1;
  struct Copy {
    int64_t source = 0;      // position
    int64_t target = kNone;  // likewise, where the buffer is that as well
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

#endif  // MESHIFT_CLI_HANDED_TENSORS_H_
