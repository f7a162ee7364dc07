// An all-reduce (sum or mean) of one tensor with guaranteed bits, on any engine.
//
//   const DeterministicOptions options{.mode = DeterministicMode::kOrdered};
//   MESHIFT_ASSIGN_OR_RETURN(int64_t bytes, DeterministicWorkspace(*group, in, out, options));
//   MESHIFT_ASSIGN_OR_RETURN(DeterministicResult result,
//                            DeterministicAllReduce(*engine, *group, in, out, options,
//                                                   {.data = scratch, .bytes = bytes}, *stream));
//   result.ordered;          // equal bits on any engine and topology
//
// Modes:
//
//   kNative         the engine's own all-reduce: replicas are equal; DeterministicResult says what
//                   else holds
//   kOrdered        each member reduces one slice in ascending order of members; then the slices
//                   are gathered. Sends about as many bytes as a ring
//   kRankReference  one member gathers everything, adds in ascending order of members, and
//                   broadcasts: slow and simple; the bits of kOrdered
//
// Arithmetic is that of comm/kernels/reduce.h, but NCCL's own sums (kNative) may have another order
// and another payload of NaN. With `accumulate_in_f32`, f16, bf16 and 8-bit floats are added, and a
// mean is divided, in f32 and rounded once, in every mode; kNative sends them as f32. Without it,
// kNative adds as the engine does, and the other modes round to the dtype after every addition. f32
// and wider floats are always added in their own precision. Integers wrap, and their mean
// truncates.
//
// Tensors may have any strides, which may differ between members; `out` may be `in` (same address
// and strides). INVALID_ARGUMENT: a dtype without sums or means; another shape or dtype of `out`;
// strides that do not fit the shape; a null tensor with elements; any other overlap of their byte
// ranges, gaps included; elements of `out` that overlap each other; addresses that are not a
// multiple of the element size; a workspace that is too small, misaligned or overlaps a tensor.
//
// Not guaranteed: equal bits for another number or order of members; under kNative, more than the
// result says; anything if members pass different shapes, dtypes or options. `group` and `stream`
// are used by one thread at a time (meshift/communicator.h).
#ifndef MESHIFT_DETERMINISTIC_H_
#define MESHIFT_DETERMINISTIC_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "meshift/communicator.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"
#include "meshift/redistributor.h"
#include "meshift/tensor_view.h"
#include "meshift/version.h"

namespace MESHIFT_API meshift {

enum class DeterministicMode : uint8_t { kNative, kOrdered, kRankReference };
std::string_view Name(DeterministicMode mode);  // "native", "ordered", "rank-reference"

enum class DeterministicOp : uint8_t { kSum, kMean };

struct DeterministicOptions {
  DeterministicMode mode = DeterministicMode::kOrdered;
  DeterministicOp op = DeterministicOp::kSum;
  bool accumulate_in_f32 = true;
};

// The guarantees of a call, once its work is done.
struct DeterministicResult {
  bool replicas_equal = true;    // all members hold equal bits
  bool batch_invariant = false;  // an element's bits do not depend on its position or the size
  // Nor on engine and topology: added in ascending order of members, or exact in any order.
  bool ordered = false;
  bool rounded_once = false;  // each sum is rounded to the tensor's dtype only at the end
  DType accumulate_dtype = DType::kF32;  // precision of additions; under kNative the lowest one
  std::string why;                       // the reason for these values, for a log
};

// The scratch memory that the call needs on this member, in bytes; must be 16-byte aligned. The
// views' data may be null. INVALID_ARGUMENT: as for the call.
absl::StatusOr<int64_t> DeterministicWorkspace(const Communicator& group, const TensorView& in,
                                               const TensorView& out,
                                               const DeterministicOptions& options);

// Enqueues the all-reduce on `stream`. Collective; buffers must not be changed until the work is
// done. A tensor without elements makes no call. INVALID_ARGUMENT: names the refused argument;
// nothing has started. Otherwise errors of the engine and the group.
absl::StatusOr<DeterministicResult> DeterministicAllReduce(
    Engine& engine, Communicator& group, const TensorView& in, const TensorView& out,
    const DeterministicOptions& options, const Workspace& workspace, Stream& stream);

}  // namespace meshift

#endif  // MESHIFT_DETERMINISTIC_H_
