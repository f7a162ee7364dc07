// Collectives made of messages where all pieces are alike: a closed form, whatever the number of
// ranks.
#include <algorithm>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "base/checked_math.h"
#include "planner/cost/cost.h"
#include "planner/cost/cost_cuts.h"

namespace meshift {

namespace {

// A cut behind the common beginning: its mesh dim, the pieces that it cuts, and those it makes.
struct Level {
  int dim = 0;
  int64_t whole = 0;
  int64_t piece = 0;
};
using Levels = absl::InlinedVector<Level, kMaxStateDims>;

// The cuts of `list` behind the first `common`; false where pieces are not all alike.
bool LevelsOf(const Problem& problem, const CutLists::List& list, int common, int64_t extent,
              Levels* levels) {
  for (int i = common; i < list.size; ++i) {
    const int64_t n = problem.size(list[i]);
    if (extent % n != 0) return false;
    levels->push_back({list[i], extent, extent / n});
    extent /= n;
  }
  return true;
}

// Whether of any two pieces, one before and one after, one is whole parts of the other.
bool Nest(const Levels& before, const Levels& after) {
  for (const Level& a : before) {
    for (const Level& b : after) {
      if (a.piece % b.piece != 0 && b.piece % a.piece != 0) return false;
    }
  }
  return true;
}

// One tensor dim on which something moves.
struct EvenDim {
  int64_t old_piece = 0;
  int64_t new_piece = 0;
  int64_t message = 0;
  int64_t taken = 0;  // of a sender's piece, by its receivers
  bool some_sender_keeps_nothing = false;
  bool some_keeps_nothing = false;
};

// A piece's place is a number in a mixed radix, whose digits are the coordinates of its cuts. What
// a sender's receivers take of its piece is what has the sender's own digits where its receivers'
// are fixed: there no cut was before the step. If pieces nest, that is as much for all senders of
// which something is taken, and a rank keeps as much as messages have, or nothing: where some digit
// of its piece after is not that of its place before. Such a digit may be any, unless it is that of
// the same mesh dim, at the same place, before.
EvenDim Look(const Levels& old_levels, const Levels& new_levels, int64_t extent,
             DimMask cut_before) {
  EvenDim even;
  even.old_piece = old_levels.empty() ? extent : old_levels.back().piece;
  even.new_piece = new_levels.empty() ? extent : new_levels.back().piece;
  even.message = std::min(even.old_piece, even.new_piece);
  even.taken = even.old_piece;
  for (const Level& level : new_levels) {
    const bool is_fixed = !HasDim(cut_before, level.dim);
    if (is_fixed && level.piece < even.old_piece) {
      even.taken /= std::min(level.whole, even.old_piece) / level.piece;
    }
    if (level.whole <= even.old_piece) continue;  // a digit inside a piece before
    const bool same = std::any_of(old_levels.begin(), old_levels.end(), [&](const Level& old) {
      return old.dim == level.dim && old.piece == level.piece;
    });
    even.some_keeps_nothing |= !same;
    even.some_sender_keeps_nothing |= !same && !is_fixed;
  }
  return even;
}

}  // namespace

bool CostModel::MeasureEvenMessages(StepOp op, const CutLists& before, const CutLists& after,
                                    int64_t item_bytes, Traffic* traffic) const {
  DimMask cut_before = 0;
  DimMask cut_after = 0;
  absl::InlinedVector<int, 8> common;
  for (int k = 0; k < problem_.tensor_rank(); ++k) {
    if (problem_.extent(k) == 0) return true;
    common.push_back(CommonLength(before.of[k], after.of[k]));
    for (int i = common[k]; i < before.of[k].size; ++i) {
      cut_before |= DimMask{1} << before.of[k][i];
    }
    for (int i = common[k]; i < after.of[k].size; ++i) cut_after |= DimMask{1} << after.of[k][i];
  }
  int64_t still = item_bytes;  // times the items along tensor dims that nothing moves
  const int64_t copies = GroupSize(cut_before & ~cut_after);
  int64_t sent = copies;
  int64_t received = 1;
  int64_t kept = 1;
  int64_t volume = 1;
  int64_t sent_messages = copies;
  int64_t received_messages = 1;
  // Of the ranks that send the most, and of all, whether some keeps nothing; else all keep alike.
  bool some_sender_keeps_nothing = false;
  bool some_keeps_nothing = false;
  bool is_long = false;  // messages have more than one index along some dim so far
  bool send_packs = false;
  bool receive_packs = false;
  for (int k = 0; k < problem_.tensor_rank(); ++k) {
    const CutLists::List& list = before.of[k];
    if (common[k] > 0 && list.outermost != CutSizes::kCeil) return false;
    const bool moves = common[k] < list.size || common[k] < after.of[k].size;
    int64_t extent = problem_.extent(k);
    for (int i = 0; i < common[k]; ++i) {
      const int64_t n = problem_.size(list[i]);
      if (moves && extent % n != 0) return false;
      extent = CeilDiv(extent, n);
    }
    if (!moves) {
      still = SaturatingMul(still, extent);
      is_long |= extent > 1;
      continue;
    }
    Levels old_levels;
    Levels new_levels;
    if (!LevelsOf(problem_, list, common[k], extent, &old_levels) ||
        !LevelsOf(problem_, after.of[k], common[k], extent, &new_levels) ||
        !Nest(old_levels, new_levels)) {
      return false;
    }
    const EvenDim even = Look(old_levels, new_levels, extent, cut_before);
    sent = SaturatingMul(sent, even.taken);
    sent_messages *= even.taken / even.message;
    received *= even.new_piece;
    received_messages *= even.new_piece / even.message;
    kept *= even.message;
    volume *= even.old_piece;
    some_keeps_nothing |= even.some_keeps_nothing;
    some_sender_keeps_nothing |= even.some_sender_keeps_nothing;
    send_packs |= is_long && even.message < even.old_piece;
    receive_packs |= is_long && even.message < even.new_piece;
    is_long |= even.message > 1;
  }
  const auto bytes = [still](int64_t items) { return SaturatingMul(items, still); };
  if (op == StepOp::kPermute) {
    traffic->bytes_sent = bytes(volume);
    traffic->bytes_received = traffic->bytes_sent;
    traffic->messages = 1;
    return true;
  }
  const int64_t self = some_keeps_nothing ? 0 : 1;
  const int64_t sender_self = some_sender_keeps_nothing ? 0 : 1;
  traffic->bytes_sent = bytes(sent - sender_self * kept);
  traffic->bytes_received = bytes(received - self * kept);
  traffic->bytes_kept = bytes(kept);
  traffic->messages = std::max(sent_messages - sender_self, received_messages - self);
  traffic->send_packs = send_packs;
  traffic->receive_packs = receive_packs;
  return true;
}

}  // namespace meshift
