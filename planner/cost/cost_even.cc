// Implements CountEven() of planner/cost/messages.h, which has its conditions: counts the messages
// between equal pieces in closed form, in a time that does not depend on the number of ranks.
#include <algorithm>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "base/checked_math.h"
#include "planner/cost/cost.h"
#include "planner/cost/messages.h"

namespace meshift::cost_internal {
namespace {

// A cut that moves: its mesh dim, and the lengths of the pieces that it divides and makes.
struct Level {
  int dim = 0;
  int64_t whole = 0;
  int64_t piece = 0;
};
using Levels = absl::InlinedVector<Level, kMaxStateDims>;

// REQUIRES: all pieces have equal lengths.
Levels LevelsOf(const Problem& problem, const CutLists::List& list, int common, int64_t extent) {
  Levels levels;
  for (int i = common; i < list.size; ++i) {
    const int64_t piece = extent / problem.size(list[i]);
    levels.push_back({list[i], extent, piece});
    extent = piece;
  }
  return levels;
}

// Whether the length of each piece before is a multiple or a divisor of that of each piece after.
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
// The index of a piece is a number in mixed radix; its digits are the coordinates of its cuts.
// Receivers share a sender's coordinates on the fixed mesh dims (those without a moving cut
// before). So they take the part of its piece whose digits on fixed mesh dims are the sender's. If
// pieces nest, this part has the same size for all senders from which anything is taken. A rank
// keeps either a part as long as a message, or nothing: nothing if its pieces before and after are
// disjoint. Some rank keeps nothing, unless each cut after that divides more than a piece before is
// also a cut before, of the same mesh dim.
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
      if (level.whole <= old_piece) continue;  // this cut is inside a piece before
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
  int64_t taken = 0;  // length that receivers take of a sender's piece
  bool some_sender_keeps_nothing = false;
  bool some_keeps_nothing = false;
};

}  // namespace

bool CountEven(const Moves& moves, Traffic* traffic) {
  const MovingTensorDims<EvenDim> moving(moves);
  int64_t sent = moves.copies;
  int64_t received = 1;
  int64_t kept = 1;
  int64_t sent_messages = moves.copies;
  int64_t received_messages = 1;
  // Whether some rank that sends the most, or some rank, keeps nothing. Otherwise all keep `kept`.
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
