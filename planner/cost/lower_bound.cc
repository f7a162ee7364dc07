#include "planner/cost/lower_bound.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "base/checked_math.h"
#include "placement/box.h"
#include "placement/dtype.h"
#include "planner/cost/group_shape.h"
#include "planner/graph/transitions.h"

namespace meshift {
namespace {

constexpr int64_t kMaxRanks = 4096;              // that are looked at one by one
constexpr int64_t kMaxPairs = int64_t{1} << 17;  // of ranks, of all domains

using Wide = __int128;

// Rounds up, and saturates.
int64_t Div(Wide a, Wide b) {
  return static_cast<int64_t>(std::min<Wide>(a / b + (a % b != 0 ? 1 : 0), INT64_MAX));
}

// Elements of both.
int64_t Common(const Box& a, const Box& b) {
  int64_t elements = 1;
  for (size_t k = 0; k < a.size.size() && elements > 0; ++k) {
    const int64_t end = std::min(a.offset[k] + a.size[k], b.offset[k] + b.size[k]);
    elements *= std::max<int64_t>(end - std::max(a.offset[k], b.offset[k]), 0);
  }
  return elements;
}

// The sizes of the mesh dims d with is(d), multiplied.
template <typename Fn>
int64_t Sizes(const DeviceMesh& mesh, const Fn& is) {
  int64_t product = 1;
  for (int d = 0; d < mesh.NumDims(); ++d) product *= is(d) ? mesh.dim(d).size : 1;
  return product;
}

// The positions at the first or last coordinate of each mesh dim; of small meshes, if `all`, all.
std::vector<int64_t> SomePositions(const DeviceMesh& mesh, bool all) {
  std::vector<int64_t> some = {0};
  int64_t stride = 1;
  for (int d = mesh.NumDims(); d-- > 0; stride *= mesh.dim(d).size) {
    const int64_t size = mesh.dim(d).size;
    const auto known = static_cast<int64_t>(some.size());
    const bool each = all && mesh.NumRanks() <= kMaxRanks;
    for (int64_t c = each ? 1 : size - 1; c > 0 && c < size && known < kMaxRanks; ++c) {
      for (int64_t i = 0; i < known; ++i) some.push_back(some[i] + c * stride);
    }
  }
  return some;
}

// What must move, whatever the steps. Two boxes of one sharding are equal or have nothing in
// common: what ranks have together, of what they want, is a sum over pairs of distinct boxes.
struct Task {
  // Ranks of a domain, or one, and the elements that enter and leave it at least.
  struct Cut {
    int64_t ranks = 0;
    std::array<bool, 2> splits = {};  // whether the mesh before (after) has others, too
    Wide in = 0;
    Wide out = 0;
  };
  // A distinct box of some ranks.
  struct Part {
    std::array<int64_t, 2> name;  // by the coordinates on cuts, and on what stays partial
    Box box;
    absl::InlinedVector<int64_t, 1> held = {};  // contributions, one of each rank
    int64_t distinct = 0;                       // of them
    bool sole = false;                          // of one of them no other rank has a copy
  };

  Task(const Sharding& from, const Sharding& to)
      : ends{&from, &to}, one_mesh(from.mesh() == to.mesh()), ranks(from.mesh().NumRanks()) {
    for (const int e : {0, 1}) {
      const Sharding& end = *ends[e];
      copies[e] = Sizes(end.mesh(), [&](int d) { return end.placement(d).IsReplicate(); });
      contributions[e] =
          Sizes(end.mesh(), [&](int d) { return end.placement(d).IsPartial() && !Stays(d); });
    }
    const int64_t kinds = Sizes(from.mesh(), [&](int d) { return Stays(d); });
    const Wide elements = static_cast<Wide>(NumElements(to.shape())) * kinds;
    const Wide kept = MostKept();
    if (contributions[1] > 1 || elements == 0) return;
    total = elements * copies[1] - kept;
    if (contributions[0] == 1) return;
    // A message completes an element at each rank that wants it; besides, contributions - 2 must
    // have been merged before, one more where no rank that wants it has a contribution.
    const int64_t alike = Sizes(to.mesh(), [&](int d) {
      return one_mesh && to.placement(d).IsReplicate() && !from.placement(d).IsShard();
    });
    total = elements * (copies[1] + contributions[0] - 1) - std::min(elements, kept / alike);
  }

