#include "planner/cost/lower_bound.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "base/checked_math.h"
#include "mesh/device_mesh.h"
#include "placement/box.h"
#include "placement/dtype.h"
#include "planner/graph/transitions.h"
#include "planner/plan/crossing.h"

namespace meshift {
namespace {

constexpr int64_t kMaxRanks = 4096;              // that are looked at one by one
constexpr int64_t kMaxPairs = int64_t{1} << 17;  // of ranks, of all domains

__int128 CeilDiv128(__int128 a, __int128 b) { return a / b + (a % b != 0 ? 1 : 0); }
int64_t Clamp(__int128 value) {
  return value > INT64_MAX ? INT64_MAX : static_cast<int64_t>(value);
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

// All ranks of a mesh, or of a large one those at the first or last coordinate of each mesh dim.
void AddSomeRanks(const DeviceMesh& mesh, std::vector<int64_t>* ranks) {
  std::vector<int64_t> positions(mesh.NumRanks() <= kMaxRanks ? mesh.NumRanks() : 1);
  for (size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<int64_t>(i);
  int64_t stride = 1;
  for (int d = mesh.NumDims(); d-- > 0 && mesh.NumRanks() > kMaxRanks; stride *= mesh.dim(d).size) {
    const size_t size = mesh.dim(d).size > 1 && positions.size() < kMaxRanks ? positions.size() : 0;
    for (size_t i = 0; i < size; ++i) {
      positions.push_back(positions[i] + (mesh.dim(d).size - 1) * stride);
    }
  }
  for (const int64_t position : positions) ranks->push_back(mesh.RankAt(position));
}

// What must move, whatever the steps. Two boxes of one sharding are equal or have nothing in
// common: what ranks have together, of what they want, is a sum over pairs of distinct boxes.
struct Task {
  // Ranks of a domain, or one, and the elements that enter and leave it at least.
  struct Cut {
    int64_t ranks = 0;
    std::array<bool, 2> splits = {};  // whether the mesh before (after) has others, too
    __int128 in = 0, out = 0;
  };
  // A distinct box of some ranks.
  struct Part {
    int64_t number, kind;  // kind: the coordinates of mesh dims that stay partial
    Box box;
    absl::InlinedVector<int64_t, 1> held = {};  // contributions, one of each rank
    int64_t distinct = 0;                       // of them
    bool sole = false;                          // of one of them no other rank has a copy
  };

  Task(const Sharding& from, const Sharding& to, std::optional<__int128> most_kept = {})
      : ends{&from, &to}, one_mesh(from.mesh() == to.mesh()), ranks(from.mesh().NumRanks()) {
    for (const int end : {0, 1}) {
      const auto sizes = [&](const auto& is) {
        return Sizes(ends[end]->mesh(), [&](int d) { return is(ends[end]->placement(d), d); });
      };
      copies[end] = sizes([](const Placement& p, int) { return p.IsReplicate(); });
      contributions[end] =
          sizes([&](const Placement& p, int d) { return p.IsPartial() && !Stays(d); });
    }
    const int64_t kinds = Sizes(from.mesh(), [&](int d) { return Stays(d); });
    __int128 kept = most_kept.value_or(0);
    if (!most_kept) {
      for (int64_t i = 0; i < to.mesh().NumRanks(); ++i) {
        const auto at = from.mesh().CoordinateOf(to.mesh().RankAt(i));
        if (at) kept += Common(from.BoxAt(*at), to.BoxAt(to.mesh().CoordinateAt(i)));
        ranks += at ? 0 : 1;
      }
    }
    const __int128 elements = NumElements(to.shape());
    if (contributions[1] > 1 || elements == 0) return;
    total = elements * kinds * copies[1] - kept;
    if (contributions[0] == 1) return;
    // A message completes an element at each rank that wants it; besides, contributions - 2 must
    // have been merged before, one more where no rank that wants it has a contribution.
    const int64_t alike = Sizes(to.mesh(), [&](int d) {
      return one_mesh && to.placement(d).IsReplicate() && !from.placement(d).IsShard();
    });
    total = elements * kinds * (copies[1] + contributions[0] - 1) -
            std::min(elements * kinds, kept / alike);
  }

  bool Stays(int d) const {
    return one_mesh && ends[0]->placement(d).IsPartial() && ends[1]->placement(d).IsPartial();
  }

  std::vector<Part> PartsOf(int end, absl::Span<const int64_t> some, Cut* cut) const {
    const Sharding& sharding = *ends[end];
    std::vector<Part> parts;
    int64_t size = 0;
    for (const int64_t rank : some) {
      const std::optional<Coordinate> at = sharding.mesh().CoordinateOf(rank);
      if (!at) continue;
      ++size;
      std::array<int64_t, 3> numbers = {};  // of the box, the contribution, what stays partial
      for (int d = 0; d < sharding.mesh().NumDims(); ++d) {
        const Placement& p = sharding.placement(d);
        if (p.IsReplicate()) continue;
        int64_t& number = numbers[p.IsShard() ? 0 : Stays(d) ? 2 : 1];
        number = number * sharding.mesh().dim(d).size + (*at)[d];
      }
      auto part = std::find_if(parts.begin(), parts.end(), [&](const Part& p) {
        return p.number == numbers[0] && p.kind == numbers[2];
      });
      if (part == parts.end()) {
        part = parts.insert(part, Part{numbers[0], numbers[2], sharding.BoxAt(*at)});
      }
      part->held.push_back(numbers[1]);
      const auto same = std::count(part->held.begin(), part->held.end(), numbers[1]);
      part->distinct += same == 1 ? 1 : 0;
      part->sole |= same == copies[end];
    }
    cut->splits[end] = size > 0 && size < sharding.mesh().NumRanks();
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
        if (source.kind != target.kind) continue;
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
    for (const Sharding* end : ends) AddSomeRanks(end->mesh(), &some);
    std::sort(some.begin(), some.end());
    int64_t left = kMaxPairs;
    std::vector<int64_t> domain;
    for (int level = 0; level < topology.NumLevels(); ++level) {
      const int64_t size = level == 0 ? 1 : topology.level(level - 1).domain_size;
      int64_t next = 0;
      for (const int64_t rank : some) {
        if (rank < next) continue;
        next = rank - rank % size + size;
        if (size > left / size) return;
        left -= size * size;
        domain.clear();
        for (int64_t r = next - size; r < next; ++r) {
          if (ends[0]->mesh().PositionOf(r) || ends[1]->mesh().PositionOf(r)) domain.push_back(r);
        }
        fn(level, CutOf(domain));
      }
    }
  }

  std::array<const Sharding*, 2> ends;  // before, after
  bool one_mesh;
  int64_t ranks;                         // of both meshes
  std::array<int64_t, 2> copies;         // of each contribution, of a box
  std::array<int64_t, 2> contributions;  // that are added; after: that a mask makes
  __int128 total = 0;                    // elements that all ranks together send
};

// Of what the ranks of a large mesh want, what they have, all together; no less.
std::optional<__int128> MostKept(const Problem& problem) {
  const Sharding& from = problem.from();
  const Sharding& to = problem.to();
  if (problem.mesh().NumRanks() <= kMaxRanks) return std::nullopt;
  DimMask before = 0;  // mesh dims that are cuts, and not the same ones after
  DimMask after = 0;
  for (int k = 0; k < problem.tensor_rank(); ++k) {
    const CutLists::List& a = problem.source_cuts().of[k];
    const CutLists::List& b = problem.target_cuts().of[k];
    for (int i = CommonLength(a, b); i < a.size; ++i) before |= DimMask{1} << a[i];
    for (int i = CommonLength(a, b); i < b.size; ++i) after |= DimMask{1} << b[i];
  }
  if ((before & after) != 0) {
    return static_cast<__int128>(problem.mesh().NumRanks()) *
           std::min(from.MaxLocalElements(), to.MaxLocalElements());
  }
  // Within the cuts that stay, every box before meets every box after.
  return static_cast<__int128>(NumElements(to.shape())) * Sizes(problem.mesh(), [&](int d) {
           return !from.placement(d).IsShard() && !to.placement(d).IsShard();
         });
}

int BitsOf(const Problem& problem) {
  int bits = INT32_MAX;
  for (int i = 0; i < problem.num_stages(); ++i) bits = std::min(bits, BitWidth(problem.dtype(i)));
  return bits;
}

// What must move, and the time of the cut that takes longest, with one start. `models`: of steps on
// each mesh.
LowerBound LeastMoves(const Task& task, std::array<const CostModel*, 2> models, int bits) {
  const Topology& topology = models[0]->topology();
  const auto up = [](__int128 a, __int128 b) { return Clamp(CeilDiv128(a, b)); };
  // Each element that is sent is received, too. Contributions may be added on the way.
  const __int128 average =
      task.contributions[0] > 1 ? 0 : CeilDiv128(task.total, task.ends[1]->mesh().NumRanks());
  LowerBound bound{up(task.total * bits, 8 * static_cast<__int128>(task.ranks)), 0};
  int64_t ns = up(average * bits * 1000, int64_t{8} * models[0]->BestBandwidth(0));
  int64_t hop_ns = models[0]->LeastHopNs();
  task.ForEachCut(topology, [&](int level, const Task::Cut& cut) {
    const __int128 most = std::max(cut.in, cut.out);
    if (most == 0) return;
    int64_t bandwidth = topology.level(level).bandwidth_bytes_per_us;
    for (const int end : {0, 1}) {
      if (cut.splits[end]) bandwidth = std::max(bandwidth, models[end]->BestBandwidth(level));
    }
    const auto links = static_cast<__int128>(cut.ranks) * bandwidth;
    ns = std::max(ns, up(most * bits * 1000, 8 * links));
    hop_ns = std::max(hop_ns, models[0]->LeastHopNs(level));
    const __int128 others = std::max<int64_t>(task.ranks - cut.ranks, 1);
    bound.bytes_sent = std::max({bound.bytes_sent, up(cut.out * bits, 8 * __int128{cut.ranks}),
                                 up(cut.in * bits, 8 * others)});
  });
  // A rank gets something of each piece and contribution of what it wants.
  const Sharding& from = *task.ends[0];
  int64_t reach = 2;
  if (from.mesh().NumRanks() <= kMaxRanks) {
    const Box box = task.ends[1]->BoxAt(task.ends[1]->mesh().CoordinateAt(0));
    reach = std::max(reach, task.contributions[0] * Pieces(from).CountIn(box));
  }
  hop_ns = std::max(hop_ns, models[0]->LeastHopNs() * Log2Ceil(reach));
  bound.est_ns = SaturatingAdd(models[0]->LeastCollectiveNs() + hop_ns, ns);
  return bound;
}

}  // namespace

int64_t LeastBytesMoved(const Problem& problem) {
  const Task task(problem.from(), problem.to(), MostKept(problem));
  return Clamp(CeilDiv128(task.total * BitsOf(problem), 8));
}

LowerBound LeastCost(const Problem& problem, const CostModel& model) {
  if (problem.source() == problem.target()) return {};
  const Task task(problem.from(), problem.to(), MostKept(problem));
  if (task.total == 0) {
    // A local step makes the target, or a collective.
    const int64_t local_ns =
        model.CopyNs(problem.num_stages() > 1 ? 0 : problem.MaxBytes(problem.target()));
    return {0, std::min(local_ns, model.LeastCollectiveNs() + model.LeastHopNs())};
  }
  LowerBound bound = LeastMoves(task, {&model, &model}, BitsOf(problem));
  if (problem.num_stages() > 1) bound.est_ns = SaturatingAdd(bound.est_ns, model.CopyNs(0));
  return bound;
}

LowerBound LeastCost(const Sharding& from, const Sharding& to, const CostModel& first,
                     const CostModel& second, int bits) {
  const Task task(from, to);
  if (task.total == 0) return {};
  return LeastMoves(task, {&first, &second}, bits);
}

}  // namespace meshift
