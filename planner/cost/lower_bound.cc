#include "planner/cost/lower_bound.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <vector>

#include "base/checked_math.h"
#include "meshift/dtype.h"
#include "meshift/sharding.h"
#include "planner/cost/group_shape.h"
#include "planner/graph/transitions.h"

namespace meshift {
namespace {

using Wide = __int128;
constexpr int64_t kMaxRanks = 4096;  // the largest single mesh of which every rank is examined
// Ranks (of each mesh) and domains whose flow is examined. On one mesh most ranks are equivalent.
constexpr int64_t kVisitedOnOne = 8, kVisitedOnTwo = 128, kDomainsOnOne = 3;
constexpr int64_t kMaxPairs = int64_t{1} << 15;  // pairs of boxes compared, over all domains

int64_t Clamp(Wide a) { return static_cast<int64_t>(std::min<Wide>(a, INT64_MAX)); }
int64_t DivUp(Wide a, Wide b) { return Clamp(a / b + (a % b != 0 ? 1 : 0)); }

// The product of the sizes of the mesh dims d with is(d).
template <typename Fn>
int64_t Sizes(const DeviceMesh& mesh, const Fn& is) {
  int64_t product = 1;
  for (int d = 0; d < mesh.NumDims(); ++d) product *= is(d) ? mesh.dim(d).size : 1;
  return product;
}

// Lower bounds of the elements that enter and leave a set of ranks.
struct Flow {
  std::array<bool, 2> splits = {};  // whether the mesh before (after) also has other ranks
  Wide in = 0, out = 0;
};

// The elements that any plan must move. Ranks that differ only on mesh dims that stay partial count
// as one holder: a plan may add their contributions, and give the sum to any of them.
struct Task {
  Task(const Sharding& from, const Sharding& to)
      : ends{&from, &to}, one_mesh(from.mesh() == to.mesh()), ranks(from.mesh().NumRanks()) {
    for (const int e : {0, 1}) {
      const Sharding& end = *ends[e];
      copies[e] = Sizes(end.mesh(), [&](int d) { return end.placement(d).IsReplicate(); });
      partial[e] = Sizes(end.mesh(), [&](int d) { return end.placement(d).IsPartial(); });
    }
    // Target elements that ranks hold already, added up over ranks; on large meshes an upper bound.
    const bool large = one_mesh && ranks > kMaxRanks;
    Wide kept = large ? Wide{ranks} * std::min(from.MaxLocalElements(), to.MaxLocalElements()) : 0;
    for (int64_t i = 0; !large && i < to.mesh().NumRanks(); ++i) {
      const std::optional<Coordinate> at = from.mesh().CoordinateOf(to.mesh().RankAt(i));
      if (at) kept += CommonElements(from.BoxAt(*at), to.BoxAt(to.mesh().CoordinateAt(i)));
      ranks += at ? 0 : 1;
    }
    const int64_t stay = Sizes(to.mesh(), [&](int d) {
      return one_mesh && from.placement(d).IsPartial() && to.placement(d).IsPartial();
    });
    masks = partial[1] > stay;
    if (masks) return;
    const Wide all = NumElements(to.shape());
    // Received: by holders that do not hold all contributions. Sent: each contribution, unless the
    // ranks that hold it are all of the holders after.
    const int64_t added = partial[0] / stay;
    const Wide received = all * copies[1] - (added == 1 ? kept / stay : 0);
    const Wide sent = all * partial[0] - (copies[1] > copies[0] ? 0 : kept / copies[1]);
    total = moved = std::max<Wide>({received, sent, 0});
    if (added == 1 || stay > 1) return;
    moved = all * (added - 1);  // fewer than `total`: switches may add
    // Ranks that have the same boxes, before and after.
    const int64_t same_box_ranks = Sizes(to.mesh(), [&](int d) {
      return one_mesh && to.placement(d).IsReplicate() && !from.placement(d).IsShard();
    });
    total = all * (copies[1] + added - 1) - std::min(all, kept / same_box_ranks);
  }

