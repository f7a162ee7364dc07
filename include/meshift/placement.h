// Placement: how one mesh dim holds a tensor: replicated, a shard of a tensor dim, a partial value,
// or on some coordinates only.
//
//   Placement::Replicate()              // R
//   Placement::Shard(0)                 // S(0)
//   Placement::Partial()                // P       (a sum)
//   Placement::Partial(ReduceOp::kMax)  // P(max)
//   Placement::At({3, 7})               // At(3,7): on coordinates 3 and 7 only
//
// A Placement knows neither mesh nor tensor: Sharding::Create checks that tensor dims, sizes and
// ops fit. Sizes are in rows, which are indices of the tensor dim. An immutable value; safe for
// concurrent use.
#ifndef MESHIFT_PLACEMENT_H_
#define MESHIFT_PLACEMENT_H_

#include <algorithm>
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
  enum class Kind : uint8_t { kReplicate, kShard, kPartial, kAt };
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

  // The listed coordinates of the mesh dim hold replicas, the others nothing: a root, the owner of
  // an expert, a pipeline stage. Sharding::Create turns At(all coordinates) into R.
  static Placement At(Sizes coordinates) {
    Placement p(Kind::kAt);
    p.sizes_ = std::move(coordinates);
    std::sort(p.sizes_.begin(), p.sizes_.end());
    return p;
  }

  Kind kind() const { return kind_; }
  bool IsReplicate() const { return kind_ == Kind::kReplicate; }
  bool IsShard() const { return kind_ == Kind::kShard; }
  bool IsPartial() const { return kind_ == Kind::kPartial; }
  bool IsAt() const { return kind_ == Kind::kAt; }
  bool IsRagged() const { return IsShard() && !sizes_.empty(); }
  int tensor_dim() const { return tensor_dim_; }       // REQUIRES: IsShard()
  const Sizes& sizes() const { return sizes_; }        // REQUIRES: IsShard()
  ReduceOp op() const { return op_; }                  // REQUIRES: IsPartial()
  const Sizes& coordinates() const { return sizes_; }  // ascending; REQUIRES: IsAt()
  // Whether coordinate i of the mesh dim holds anything. REQUIRES: IsAt().
  bool Holds(int64_t i) const { return std::binary_search(sizes_.begin(), sizes_.end(), i); }

  // "R", "S(0)", "S(0){3,0,5}", "P", "P(max)", "At(3,7)", without the position in the shard order,
  // which Sharding prints.
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
  Sizes sizes_;  // of a ragged shard; the coordinates of At
};

}  // namespace meshift

#endif  // MESHIFT_PLACEMENT_H_
