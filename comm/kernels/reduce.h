// Combining contributions element by element, in a stated order, with the arithmetic that is the
// same on every engine:
//
//   f16, bf16, f8   sum, avg, product in f32, rounded once to nearest even (small_float.h)
//   f32, f64        in their own precision
//   c64, c128       by component; product is the complex product ac - bd, ad + bc
//   integers        sum and product wrap
//   avg             the sum, divided once by the divisor before rounding; integers (of the wrapped
//                   sum) truncate toward zero
//   min, max        -0 < +0; a NaN wins
//   and, or, xor    bit by bit; bool also takes min and max, on bytes
//
// With reduction.block = k > 0, k consecutive inputs are combined first, each result kept as it was
// accumulated, then these in their order: (a + b) + (c + d). Nothing but the end is rounded.
//
// Every NaN that comes out is the canonical one: positive, quiet, no payload.
//
//   ReduceSpec spec{.dtype = DType::kBF16, .reduction = {.op = ReduceOp::kAvg, .divisor = 8}};
//   Reduce(spec, inputs, 0, count, out);
#ifndef MESHIFT_COMM_KERNELS_REDUCE_H_
#define MESHIFT_COMM_KERNELS_REDUCE_H_

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "meshift/communicator.h"
#include "meshift/dtype.h"

namespace meshift {

struct ReduceSpec {
  DType dtype = DType::kF32;
  Reduction reduction;
  // Numbers of consecutive inputs that are combined first, each result rounded to `dtype`, before
  // these are combined in their order; they sum to the number of inputs. Empty: one after another.
  // Only reductions that are not exact (IsExact) heed this and `shift`. Not with reduction.block.
  absl::InlinedVector<int, 8> runs;
  // k > 0: results move by a distance of units in the last place that is distinct for each k below
  // a quarter of the number of finite magnitudes (8 bits: about 30; 16 bits: about 8,000), away
  // from zero unless they would leave the finite values. Infinities and NaN stay.
  int64_t shift = 0;
};

// INVALID_ARGUMENT where the op does not take the dtype, an average's divisor is not positive, or
// the block is negative.
absl::Status CheckReduction(DType dtype, const Reduction& reduction);

// What a call that reduces `inputs` in their order is to be given: CheckReduction, an input or
// more, a count that is not negative, and nothing null where there are elements; else
// INVALID_ARGUMENT.
absl::Status CheckReduceInOrder(absl::Span<const void* const> inputs, const void* out,
                                int64_t count, DType dtype, const Reduction& reduction);

// out[i] = the reduction of inputs[0][first + i], inputs[1][first + i], ... for i in [0, count).
// `out` may be where an input's elements [first, first + count) are, and otherwise overlaps none.
// REQUIRES: CheckReduction is OK; one input or more.
void Reduce(const ReduceSpec& spec, absl::Span<const void* const> inputs, int64_t first,
            int64_t count, void* out);

}  // namespace meshift

#endif  // MESHIFT_COMM_KERNELS_REDUCE_H_
