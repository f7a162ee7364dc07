// The oracle for one dtype: loops over elements, called through a table of functions, so that only
// typed_*.cc instantiate them. Private to //testing.
#ifndef MESHIFT_TESTING_DTYPE_OPS_H_
#define MESHIFT_TESTING_DTYPE_OPS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"
#include "testing/cast.h"
#include "testing/contribution.h"
#include "testing/geometry.h"

namespace meshift::testkit {

// An error of one element.
struct Fault {
  int64_t position = -1;  // of the rank that holds `got`
  int64_t other = -1;     // of the replica that holds `want`; -1: `want` is the right value
  int64_t element = 0;    // row-major index
  std::byte got[16] = {};
  std::byte want[16] = {};
};

struct Judgement {
  int64_t wrong = 0;
  int64_t replicas_differ = 0;
  std::optional<Fault> first_wrong;
  std::optional<Fault> first_difference;
};

// Right values that come from another recipe and are cast to the checked dtype.
class Wants {
 public:
  virtual ~Wants() = default;
  // The values of elements global .. global + count - 1. If the tolerance is not zero: values
  // before the last rounding, and the magnitudes that bound their errors.
  virtual void Get(int64_t global, int64_t count, Number* values, double* magnitudes) const = 0;
  Tolerance tolerance;
  bool exact = true;
  bool zeros_are_equal = false;
};

struct JudgeInput {
  absl::Span<const int64_t> shape;
  const Positions* positions = nullptr;
  absl::Span<const Region> regions;  // per entry of positions->shards
  std::optional<ReduceOp> op;        // of the target's partial coordinates
  int64_t divisor = 1;
  absl::Span<const absl::Span<const std::byte>> buffers;  // by position, of the right sizes
  const Wants* wants = nullptr;                           // null: the recipe's
};

struct TypedOps {
  int element_bytes;
  Recipe (*make_recipe)(const RecipeInput& input);
  // Fills `out` with the part of `region` that the partial coordinate at `place` holds.
  void (*fill)(const Recipe& recipe, absl::Span<const int64_t> shape, const Region& region,
               uint64_t place, std::byte* out);
  // The contributions of `places` reduced and divided by `divisor`; the whole tensor's value if
  // `places` is empty.
  void (*total)(const Recipe& recipe, absl::Span<const int64_t> shape, const Region& region,
                absl::Span<const uint64_t> places, int64_t divisor, std::byte* out);
  // The whole tensor's values for elements global .. global + count - 1, and the magnitudes that
  // bound their errors.
  void (*totals)(const Recipe& recipe, int64_t global, int64_t count, std::byte* out,
                 double* magnitudes);
  Tolerance (*tolerance)(const Recipe& recipe, int64_t operations);
  void (*fill_identity)(ReduceOp op, int64_t count, std::byte* out);
  Judgement (*judge)(const Recipe& recipe, const JudgeInput& input);
  std::string (*to_text)(const std::byte* value);  // "1.5 (0x3fc0)"
};

// For a dtype with arithmetic. REQUIRES: not f4e2m1.
const TypedOps& OpsOf(DType dtype);
// For elements of 1, 2, 4, 8 or 16 bytes that are only moved.
const TypedOps& RawOps(int element_bytes);

// The two halves of OpsOf, in separate files to compile in parallel.
const TypedOps* IntegerOpsOf(DType dtype);
const TypedOps* FloatOpsOf(DType dtype);

}  // namespace meshift::testkit

#endif  // MESHIFT_TESTING_DTYPE_OPS_H_
