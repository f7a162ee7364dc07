// The lists of cuts that a search meets, a small number each, with what it needs to know of them.
//
//   CutTable table(problem);
//   CutTable::List list = table.Append(CutTable::kNoCuts, 1);    // mesh dim 1 cuts
//   list = table.Append(list, 0);                                // and mesh dim 0 cuts its pieces
//   table.Along(list, k).longest;                                // longest piece of tensor dim k
//
// A state is one list per tensor dim, whose mesh dims are disjoint; a box is a product of pieces.
// What a box has in common with another is thus a product of numbers that belong to a list each,
// looked up here instead of being computed for every state.
//
// Some ranks stand for all: *samples*, whose coordinate on each mesh dim is the first or the last.
// Any two mesh dims differ in some sample, so that cuts that merely change places are seen. What a
// sample lacks, the worst rank lacks at least.
//
// A CutTable belongs to one search. Not safe for concurrent use.
#ifndef MESHIFT_PLANNER_SEARCH_CUT_TABLE_H_
#define MESHIFT_PLANNER_SEARCH_CUT_TABLE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/inlined_vector.h"
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

  // Of the problem; what Samples have beyond these is never looked at.
  int num_samples() const { return num_samples_; }
  // Lists that were made so far.
  int64_t num_lists() const { return static_cast<int64_t>(nodes_.size()); }

  // The list with mesh dim d behind its cuts. REQUIRES: d is not in it; other sizes than kCeil only
  // behind kNoCuts, and on a tensor dim that has them (Problem::HasCut).
  List Append(List list, int d, CutSizes sizes = CutSizes::kCeil) {
    const List next = sizes == CutSizes::kCeil ? at_[list].next[d] : ragged_[RaggedIndex(sizes)][d];
    return next != kNoCuts ? next : Make(list, d, sizes);
  }
  List Parent(List list) const { return at_[list].parent; }  // without the innermost cut
  // What both begin with.
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
  // What cuts of tensor dim k by `list` are in a State's code.
  uint64_t Code(List list, int k) const {
    return at_[list].code + static_cast<uint64_t>(k) * at_[list].code_per_tensor_dim;
  }

  // The pieces of one tensor dim under one list.
  struct Pieces {
    int64_t longest;
    Samples begin;
    Samples end;
    Samples length;
    Samples wanted;  // of the piece that the sample has in the target
  };
  const Pieces& Along(List list, int k) {
    const Pieces* pieces = at_[list].along[k];
    return pieces != nullptr ? *pieces : MakePieces(list, k);
  }

  // Mesh dims that the target's pieces of tensor dim k must come across from those under `list`:
  // ranks that differ in nothing else want the same piece, of which one of them has nothing.
  DimMask Across(List list, int k) const {
    return fills_target_ ? dims(list) & ~dims(target_lists_[k]) : 0;
  }

  // Items that the target has, per sample, along tensor dim k.
  const Samples& Target(int k) const { return target_[k]; }

 private:
  static constexpr size_t kBlock = 16;  // pieces, and lists' pointers, that are allocated at once
  struct Node {
    List parent = kNoCuts;
    int8_t size = 0;
    int8_t last = -1;
    CutSizes sizes = CutSizes::kCeil;
    DimMask dims = 0;
    uint64_t code = 0;
    uint64_t code_per_tensor_dim = 0;
    std::array<List, kMaxStateDims> next = {};
    const Pieces** along = nullptr;  // by tensor dim
  };
  static int RaggedIndex(CutSizes sizes) { return sizes == CutSizes::kSource ? 0 : 1; }
  List Make(List list, int d, CutSizes sizes);
  const Pieces& MakePieces(List list, int k);
  const Pieces** NewPointers();
  Pieces* NewPieces();
  // Whether no rank's box in the target is empty, of those at the first or last coordinate of each
  // mesh dim, and nothing is ragged.
  bool FillsTarget(const CutLists& target) const;
  static bool IsLast(int sample, int d) { return sample > 0 && (d >> (sample - 1) & 1) != 0; }
  // Each sample's piece of [begin, end) under a cut by mesh dim d.
  void CutSamples(int d, CutSizes sizes, const Samples& begin, const Samples& end,
                  Samples* new_begin, Samples* new_end) const;

  const Problem& problem_;
  const int num_samples_;
  absl::InlinedVector<Node, kBlock> nodes_;
  // Where they lie: read without asking whether that is inside.
  const Node* at_ = nodes_.data();
  std::array<std::array<List, kMaxStateDims>, 2> ragged_ = {};  // as Node::next
  std::array<Samples, kMaxTensorRank> target_begin_;
  std::array<Samples, kMaxTensorRank> target_end_;
  std::array<Samples, kMaxTensorRank> target_;
  std::array<List, kMaxTensorRank> target_lists_ = {};
  bool fills_target_ = false;
  // Memory that stays where it is: first what is here, then blocks.
  std::array<Pieces, kBlock> first_pieces_;
  std::array<const Pieces*, 4 * kBlock> first_pointers_;
  std::vector<std::unique_ptr<Pieces[]>> piece_blocks_;
  std::vector<std::unique_ptr<const Pieces*[]>> pointer_blocks_;
  Pieces* pieces_ = first_pieces_.data();
  const Pieces** pointers_ = first_pointers_.data();
  size_t free_pieces_ = first_pieces_.size();
  size_t free_pointers_ = first_pointers_.size();
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_SEARCH_CUT_TABLE_H_