  // Two boxes of one sharding are equal or disjoint, so the flow is a sum over pairs of a box
  // before and one after. In: the values of holders all of whose ranks are in the set. Out:
  // contributions that no rank outside of the set holds, to holders outside.
  Flow FlowOf(const std::vector<int64_t>& some) const {
    struct Part {
      Box box;
      int64_t number = 0;  // before: contributions in the set; after: holders in it
      bool whole = false;  // before: the set has all copies of some contribution; after: all ranks
                           // of some holder
    };
    Flow flow;
    std::array<std::map<int64_t, Part>, 2> parts;  // before and after, by coordinates on cuts
    for (const int e : {0, 1}) {
      const DeviceMesh& mesh = ends[e]->mesh();
      int64_t size = 0;
      // Ranks by coordinates on cuts and by contribution (before) or holder (after).
      std::map<std::array<int64_t, 2>, int64_t> held;
      for (const int64_t rank : some) {
        const std::optional<Coordinate> at = mesh.CoordinateOf(rank);
        if (!at) continue;
        ++size;
        std::array<int64_t, 2> numbers = {};
        for (int d = 0; d < mesh.NumDims(); ++d) {
          const Placement& p = ends[e]->placement(d);
          if (e == 0 ? p.IsReplicate() : p.IsPartial()) continue;
          int64_t& number = numbers[p.IsShard() ? 0 : 1];
          number = number * mesh.dim(d).size + (*at)[d];
        }
        Part& part = parts[e][numbers[0]];
        if (part.number == 0) part.box = ends[e]->BoxAt(*at);
        const int64_t same = ++held[numbers];
        part.number += same == 1 ? 1 : 0;
        part.whole |= same == (e == 0 ? copies[0] : partial[1]);
      }
      flow.splits[e] = size > 0 && size < mesh.NumRanks();
    }
    for (const auto& [at, target] : parts[1])
      flow.in += target.whole ? target.box.NumElements() : 0;
    for (const auto& [at, source] : parts[0]) {
      if (source.whole) flow.out += source.box.NumElements();
      for (const auto& [other, target] : parts[1]) {
        const int64_t common = CommonElements(source.box, target.box);
        if (target.whole && source.number == partial[0]) flow.in -= common;
        if (source.whole && target.number == copies[1]) flow.out -= common;
      }
    }
    return flow;
  }