  bool Stays(int d) const {
    return one_mesh && ends[0]->placement(d).IsPartial() && ends[1]->placement(d).IsPartial();
  }

  // Of what each rank wants, what it has, added up; of large meshes no less. Counts the ranks.
  Wide MostKept() {
    const auto& [from, to] = ends;
    const DeviceMesh& mesh = to->mesh();
    Wide kept = 0;
    for (int64_t i = 0; (!one_mesh || ranks <= kMaxRanks) && i < mesh.NumRanks(); ++i) {
      const Coordinate after = mesh.CoordinateAt(i);
      const auto before = one_mesh ? after : from->mesh().CoordinateOf(mesh.RankAt(i));
      if (before) kept += Common(from->BoxAt(*before), to->BoxAt(after));
      ranks += before ? 0 : 1;
    }
    if (!one_mesh || ranks <= kMaxRanks) return kept;
    bool moves = false;
    for (int d = 0; d < mesh.NumDims(); ++d) {
      moves |= from->placement(d).IsShard() && to->placement(d).IsShard();
    }
    if (moves) return Wide{ranks} * std::min(from->MaxLocalElements(), to->MaxLocalElements());
    // Every box before meets every box after.
    return Wide{NumElements(to->shape())} * Sizes(mesh, [&, from = from, to = to](int d) {
             return !from->placement(d).IsShard() && !to->placement(d).IsShard();
           });
  }

  std::vector<Part> PartsOf(int e, absl::Span<const int64_t> some, Cut* cut) const {
    const DeviceMesh& mesh = ends[e]->mesh();
    std::vector<Part> parts;
    int64_t size = 0;
    for (const int64_t rank : some) {
      const std::optional<Coordinate> at = mesh.CoordinateOf(rank);
      if (!at) continue;
      ++size;
      std::array<int64_t, 2> name = {};
      int64_t contribution = 0;
      for (int d = 0; d < mesh.NumDims(); ++d) {
        const Placement& p = ends[e]->placement(d);
        if (p.IsReplicate()) continue;
        int64_t& number = p.IsShard() ? name[0] : Stays(d) ? name[1] : contribution;
        number = number * mesh.dim(d).size + (*at)[d];
      }
      auto part = std::find_if(parts.begin(), parts.end(),
                               [&](const Part& other) { return other.name == name; });
      if (part == parts.end()) part = parts.insert(part, Part{name, ends[e]->BoxAt(*at)});
      part->held.push_back(contribution);
      const int64_t same = std::count(part->held.begin(), part->held.end(), contribution);
      part->distinct += same == 1 ? 1 : 0;
      part->sole |= same == copies[e];
    }
    cut->splits[e] = size > 0 && size < mesh.NumRanks();
    return parts;
  }

  // If a rank of these wants an element, and they have not all contributions to it, a message with
  // it enters; if another rank wants it, and these alone have one of its contributions, one leaves.
  Cut CutOf(absl::Span<const int64_t> some) const {
    Cut cut{.ranks = static_cast<int64_t>(some.size())};
    const std::vector<Part> sources = PartsOf(0, some, &cut);
    const std::vector<Part> targets = PartsOf(1, some, &cut);
    for (const Part& target : targets) cut.in += target.box.NumElements();
    for (const Part& source : sources) {
      if (source.sole) cut.out += source.box.NumElements();
      for (const Part& target : targets) {
        if (source.name[1] != target.name[1]) continue;
        const int64_t common = Common(source.box, target.box);
        if (source.distinct == contributions[0]) cut.in -= common;
        if (source.sole && target.sole) cut.out -= common;
      }
    }
    return cut;
  }

  // Single ranks, at level 0; the domains below each other level.
  void ForEachCut(const Topology& topology,
                  absl::FunctionRef<void(int level, const Cut& cut)> fn) const {
    std::vector<int64_t> some;
    for (const Sharding* end : ends) {
      for (const int64_t i : SomePositions(end->mesh(), /*all=*/true)) {
        some.push_back(end->mesh().RankAt(i));
      }
    }
    std::sort(some.begin(), some.end());
    int64_t left = kMaxPairs;
    for (int level = 0; level < topology.NumLevels(); ++level) {
      const int64_t size = level == 0 ? 1 : topology.level(level - 1).domain_size;
      int64_t next = 0;
      for (const int64_t rank : some) {
        if (rank < next) continue;
        next = rank - rank % size + size;
        if (size > left / size) return;
        left -= size * size;
        std::vector<int64_t> domain;
        for (int64_t r = next - size; r < next; ++r) {
          if (ends[0]->mesh().PositionOf(r) || ends[1]->mesh().PositionOf(r)) domain.push_back(r);
        }
        fn(level, CutOf(domain));
      }
    }
  }

