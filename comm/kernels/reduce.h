// Reduces contributions element by element on the CPU, in a given order. The MPI engine reduces
// with it, and the local engine too, whose ReductionOrder may set ReduceSpec::runs and shift. The
// NCCL engine's own kernels have the same arithmetic. NCCL's reductions (docs/nccl.md) may use
// another order, round f16 and bf16 more often, and give other NaNs. The arithmetic:
//
//   f16, bf16, f8   sum, avg, product in f32, rounded once to nearest even (small_float.h)
//   f32, f64        in their own precision
//   c64, c128       by component; product is the complex product ac - bd, ad + bc
//   integers        sum and product wrap
//   avg             the sum, divided once by the divisor before rounding; in f32 a divisor above
//                   2^24 is rounded first; integers (of the wrapped sum) truncate toward zero
//   min, max        -0 < +0; a NaN wins
//   and, or, xor    bit by bit; bool also takes min and max, on bytes
//
// With reduction.block = k > 0, each k consecutive inputs are combined first, then these results in
// order: (a + b) + (c + d). Intermediate results keep the precision of the accumulator; only the
// final result is rounded. ReduceSpec::runs also rounds the result of each run.
//
// Every NaN result is the canonical one: positive, quiet, no payload.
//
//   ReduceSpec spec{.dtype = DType::kBF16, .reduction = {.op = ReduceOp::kAvg, .divisor = 8}};
//   Reduce(spec, inputs, 0, count, out);
//
// Counts are in elements; addresses need no alignment. Reduce() needs up to 200 KiB of stack. Safe
// for concurrent use.
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
  // The lengths of runs of consecutive inputs, which add up to the number of inputs. Each run is
  // combined and rounded to `dtype`, then the results are combined in order. Empty or one run: all
  // inputs in order. Not with reduction.block. Exact reductions (IsExact) ignore this and `shift`.
  absl::InlinedVector<int, 8> runs;
  // For tests, k > 0: changes each result by a number of units in the last place, away from zero
  // unless that would leave the finite values. The number is distinct for each k below a quarter of
  // the number of finite magnitudes (8 bits: about 30; 16 bits: about 8,000). Infinities and NaN
  // stay.
  int64_t shift = 0;
};

// INVALID_ARGUMENT if the op is not defined for the dtype, an average's divisor is not positive, or
// the block is negative.
absl::Status CheckReduction(DType dtype, const Reduction& reduction);

// Checks the arguments of an engine's ReduceInOrder: INVALID_ARGUMENT if CheckReduction fails,
// without inputs, for a negative count, and for a null pointer if count > 0.
absl::Status CheckReduceInOrder(absl::Span<const void* const> inputs, const void* out,
                                int64_t count, DType dtype, const Reduction& reduction);

// out[i] = the reduction of inputs[0][first + i], inputs[1][first + i], ... for i in [0, count).
// `out` may be the address of element `first` of an input, and otherwise overlaps no input.
// REQUIRES: CheckReduction is OK; at least one input.
void Reduce(const ReduceSpec& spec, absl::Span<const void* const> inputs, int64_t first,
            int64_t count, void* out);

}  // namespace meshift

#endif  // MESHIFT_COMM_KERNELS_REDUCE_H_
