// Gives a number to each list of cuts in a search, and caches its pieces along each tensor dim and
// its part of a State's code. A list has the mesh dims that cut one tensor dim, outermost first.
//
//   CutTable table(problem);
//   CutTable::List list = table.Append(CutTable::kNoCuts, 1);    // mesh dim 1 cuts
//   list = table.Append(list, 0);                                // and mesh dim 0 cuts its pieces
//   table.Along(list, k).longest;                                // longest piece of tensor dim k
//
// An *owner cut* leaves all pieces empty, except those of one coordinate of its mesh dim: a ceil
// cut of pieces of at most one item, or a ragged cut with one size that is not 0. It does not
// divide anything; it only says which ranks hold nothing, on whichever tensor dim it is. So the
// other cuts (the core), the owners and nothing else determine a rank's box.
//
// A state has one list per tensor dim; their mesh dims are disjoint. A box is a product of pieces,
// one per tensor dim, and so is the intersection of two boxes. The factors belong to lists, and are
// looked up here instead of being computed for every state.
//
// A few sample ranks give a lower bound for all ranks: the worst rank misses at least as many items
// of the target as any sample. A sample's coordinate on each mesh dim is the first or the last. For
// any two mesh dims, some sample is first on one and last on the other. So exchanging two cuts
// usually changes a sample's box.
//
// Lengths are in items (elements, or pairs of f4e2m1). Each new list charges the problem's budget,
// as do its pieces, and lists stay until the table is destroyed. The table does not stop when the
// budget is spent. Internal to the planner; not thread-safe.
#ifndef MESHIFT_PLANNER_SEARCH_CUT_TABLE_H_
#define MESHIFT_PLANNER_SEARCH_CUT_TABLE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "placement/cuts.h"
#include "planner/graph/state.h"

namespace meshift {

class CutTable {
 public:
  using List = int32_t;
  static constexpr List kNoCuts = 0;
  static constexpr int kMaxSamples = 4;  // one, and one for each bit of a mesh dim's number
  using Samples = std::array<int64_t, kMaxSamples>;
  static_assert(kMaxStateDims <= 1 << (kMaxSamples - 1));

  // REQUIRES: `problem` outlives the table.
  explicit CutTable(const Problem& problem);
  CutTable(const CutTable&) = delete;
  CutTable& operator=(const CutTable&) = delete;

  // Sample ranks of the problem. Entries of Samples beyond this number are undefined.
  int num_samples() const { return num_samples_; }
  // Lists made so far.
  int64_t num_lists() const { return static_cast<int64_t>(nodes_.size()); }

  // The list extended by mesh dim d, as its innermost cut. REQUIRES: d is not in the list; a ragged
  // cut (not kCeil) is appended only to kNoCuts, for a tensor dim that has it (Problem::HasCut).
  List Append(List list, int d, CutSizes sizes = CutSizes::kCeil) {
    const List next = sizes == CutSizes::kCeil ? at_[list].next[d] : ragged_[RaggedIndex(sizes)][d];
    return next != kNoCuts ? next : Make(list, d, sizes);
  }
  List Parent(List list) const { return at_[list].parent; }  // without the innermost cut
  // The longest common prefix.
  List Common(List a, List b) const {
    while (a != b) {
      if (size(a) >= size(b)) {
        a = Parent(a);
      } else {
        b = Parent(b);
      }
    }
    return a;
  }
  int size(List list) const { return at_[list].size; }
  int last(List list) const { return at_[list].last; }         // the mesh dim of the innermost cut
  CutSizes sizes(List list) const { return at_[list].sizes; }  // of that cut
  DimMask dims(List list) const { return at_[list].dims; }
  // The part of a State's code that says that `list` cuts tensor dim k.
  uint64_t Code(List list, int k) const {
    return at_[list].code + static_cast<uint64_t>(k) * at_[list].code_per_tensor_dim;
  }

  // The pieces of one tensor dim under one list.
  struct Pieces {
    int64_t longest;
    List core;        // without owner cuts
    uint32_t owners;  // of the owner cuts (OwnerBit)
    Samples begin;
    Samples end;
    Samples length;
    Samples wanted;  // items in common with the sample's piece in the target
  };
  // Valid as long as the table.
  const Pieces& Along(List list, int k) {
    const Pieces* pieces = along_[list * rank_ + k];
    return pieces != nullptr ? *pieces : MakePieces(list, k);
  }

  // Whether each rank's piece of tensor dim k under `inner` is empty or part of its piece under
  // `outer`. REQUIRES: both are cores.
  bool Covers(List outer, List inner, int k) const {
    return Common(outer, inner) == outer || (problem_.HasRagged() && CoversAll(outer, inner, k));
  }

  // Mesh dims that data along tensor dim k must cross to get from the pieces of `list` to those of
  // the target. Ranks that differ in such a mesh dim alone need the same target piece, and each
  // item of it is held at only one coordinate of that mesh dim. Or only one coordinate holds
  // anything. 0 if a cut is ragged, or a target piece may be empty.
  DimMask Across(List list, int k) {
    return fills_target_ ? (dims(list) & ~dims(target_lists_[k])) | Along(list, k).owners : 0;
  }

  // Items that the target has, per sample, along tensor dim k.
  const Samples& Target(int k) const { return target_[k]; }

 private:
  struct Node {
    List parent = kNoCuts;
    int8_t size = 0;
    int8_t last = -1;
    CutSizes sizes = CutSizes::kCeil;
    DimMask dims = 0;
    uint64_t code = 0;
    uint64_t code_per_tensor_dim = 0;
    std::array<List, kMaxStateDims> next = {};
  };
  static int RaggedIndex(CutSizes sizes) { return sizes == CutSizes::kSource ? 0 : 1; }
  List Make(List list, int d, CutSizes sizes);
  const Pieces& MakePieces(List list, int k);
  // A bit for the mesh dim and coordinate that own all pieces of a ragged cut; 0: it is not an
  // owner cut. Bit d: coordinate 0 of mesh dim d, as for ceil cuts. The others follow: first those
  // of the source's cuts, then those of the target's.
  uint32_t OwnerBit(int d, CutSizes sizes) const;
  // Covers() by comparing all pieces.
  bool CoversAll(List outer, List inner, int k) const;
  Interval PieceAt(List list, int k, absl::Span<const int64_t> at) const;
  // Whether nothing is ragged, and no rank at first or last coordinates has an empty target box.
  bool FillsTarget(const CutLists& target) const;
  static bool IsLast(int sample, int d) { return sample > 0 && (d >> (sample - 1) & 1) != 0; }
  // Each sample's piece of [begin, end) under a cut by mesh dim d.
  void CutSamples(int d, CutSizes sizes, const Samples& begin, const Samples& end,
                  Samples* new_begin, Samples* new_end) const;

  const Problem& problem_;
  const int num_samples_;
  const size_t rank_;
  absl::InlinedVector<Node, 16> nodes_;
  const Node* at_ = nodes_.data();  // read without a test of where an InlinedVector's data lies
  std::array<std::array<List, kMaxStateDims>, 2> ragged_ = {};  // as Node::next
  std::array<Samples, kMaxTensorRank> target_begin_;
  std::array<Samples, kMaxTensorRank> target_end_;
  std::array<Samples, kMaxTensorRank> target_;
  std::array<List, kMaxTensorRank> target_lists_ = {};
  bool fills_target_ = false;
  std::deque<Pieces> pieces_;                         // its elements do not move
  absl::InlinedVector<const Pieces*, 4 * 16> along_;  // by list, then tensor dim
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_SEARCH_CUT_TABLE_H_