  std::array<const Sharding*, 2> ends;
  bool one_mesh, masks = false;  // masks: some mesh dim is partial in the target alone; no bound
  int64_t ranks;                 // of both meshes together
  // Before: copies of each contribution, contributions to each value. After: holders of each value,
  // ranks of each holder.
  std::array<int64_t, 2> copies = {}, partial = {};
  // Elements that all ranks together send; and those that must cross links, fewer if switches add.
  Wide total = 0, moved = 0;
};

// Facts about a problem with even boxes on one mesh; the defaults are valid for any problem. Let k
// be the last tensor dim whose number of pieces changes. A row is the part of a box after at one
// index of all tensor dims before k.
struct Shapes {
  bool even = false;
  int64_t reach = 2;   // product of the sizes of the mesh dims that data must cross
  int64_t joined = 1;  // rows of a box after to which one box before has a part
  int64_t row = 0;     // elements of a row
  Wide once = 0;       // elements of all rows but one of each box
};

Shapes ShapesOf(const Problem& problem) {
  const Sharding &from = problem.cut_from(), &to = problem.cut_to();
  const DeviceMesh& mesh = problem.mesh();
  Shapes shapes{.even = true};
  shapes.reach = Sizes(problem.mesh(), [&](int d) {
    return from.placement(d).IsPartial() && !to.placement(d).IsPartial();
  });
  int64_t elements = 1, common = 1, rows = 0;
  for (int k = 0; k < problem.tensor_rank(); ++k) {
    int64_t before = 1, after = 1;
    std::vector<int64_t> pieces(mesh.NumDims());  // by mesh dim: pieces up to its cut
    for (const int d : to.CutsOf(k)) pieces[d] = after *= mesh.dim(d).size;
    for (const int d : from.CutsOf(k)) {
      before *= mesh.dim(d).size;
      if (pieces[d] != before) shapes.reach *= mesh.dim(d).size;
    }
    const int64_t extent = to.shape()[k];
    if (extent == 0 || extent % before != 0 || extent % after != 0) return {};
    if (before != after) rows = elements;
    if (after < before) shapes.joined = common;
    elements *= extent / after;
    common *= std::gcd(extent / before, extent / after);
  }
  shapes.row = rows == 0 ? 0 : elements / rows;
  shapes.once = Wide{rows - 1} * shapes.row * (NumElements(to.shape()) / elements);
  return shapes;
}

// The least time of a plan without reductions on one mesh. `one_ns`: the least time of one
// collective. The minimum over: one collective; one and a local step; several collectives.
int64_t MoveNs(const Problem& problem, const CostModel& model, const Shapes& shapes,
               int64_t one_ns) {
  const int64_t ranks = problem.mesh().NumRanks();
  const int64_t start_ns = model.LeastCollectiveNs();
  // Each row is assembled by a copy, except at the rows where two messages of a collective meet.
  const Wide meet = Wide{shapes.row} * ranks * ranks;
  const Wide copied = std::max<Wide>(shapes.once - 2 * meet, 0) / ranks;
  const int64_t bytes = DivUp(copied * BitWidth(problem.cut_from().dtype()), 8);
  int64_t copy_ns = bytes == 0 ? 0 : model.CopyNs(bytes);
  // If moving a byte costs at most as much as copying it, further moves may replace copies.
  if (copy_ns - model.CopyNs(0) > model.TransferNs(bytes)) copy_ns = 0;
  int64_t least = SaturatingAdd(one_ns, std::max(copy_ns, model.CopyNs(0)));
  const auto copies = [&](int d) { return problem.cut_from().placement(d).IsReplicate(); };
  if (shapes.joined > Sizes(problem.mesh(), copies)) least = SaturatingAdd(least, model.CopyNs(0));
  // One more collective, or enough of them that nothing is copied.
  const int64_t many = meet == 0 ? 1 : std::max<int64_t>(DivUp(shapes.once, meet) - 1, 1);
  least = std::min({least, SaturatingAdd(one_ns, SaturatingAdd(start_ns, copy_ns)),
                    SaturatingAdd(one_ns, SaturatingMul(many, start_ns))});
  const State &source = problem.source(), &target = problem.target();
  const std::optional<StepOp> op = MoveBetween(problem, source, target);
  least = std::min(least, model.Measure(StepOp::kExchange, source, target).est_ns);
  return op ? std::min(least, model.Measure(*op, source, target).est_ns) : least;
}

int BitsOf(const Problem& problem) {
  int bits = INT32_MAX;
  for (int i = 0; i < problem.num_stages(); ++i) bits = std::min(bits, BitWidth(problem.dtype(i)));
  return bits;
}

// LeastCost() of shardings whose owners are cuts.
LowerBound LeastCostOnCuts(const Sharding& from, const Sharding& to, const CostModel& first,
                           const CostModel& second, int bits, int64_t reach) {
  const Task task(from, to);
  if (task.masks) return {};
  std::vector<int64_t> visited;
  for (const DeviceMesh* mesh : {&from.mesh(), &to.mesh()}) {
    const int64_t most = task.one_mesh ? kVisitedOnOne : kVisitedOnTwo;
    const int64_t step = mesh->NumRanks() / most | 1;  // odd, so that coordinates vary on all dims
    for (int64_t i = 0; i < mesh->NumRanks(); i += step) visited.push_back(mesh->RankAt(i));
  }
  std::sort(visited.begin(), visited.end());
  const Wide ranks = Wide{8} * task.ranks;  // in bits
  LowerBound bound{DivUp(task.total * bits, ranks),
                   Clamp(task.moved * bits * 1000 / (ranks * first.BestBandwidth(0)))};
  int64_t hops_ns = first.LeastHopNs() * Log2Ceil(std::max<int64_t>(reach, 2));
  int64_t left = kMaxPairs;
  for (int level = 0; level < first.topology().NumLevels(); ++level) {
    const int64_t size = level == 0 ? 1 : first.topology().level(level - 1).domain_size;
    int64_t next = 0;  // all ranks before it are done
    int64_t domains = level > 0 && task.one_mesh ? kDomainsOnOne : kMaxPairs;
    for (const int64_t rank : visited) {
      if (rank < next || size > left / size || domains-- <= 0) continue;
      left -= size * size;
      next = rank - rank % size + size;
      std::vector<int64_t> domain;
      for (int64_t r = next - size; r < next; ++r) {
        if (from.mesh().PositionOf(r) || to.mesh().PositionOf(r)) domain.push_back(r);
      }
      const Flow flow = std::ssize(domain) == task.ranks ? Flow() : task.FlowOf(domain);
      const Wide most = std::max(flow.in, flow.out) * bits;
      if (most == 0) continue;
      int64_t bandwidth = first.topology().level(level).bandwidth_bytes_per_us;
      if (flow.splits[0]) bandwidth = std::max(bandwidth, first.BestBandwidth(level));
      if (flow.splits[1]) bandwidth = std::max(bandwidth, second.BestBandwidth(level));
      const Wide links = Wide{8} * std::ssize(domain);
      bound.est_ns = std::max(bound.est_ns, Clamp(most * 1000 / (links * bandwidth)));
      bound.bytes_sent = std::max(bound.bytes_sent, DivUp(flow.out * bits, links));
      hops_ns = std::max(hops_ns, first.LeastHopNs(level));
    }
  }
  if (bound.bytes_sent == 0 && bound.est_ns == 0) return {};
  return {bound.bytes_sent, SaturatingAdd(first.LeastNs(bound.est_ns), hops_ns)};
}

}  // namespace

int64_t LeastBytesMoved(const Problem& problem) {
  return DivUp(Task(problem.cut_from(), problem.cut_to()).total * BitsOf(problem), 8);
}

LowerBound LeastCost(const Sharding& from, const Sharding& to, const CostModel& first,
                     const CostModel& second, int bits, int64_t reach) {
  const UnitDims units = UnitDims::Of({&from, &to});
  if (units.empty()) return LeastCostOnCuts(from, to, first, second, bits, reach);
  const absl::StatusOr<Sharding> cut_from = units.Expand(from);
  const absl::StatusOr<Sharding> cut_to = units.Expand(to);
  if (!cut_from.ok() || !cut_to.ok()) return {};
  return LeastCostOnCuts(*cut_from, *cut_to, first, second, bits, reach);
}

LowerBound LeastCost(const Problem& problem, const CostModel& model) {
  if (problem.source() == problem.target()) return {};
  const Shapes shapes = ShapesOf(problem);
  LowerBound bound = LeastCostOnCuts(problem.cut_from(), problem.cut_to(), model, model,
                                     BitsOf(problem), shapes.reach);
  if (bound.est_ns == 0) {
    // Either a local step makes the target, or a collective: half of an even box is received.
    const int64_t bytes = problem.num_stages() > 1 ? 0 : problem.MaxBytes(problem.target());
    const int64_t half_ns = shapes.even ? model.TransferNs(bytes / 2) : 0;
    bound.est_ns = std::min(model.CopyNs(bytes),
                            SaturatingAdd(model.LeastCollectiveNs() + model.LeastHopNs(), half_ns));
  } else if (problem.num_stages() > 1) {
    bound.est_ns = SaturatingAdd(bound.est_ns, model.CopyNs(0));
  } else if (!problem.cut_from().HasPartial()) {
    bound.est_ns = MoveNs(problem, model, shapes, bound.est_ns);
  }
  return bound;
}

}  // namespace meshift
