// The oracle's values if dtypes change: contributions are cast to the reduce dtype, reduced there,
// and cast to the target's dtype. Private to //testing.
//
//   const CastCase c(DType::kBF16, DType::kF32, DType::kF8E4M3, /*reduces=*/true);
//   c.Fill(recipe, special, shape, region, place, out);       // bf16
//   c.Total(recipe, special, shape, region, {}, 1, out);      // f8e4m3
#ifndef MESHIFT_TESTING_CAST_CASE_H_
#define MESHIFT_TESTING_CAST_CASE_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/types/span.h"
#include "meshift/dtype.h"
#include "testing/cast.h"
#include "testing/dtype_ops.h"
#include "testing/geometry.h"

namespace meshift::testkit {

// An immutable value. Recipes are for the reduce dtype.
class CastCase {
 public:
  // If nothing is partial on either side (`probes`), the source holds edge cases of casts: ties,
  // overflows, the least magnitudes. Else it holds the recipe's values; if the source's dtype is
  // finer than the reduce dtype, it holds other values that round to those, so that a missing cast
  // is detected.
  CastCase(DType source, DType reduce, DType target, bool probes);

  // As TypedOps::fill and TypedOps::total, in the source's and the target's dtype. `special`: with
  // NaNs and infinities.
  void Fill(const Recipe& recipe, bool special, absl::Span<const int64_t> shape,
            const Region& region, uint64_t place, std::byte* out) const;
  void Total(const Recipe& recipe, bool special, absl::Span<const int64_t> shape,
             const Region& region, absl::Span<const uint64_t> places, int64_t divisor,
             std::byte* out) const;
  // `operations`: the largest number of consecutive roundings. The recipe must outlive the result.
  std::unique_ptr<Wants> WantsOf(const Recipe& recipe, bool special, int64_t operations) const;

  const TypedOps& reduce_ops() const { return *reduce_ops_; }

 private:
  class CastWants;

  // Stores the source's value of an element that is only cast.
  void StoreProbe(const Recipe& recipe, bool special, int64_t element, std::byte* to,
                  int64_t index) const;

  const NumberOps* source_;
  const NumberOps* reduce_;
  const NumberOps* target_;
  const TypedOps* reduce_ops_;
  const TypedOps* target_ops_;
  bool probes_;
};

}  // namespace meshift::testkit

#endif  // MESHIFT_TESTING_CAST_CASE_H_
