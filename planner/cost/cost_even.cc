// Collectives made of messages where all pieces are alike: a closed form, whatever the number of
// ranks.
#include <algorithm>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "base/checked_math.h"
#include "planner/cost/cost.h"
#include "planner/cost/messages.h"

namespace meshift::cost_internal {
namespace {

// A cut behind the common beginning: its mesh dim, the pieces that it cuts, and those it makes.
struct Level {
  int dim = 0;
  int64_t whole = 0;
  int64_t piece = 0;
};
using Levels = absl::InlinedVector<Level, kMaxStateDims>;

// REQUIRES: all pieces are alike.
Levels LevelsOf(const Problem& problem, const CutLists::List& list, int common, int64_t extent) {
  Levels levels;
  for (int i = common; i < list.size; ++i) {
    const int64_t piece = extent / problem.size(list[i]);
    levels.push_back({list[i], extent, piece});
    extent = piece;
  }
  return levels;
}

// Whether of any two pieces, one before and one after, one is whole parts of the other.
bool Nests(const Levels& before, const Levels& after) {
  for (const Level& a : before) {
    for (const Level& b : after) {
      if (a.piece % b.piece != 0 && b.piece % a.piece != 0) return false;
    }
  }
  return true;
}

// One tensor dim on which something moves.
//
// A piece's place is a number in a mixed radix, whose digits are the coordinates of its cuts. What
// a sender's receivers take of its piece is what has the sender's own digits where its receivers'
// are fixed: there no cut was before the step. If pieces nest, that is as much for all senders of
// which something is taken, and a rank keeps as much as messages have, or nothing: where some digit
// of its piece after is not that of its place before. Such a digit may be any, unless it is that of
// the same mesh dim, at the same place, before.
struct EvenDim {
  EvenDim(const Problem& problem, const CutLists::List& before, const CutLists::List& after,
          int common, DimMask spread, int64_t extent) {
    const Levels old_levels = LevelsOf(problem, before, common, extent);
    const Levels new_levels = LevelsOf(problem, after, common, extent);
    nests = Nests(old_levels, new_levels);
    if (!nests) return;
    old_piece = old_levels.empty() ? extent : old_levels.back().piece;
    new_piece = new_levels.empty() ? extent : new_levels.back().piece;
    message = std::min(old_piece, new_piece);
    taken = old_piece;
    for (const Level& level : new_levels) {
      const bool is_fixed = !HasDim(spread, level.dim);
      if (is_fixed && level.piece < old_piece) {
        taken /= std::min(level.whole, old_piece) / level.piece;
      }
      if (level.whole <= old_piece) continue;  // a digit inside a piece before
      const bool same = std::any_of(old_levels.begin(), old_levels.end(), [&](const Level& old) {
        return old.dim == level.dim && old.piece == level.piece;
      });
      some_keeps_nothing |= !same;
      some_sender_keeps_nothing |= !same && !is_fixed;
    }
  }
  int64_t longest() const { return message; }
  bool splits_old() const { return message < old_piece; }
  bool splits_new() const { return message < new_piece; }

  bool nests = false;
  int64_t old_piece = 0;
  int64_t new_piece = 0;
  int64_t message = 0;
  int64_t taken = 0;  // of a sender's piece, by its receivers
  bool some_sender_keeps_nothing = false;
  bool some_keeps_nothing = false;
};

}  // namespace

bool CountEven(const Moves& moves, Traffic* traffic) {
  const MovingDims<EvenDim> moving(moves);
  int64_t sent = moves.copies;
  int64_t received = 1;
  int64_t kept = 1;
  int64_t sent_messages = moves.copies;
  int64_t received_messages = 1;
  // Of the ranks that send the most, and of all, whether some keeps nothing; else all keep alike.
  bool some_sender_keeps_nothing = false;
  bool some_keeps_nothing = false;
  for (const auto& dims : moving.dims()) {
    const EvenDim& dim = dims.front();
    if (dims.size() > 1 || !dim.nests) return false;
    sent = SaturatingMul(sent, dim.taken);
    sent_messages *= dim.taken / dim.message;
    received *= dim.new_piece;
    received_messages *= dim.new_piece / dim.message;
    kept *= dim.message;
    some_keeps_nothing |= dim.some_keeps_nothing;
    some_sender_keeps_nothing |= dim.some_sender_keeps_nothing;
  }
  const int64_t self = some_keeps_nothing ? 0 : 1;
  const int64_t sender_self = some_sender_keeps_nothing ? 0 : 1;
  traffic->bytes_sent = moves.Bytes(sent - sender_self * kept);
  traffic->bytes_received = moves.Bytes(received - self * kept);
  traffic->bytes_kept = moves.Bytes(kept);
  traffic->messages = std::max(sent_messages - sender_self, received_messages - self);
  moving.SetPacks(traffic);
  return true;
}

}  // namespace meshift::cost_internal
