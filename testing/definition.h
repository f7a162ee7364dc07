// The definition oracle: what every rank must hold, straight from the placements. It shares no code
// with planners and engines, and goes by one sentence: a partial value is the op over its group.
//
//   MESHIFT_ASSIGN_OR_RETURN(Oracle oracle, Oracle::Create(from, to));
//   const Fill fill{.values = Values::kExact, .seed = 7};
//   std::vector<std::vector<std::byte>> in(ranks), out(ranks);
//   for (int64_t p = 0; p < ranks; ++p) {
//     in[p].resize(oracle.SourceBytes(p));
//     MESHIFT_RETURN_IF_ERROR(oracle.FillSource(fill, p, absl::MakeSpan(in[p])));
//   }
//   ...                                            // run what is to be tested: in -> out
//   std::vector<absl::Span<const std::byte>> views(out.begin(), out.end());
//   MESHIFT_ASSIGN_OR_RETURN(CheckResult result, oracle.Check(fill, views));
//   // result.ok(), or result.first_wrong: "rank 5 holds 3 (0x4040) at [1,2], not 2 (0x4000)"
//
// Ranks are named by their position in the mesh (DeviceMesh::PositionOf); on a row-major mesh
// that is the rank. A local tensor is the row-major content of the rank's box; buffers need no
// alignment. Of f4e2m1, pairs are moved, and counted, as one.
//
// Values are a function of (seed, element, partial coordinate), so ranks may be filled one by one,
// also in different processes. Filling takes O(1) per element of the rank, checking O(1) per
// element that any rank holds and up to 8 steps (kRounding: one per partial coordinate) per element
// of the tensor.
#ifndef MESHIFT_TESTING_DEFINITION_H_
#define MESHIFT_TESTING_DEFINITION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "meshift/dtype.h"
#include "meshift/sharding.h"
#include "testing/values.h"

namespace meshift::testkit {

struct Fill {
  Values values = Values::kExact;
  uint64_t seed = 0;
};

struct CheckResult {
  // Elements, over all ranks, whose value is not the definition's. Where the target is partial, the
  // op over the first replica of each partial coordinate must give the tensor; an element for which
  // it does not counts once.
  int64_t wrong = 0;
  // Pairs (element, partial coordinate of the target) for which two ranks hold different bits.
  int64_t replicas_differ = 0;
  std::string first_wrong;       // empty: none
  std::string first_difference;  // "ranks 0 and 5 differ at [1,2]: 3 (0x4040) and 2 (0x4000)"

  bool ok() const { return wrong == 0 && replicas_differ == 0; }
  // Adds the counts of another check; what was wrong first stays.
  void Add(const CheckResult& other);
  // "", or the counts with what is wrong first.
  std::string ToString() const;
};

// An immutable value. Safe for concurrent use.
class Oracle {
 public:
  // The meshes may be two, and the target's dtype another. INVALID_ARGUMENT: another shape, a mesh
  // dim whose partial op changes, S -> P(avg), a cast or a reduction that there is not. O(ranks of
  // the target).
  //
  // Where a reduction takes place, contributions are cast to the reduce dtype, reduced in it, and
  // the result is cast to the target's; else elements are cast at once. `reduce_dtype` nullopt: the
  // default of docs/plan_format.md. Mesh dims that are partial on both sides keep their
  // contributions where all casts are exact, and are reduced and made anew where not.
  static absl::StatusOr<Oracle> Create(const Sharding& source, const Sharding& target,
                                       std::optional<DType> reduce_dtype = std::nullopt);

  // REQUIRES: a position of the source's mesh, of the target's.
  int64_t SourceBytes(int64_t position) const;
  int64_t TargetBytes(int64_t position) const;

  // Writes the local source tensor of the rank at `position`. INVALID_ARGUMENT: no such position,
  // or `local` has not SourceBytes(position).
  absl::Status FillSource(const Fill& fill, int64_t position, absl::Span<std::byte> local) const;

  // Writes a right local target tensor: of a new partial mesh dim coordinate 0 has the value and
  // the others the op's identity (avg: all have the value); of one that stays partial each
  // coordinate has what its own contributions give. O(partial coordinates) per element.
  absl::Status MakeTarget(const Fill& fill, int64_t position, absl::Span<std::byte> local) const;

  // Judges all ranks' targets, by position. INVALID_ARGUMENT: a wrong number or size of buffers.
  absl::StatusOr<CheckResult> Check(const Fill& fill,
                                    absl::Span<const absl::Span<const std::byte>> targets) const;

  const Sharding& source() const;
  const Sharding& target() const;

 private:
  struct Rep;
  explicit Oracle(std::shared_ptr<const Rep> rep) : rep_(std::move(rep)) {}
  std::shared_ptr<const Rep> rep_;
};

}  // namespace meshift::testkit

#endif  // MESHIFT_TESTING_DEFINITION_H_
