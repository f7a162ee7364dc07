#include "planner/cost/lower_bound.h"

#include <algorithm>
#include <optional>

#include "base/checked_math.h"
#include "planner/cost/lower_bound_task.h"
#include "planner/graph/transitions.h"

namespace meshift {
namespace {

// Of so many and more nothing is known but that they start.
constexpr int64_t kMaxCollectives = int64_t{1} << 20;

int64_t Clamp(__int128 value) {
  return value > INT64_MAX ? INT64_MAX : static_cast<int64_t>(value);
}

__int128 CeilDiv128(__int128 a, __int128 b) { return a / b + (a % b != 0 ? 1 : 0); }

// The time of any way to do a task in which something moves, but nothing is reduced.
class MoveBound {
 public:
  MoveBound(const Problem& problem, const CostModel& model, const Task& task)
      : problem_(problem),
        model_(model),
        task_(task),
        copies_(task.CopiesNeeded()),
        ranks_(problem.mesh().NumRanks()) {
    item_bytes_ = problem.least_item_bytes();
    start_ns_ = model.LeastCollectiveNs();
    hops_ns_ = SaturatingMul(model.LeastHopNs(), Log2Ceil(model.GroupSize(task.dims())));
    average_ = Clamp(CeilDiv128(task.total(), ranks_));
    lacking_ = std::max(average_, task.lacking());
  }

  int64_t Ns() const {
    const int64_t one = SaturatingAdd(start_ns_, hops_ns_);
    if (problem_.num_stages() > 1) {  // and a cast
      return SaturatingAdd(SaturatingAdd(one, TransferNs(lacking_)), model_.CopyNs(0));
    }
    // One collective and a local step. A gather leaves all members of a group the same value, from
    // which local steps make the target of each; anything else takes a message from each rank that
    // has a part of it, and a copy of what stays. Either copies what comes if rows of it are joined
    // from several ranks' (unless each of its replicas sends a row).
    int64_t least = SaturatingAdd(
        one, std::max(MovesNs(1), SaturatingAdd(TransferNs(lacking_), model_.CopyNs(0))));
    const int64_t gather = std::max(
        least,
        SaturatingAdd(one, SaturatingAdd(TransferNs(task_.LeastGathered()), model_.CopyNs(0))));
    least = SaturatingAdd(least, SaturatingMul(model_.MessageNs(), task_.messages()));
    if (task_.replicas() == 1 && task_.kept() > 0) least = SaturatingAdd(least, model_.CopyNs(0));
    least = std::min(least, gather);
    if (copies_.joined_rows > task_.replicas()) {
      least = SaturatingAdd(least, model_.CopyNs(0));
    }
    // More collectives: with each, copies may become fewer. As many as `last` start no sooner than
    // `first`, and copy no less than the last.
    const int64_t plain = TransferNs(lacking_);
    for (int64_t first = 2, last = 2; last <= kMaxCollectives; first = last + 1, last *= 2) {
      const int64_t starts =
          SaturatingAdd(SaturatingMul(first, start_ns_),
                        std::max(hops_ns_, SaturatingMul(first, model_.LeastHopNs())));
      if (SaturatingAdd(starts, plain) >= least) break;
      least =
          std::min(least, SaturatingAdd(starts, last < kMaxCollectives ? MovesNs(last) : plain));
    }
    // One collective and nothing else.
    const State& source = problem_.source();
    const State& target = problem_.target();
    const std::optional<StepOp> op = CollectiveBetween(problem_, source, target, {});
    if (!op) return least;
    least = std::min(least, ExchangeNs(one));
    if (*op == StepOp::kAllGather || *op == StepOp::kPermute) {
      least = std::min(least, model_.Measure(*op, source, target).est_ns);
    }
    return least;
  }

 private:
  int64_t TransferNs(int64_t items) const {
    return model_.TransferNs(SaturatingMul(items, item_bytes_));
  }

  // Messages from any replicas, copies of what stays and of messages that are no runs.
  int64_t ExchangeNs(int64_t start) const {
    int64_t ns = SaturatingAdd(start, TransferNs(lacking_));
    ns = SaturatingAdd(ns, SaturatingMul(model_.MessageNs(), task_.messages()));
    const bool packs = copies_.torn_rows > 1;
    if (packs || task_.kept() > 0) {
      const int64_t copied = SaturatingAdd(task_.kept(), packs ? average_ : 0);
      ns = SaturatingAdd(ns, model_.CopyNs(SaturatingMul(copied, item_bytes_)));
    }
    if (copies_.joined_rows > 1) {
      ns = SaturatingAdd(ns, model_.CopyNs(SaturatingMul(task_.lacking(), item_bytes_)));
    }
    return ns;
  }

