// Placement: how one mesh dim holds a tensor: replicated, a shard of a tensor dim, or a partial
// value.
//
//   Placement::Replicate()              // R
//   Placement::Shard(0)                 // S(0)
//   Placement::Partial()                // P       (a sum)
//   Placement::Partial(ReduceOp::kMax)  // P(max)
//
// A Placement knows neither mesh nor tensor: Sharding::Create checks that tensor dims, sizes and
// ops fit. Sizes are in rows, which are indices of the tensor dim. An immutable value; safe for
// concurrent use.
#ifndef MESHIFT_PLACEMENT_H_
#define MESHIFT_PLACEMENT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "meshift/dtype.h"
#include "meshift/version.h"

namespace MESHIFT_API meshift {

enum class ReduceOp : uint8_t { kSum, kAvg, kMin, kMax, kProduct, kAnd, kOr, kXor };
inline constexpr int kNumReduceOps = 8;

std::string_view Name(ReduceOp op);  // "sum", "avg", "min", "max", "product", "and", "or", "xor"
// INVALID_ARGUMENT: another name.
absl::StatusOr<ReduceOp> ParseReduceOp(std::string_view name);

// Whether the result of `op` on `dtype` has the same bits in any order of combination: and, or,
// xor, min and max always; every op on integers and bool.
bool IsExact(ReduceOp op, DType dtype);

class Placement {
 public:
  enum class Kind : uint8_t { kReplicate, kShard, kPartial };
  // One size per coordinate of the mesh dim; empty: a ceil cut (docs/glossary.md).
  using Sizes = absl::InlinedVector<int64_t, 4>;

  static Placement Replicate() { return Placement(Kind::kReplicate); }
  // A negative tensor dim counts from the end; Sharding::Create resolves it.
  static Placement Shard(int tensor_dim) {
    Placement p(Kind::kShard);
    p.tensor_dim_ = tensor_dim;
    return p;
  }
  // A ragged shard: coordinate i of the mesh dim holds sizes[i] rows. Without sizes: Shard().
  static Placement RaggedShard(int tensor_dim, Sizes sizes) {
    Placement p = Shard(tensor_dim);
    p.sizes_ = std::move(sizes);
    return p;
  }
  static Placement Partial(ReduceOp op = ReduceOp::kSum) {
    Placement p(Kind::kPartial);
    p.op_ = op;
    return p;
  }

  Kind kind() const { return kind_; }
  bool IsReplicate() const { return kind_ == Kind::kReplicate; }
  bool IsShard() const { return kind_ == Kind::kShard; }
  bool IsPartial() const { return kind_ == Kind::kPartial; }
  bool IsRagged() const { return !sizes_.empty(); }
  int tensor_dim() const { return tensor_dim_; }  // REQUIRES: IsShard()
  const Sizes& sizes() const { return sizes_; }   // REQUIRES: IsShard()
  ReduceOp op() const { return op_; }             // REQUIRES: IsPartial()

  // "R", "S(0)", "S(0){3,0,5}", "P", "P(max)", without the position in the shard order: Sharding
  // prints that.
  std::string ToString() const;
  void AppendTo(std::string* text) const;

  friend bool operator==(const Placement&, const Placement&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const Placement& p) {
    return H::combine(std::move(h), p.kind_, p.tensor_dim_, p.op_, p.sizes_);
  }

 private:
  explicit Placement(Kind kind) : kind_(kind) {}
  Kind kind_;
  ReduceOp op_ = ReduceOp::kSum;
  int tensor_dim_ = 0;
  Sizes sizes_;
};

}  // namespace meshift

#endif  // MESHIFT_PLACEMENT_H_