  // On one mesh: ranks of the smallest group, or of groups one after the other, that what some rank
  // needs is in: along mesh dims that cut the source, and of which it needs another coordinate.
  int64_t Reach() const {
    const auto& [from, to] = ends;
    const DeviceMesh& mesh = from->mesh();
    std::vector<bool> across(mesh.NumDims());
    const std::vector<int64_t> corners = SomePositions(mesh, /*all=*/false);
    for (int64_t i = 0; i < mesh.NumRanks() && ranks <= kMaxRanks; ++i) {
      const Coordinate at = mesh.CoordinateAt(i);
      const Box box = from->BoxAt(at);
      for (const int64_t position : corners) {
        const Coordinate corner = mesh.CoordinateAt(position);
        if (Common(box, to->BoxAt(corner)) == 0) continue;
        for (int d = 0; d < mesh.NumDims(); ++d) {
          if (from->placement(d).IsShard() && at[d] != corner[d]) across[d] = true;
        }
      }
    }
    return Sizes(mesh, [&, from = from](int d) {
      return across[d] || (from->placement(d).IsPartial() && !Stays(d));
    });
  }

  std::array<const Sharding*, 2> ends;  // before, after
  bool one_mesh;
  int64_t ranks;                              // of both meshes
  std::array<int64_t, 2> copies = {};         // of each contribution, of a box
  std::array<int64_t, 2> contributions = {};  // that are added; after: that a mask makes
  Wide total = 0;                             // elements that all ranks together send
};

int BitsOf(const Problem& problem) {
  int bits = INT32_MAX;
  for (int i = 0; i < problem.num_stages(); ++i) bits = std::min(bits, BitWidth(problem.dtype(i)));
  return bits;
}

// What must move, and the time of the cut that takes longest, with one start. `models`: of steps on
// each mesh.
LowerBound LeastMoves(const Task& task, std::array<const CostModel*, 2> models, int bits) {
  const CostModel& model = *models[0];
  LowerBound bound{Div(task.total * bits, Wide{8} * task.ranks), 0};
  // Each element that is sent is received, too. Contributions may be added on the way.
  const Wide average =
      task.contributions[0] > 1 ? 0 : Div(task.total, task.ends[1]->mesh().NumRanks());
  int64_t ns = Div(average * bits * 1000, Wide{8} * model.BestBandwidth(0));
  int64_t hop_ns =
      model.LeastHopNs() * Log2Ceil(task.one_mesh ? std::max<int64_t>(task.Reach(), 2) : 2);
  task.ForEachCut(model.topology(), [&](int level, const Task::Cut& cut) {
    const Wide most = std::max(cut.in, cut.out);
    if (most == 0) return;
    int64_t bandwidth = model.topology().level(level).bandwidth_bytes_per_us;
    for (const int e : {0, 1}) {
      if (cut.splits[e]) bandwidth = std::max(bandwidth, models[e]->BestBandwidth(level));
    }
    ns = std::max(ns, Div(most * bits * 1000, Wide{8} * cut.ranks * bandwidth));
    hop_ns = std::max(hop_ns, model.LeastHopNs(level));
    bound.bytes_sent = std::max({bound.bytes_sent, Div(cut.out * bits, Wide{8} * cut.ranks),
                                 Div(cut.in * bits, Wide{8} * std::max<int64_t>(
                                                                 task.ranks - cut.ranks, 1))});
  });
  bound.est_ns = SaturatingAdd(model.LeastCollectiveNs() + hop_ns, ns);
  return bound;
}

// The time on one mesh of what is only moved, where `one_ns` is that of one collective: that, if it
// does it alone; one and a local step; more of them. Rows of the target are its indices along the
// tensor dims before the last one that has another number of pieces than before. Each distinct row
// is put together by a copy, but where messages meet: fewer places of a rank than it has peers.
int64_t MoveNs(const Problem& problem, const CostModel& model, int64_t one_ns, int64_t copies) {
  const Sharding& from = problem.from();
  const Sharding& to = problem.to();
  Wide rows = 1;
  Wide rows_of_box = 0;
  Wide boxes = 1;
  bool even = true;
  Wide common = 1, joined = 1;
  for (int k = 0; k < problem.tensor_rank(); ++k) {
    Wide before = 1;
    Wide after = 1;
    for (const int d : from.CutsOf(k)) before *= from.mesh().dim(d).size;
    for (const int d : to.CutsOf(k)) after *= to.mesh().dim(d).size;
    even &= to.shape()[k] > 0 && to.shape()[k] % before == 0 && to.shape()[k] % after == 0;
    if (!even) break;
    if (before != after) rows_of_box = rows;
    if (after < before) joined = common;
    rows *= to.shape()[k] / after;
    boxes *= after;
    common *= std::gcd<int64_t, int64_t>(to.shape()[k] / before, to.shape()[k] / after);
  }
  const int64_t ranks = problem.mesh().NumRanks();
  const Wide row = rows_of_box == 0 ? 0 : NumElements(to.shape()) / rows_of_box / boxes;
  const Wide once = even && rows_of_box > 0 ? row * (rows_of_box - 1) * boxes : 0;
  // Of all but this many.
  const auto copy_ns = [&](Wide free) {
    const Wide items = std::max<Wide>(once - free, 0) / ranks;
    const auto bytes = static_cast<int64_t>(items * BitWidth(problem.from().dtype()) / 8);
    const int64_t ns = bytes == 0 ? 0 : model.CopyNs(bytes);
    // Where to move a byte costs no more than to copy it, moves may save copies.
    return ns > SaturatingAdd(model.CopyNs(0), model.TransferNs(bytes)) ? 0 : ns;
  };
  const State& source = problem.source();
  const State& target = problem.target();
  int64_t least = SaturatingAdd(one_ns, std::max(copy_ns(0), model.CopyNs(0)));
  if (even && joined > copies) least = SaturatingAdd(least, model.CopyNs(0));
  const int64_t start_ns = model.LeastCollectiveNs();
  least = std::min(least, SaturatingAdd(one_ns + start_ns, copy_ns(row * 2 * ranks * ranks)));
  if (once > 0) {
    const int64_t more = Div(once, row * ranks * ranks) - 1;
    least = std::min(least, SaturatingAdd(one_ns, SaturatingMul(start_ns, std::max<int64_t>(more, 1))));
  }
  const std::optional<StepOp> op = CollectiveBetween(problem, source, target, {});
  if (!op) return least;
  return std::min({least, model.Measure(*op, source, target).est_ns,
                   model.Measure(StepOp::kExchange, source, target).est_ns});
}

}  // namespace

int64_t LeastBytesMoved(const Problem& problem) {
  return Div(Task(problem.from(), problem.to()).total * BitsOf(problem), 8);
}

LowerBound LeastCost(const Problem& problem, const CostModel& model) {
  const Sharding& from = problem.from();
  const Sharding& to = problem.to();
  if (problem.source() == problem.target()) return {};
  const bool casts = problem.num_stages() > 1;
  const Task task(from, to);
  if (task.total == 0) {
    // A local step makes the target, or a collective: where all boxes are even, of what is not
    // there before, it brings half.
    bool even = true;
    for (const Sharding* end : {&from, &to}) {
      const int64_t pieces = Sizes(end->mesh(), [&](int d) { return end->placement(d).IsShard(); });
      even &= Wide{pieces} * end->MaxLocalElements() == NumElements(end->shape());
    }
    const int64_t bytes = casts ? 0 : problem.MaxBytes(problem.target());
    const int64_t half_ns = even ? model.TransferNs(bytes / 2) : 0;
    return {0, std::min(model.CopyNs(bytes),
                        SaturatingAdd(model.LeastCollectiveNs() + model.LeastHopNs(), half_ns))};
  }
  LowerBound bound = LeastMoves(task, {&model, &model}, BitsOf(problem));
  if (casts) {
    bound.est_ns = SaturatingAdd(bound.est_ns, model.CopyNs(0));
  } else if (task.contributions[0] == 1) {
    bound.est_ns = MoveNs(problem, model, bound.est_ns, task.copies[0]);
  }
  return bound;
}

LowerBound LeastCost(const Sharding& from, const Sharding& to, const CostModel& first,
                     const CostModel& second, int bits) {
  const Task task(from, to);
  return task.total == 0 ? LowerBound{} : LeastMoves(task, {&first, &second}, bits);
}

}  // namespace meshift