  // Transfers and copies of bytes in so many collectives and any local steps; the start of a copy
  // included.
  int64_t MovesNs(int64_t collectives) const {
    const int64_t plain = TransferNs(lacking_);
    // In a collective, messages end next to each other in fewer places of a rank's memory than it
    // has peers; there two rows may meet without being copied. A message may be a row, too.
    const __int128 free = copies_.row * collectives * ranks_ * ranks_;
    const __int128 once = std::max<__int128>(copies_.once - free, 0);
    const __int128 apiece = std::max<__int128>(copies_.apiece - free, 0);
    const int64_t message_rows = std::min(copies_.torn_rows, copies_.joined_rows);
    const __int128 twice =
        copies_.twice / message_rows * std::max<int64_t>(message_rows - collectives, 0);
    // Where to move a byte costs no more than to copy it, moves may save copies in other ways.
    if (once == 0 || PerRankCopyNs(copies_.once) > TransferNs(Clamp(copies_.once / ranks_))) {
      return plain;
    }
    // Rows of which a rank has a part are put together by itself, `share` of them, or come to it
    // whole, so that it gets its own part again. Items that are copied twice on a direct way may
    // take a detour to save one of the copies: only where receivers have time to spare, since a
    // copy costs less than a transfer. Convex in the share: one of its corners is least.
    constexpr int64_t kParts = 1024;
    const int64_t own = std::max<int64_t>(Clamp(TotalWanted() / ranks_) - average_, 0);
    const auto received = [&](int64_t share) {
      return SaturatingAdd(average_, MulDivFloor(own, kParts - share, kParts));
    };
    const auto copied = [&](int64_t share, int64_t received) {
      const __int128 spare =
          static_cast<__int128>(std::max<int64_t>(lacking_ - received, 0)) * ranks_;
      return std::max(once, apiece * share / kParts) + std::max<__int128>(twice - spare, 0);
    };
    const auto corner = [&](__int128 part, __int128 of) {
      if (of <= 0) return kParts;
      return static_cast<int64_t>(std::clamp<__int128>(part * kParts / of, 0, kParts));
    };
    const __int128 slack = static_cast<__int128>(average_) + own - lacking_;
    int64_t least = INT64_MAX;
    for (const int64_t share : {int64_t{0}, kParts, corner(once, apiece), corner(slack, own),
                                corner(slack + twice / ranks_, own)}) {
      // Shares are rounded: no less than what lies between two of them.
      const int64_t next = received(std::min(share + 1, kParts));
      least = std::min(least, SaturatingAdd(TransferNs(std::max(lacking_, next)),
                                            PerRankCopyNs(copied(share, next))));
    }
    return SaturatingAdd(least, model_.CopyNs(0));
  }
  __int128 TotalWanted() const {
    return static_cast<__int128>(problem_.MaxItems(problem_.target())) * ranks_;
  }
  static int64_t MulDivFloor(int64_t a, int64_t b, int64_t c) {
    return static_cast<int64_t>(static_cast<__int128>(a) * b / c);
  }
  int64_t PerRankCopyNs(__int128 items) const {
    return model_.CopyNs(SaturatingMul(Clamp(items / ranks_), item_bytes_)) - model_.CopyNs(0);
  }

  const Problem& problem_;
  const CostModel& model_;
  const Task& task_;
  const Task::Copies copies_;
  const int64_t ranks_;
  int64_t item_bytes_ = 0;
  int64_t start_ns_ = 0;
  int64_t hops_ns_ = 0;  // of the groups that must be reached
  int64_t average_ = 0;  // items
  int64_t lacking_ = 0;  // the most that a rank receives at least
};

}  // namespace

int64_t LeastBytesMoved(const Problem& problem) {
  return Clamp(Task(problem).total() * problem.least_item_bytes());
}

LowerBound LeastCost(const Problem& problem, const CostModel& model) {
  LowerBound bound;
  if (problem.source() == problem.target()) return bound;
  const Task task(problem);
  const __int128 bytes = task.total() * problem.least_item_bytes();
  bound.bytes_sent = Clamp(CeilDiv128(bytes, problem.mesh().NumRanks()));
  if (bound.bytes_sent == 0) {
    // A local step makes the target, or a collective, which brings at least half of it: only what a
    // gather takes from the rank itself is not moved. (Among uneven boxes, a permute may leave all
    // where they are.)
    const int64_t items = task.is_even() ? problem.MaxItems(problem.target()) : 0;
    const int64_t local_ns =
        model.CopyNs(problem.num_stages() > 1 ? 0 : problem.MaxBytes(problem.target()));
    const int64_t moved_ns = model.TransferNs(SaturatingMul(items / 2, problem.least_item_bytes()));
    bound.est_ns =
        std::min(local_ns, SaturatingAdd(model.LeastCollectiveNs() + model.LeastHopNs(), moved_ns));
  } else if (task.contributions() > 1) {
    bound.est_ns = SaturatingAdd(
        SaturatingAdd(model.LeastCollectiveNs(),
                      SaturatingMul(model.LeastHopNs(), Log2Ceil(model.GroupSize(task.dims())))),
        model.TransferNs(bound.bytes_sent));
  } else {
    bound.est_ns = MoveBound(problem, model, task).Ns();
  }
  return bound;
}

}  // namespace meshift
