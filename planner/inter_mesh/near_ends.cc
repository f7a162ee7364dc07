#include "planner/inter_mesh/near_ends.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "meshift/placement.h"
#include "placement/unit_dims.h"

namespace meshift {
namespace {

// The most tensor dims that get new cuts, unless more mesh dims need one each.
constexpr size_t kMaxTensorDims = 2;
// Beyond this many ranks, where searches take longer, there are fewer near ends; owners get new
// cuts of one tensor dim only.
constexpr int64_t kLargeMesh = 64;

// By mesh dim and coordinate: how many near ranks have it.
using NearCounts = std::vector<std::vector<int64_t>>;

// A set of ranks or domains, as ascending runs of consecutive numbers: a mesh of millions of ranks
// usually has few of them.
class NumberSet {
 public:
  void Add(int64_t number) {
    if (!runs_.empty() && number >= runs_.back().first && number <= runs_.back().last + 1) {
      runs_.back().last = std::max(runs_.back().last, number);
    } else {
      runs_.push_back({number, number});
    }
  }
  // To be called after the last Add(), before Contains().
  void Merge() {
    std::sort(runs_.begin(), runs_.end(),
              [](const Run& a, const Run& b) { return a.first < b.first; });
    size_t merged = 0;
    for (const Run& run : runs_) {
      if (merged > 0 && run.first <= runs_[merged - 1].last + 1) {
        runs_[merged - 1].last = std::max(runs_[merged - 1].last, run.last);
      } else {
        runs_[merged++] = run;
      }
    }
    runs_.resize(merged);
  }
  bool Contains(int64_t number) const {
    const auto after =
        std::upper_bound(runs_.begin(), runs_.end(), number,
                         [](int64_t value, const Run& run) { return value < run.first; });
    return after != runs_.begin() && number <= std::prev(after)->last;
  }

 private:
  struct Run {
    int64_t first = 0;
    int64_t last = 0;
  };
  std::vector<Run> runs_;
};

std::vector<int64_t> CoordinateOf(const DeviceMesh& mesh, int64_t position) {
  std::vector<int64_t> at(mesh.NumDims());
  for (int d = mesh.NumDims() - 1; d >= 0; --d) {
    at[d] = position % mesh.dim(d).size;
    position /= mesh.dim(d).size;
  }
  return at;
}

// The ranks that hold elements.
std::vector<int64_t> Holders(const Sharding& sharding) {
  const DeviceMesh& mesh = sharding.mesh();
  std::vector<int64_t> ranks;
  for (int64_t i = 0; i < mesh.NumRanks(); ++i) {
    if (!sharding.BoxAt(CoordinateOf(mesh, i)).IsEmpty()) ranks.push_back(mesh.RankAt(i));
  }
  return ranks;
}

// `level`: -1 means that near ranks are the holders themselves.
NearCounts CountNear(const DeviceMesh& mesh, const std::vector<int64_t>& holders,
                     const Topology& topology, int level) {
  const auto place = [&](int64_t rank) {
    return level < 0 ? rank : topology.DomainOf(level, rank);
  };
  NumberSet places;
  for (const int64_t rank : holders) places.Add(place(rank));
  places.Merge();
  NearCounts near;
  for (int d = 0; d < mesh.NumDims(); ++d) near.emplace_back(mesh.dim(d).size, 0);
  for (int64_t i = 0; i < mesh.NumRanks(); ++i) {
    if (!places.Contains(place(mesh.RankAt(i)))) continue;
    const std::vector<int64_t> at = CoordinateOf(mesh, i);
    for (int d = 0; d < mesh.NumDims(); ++d) ++near[d][at[d]];
  }
  return near;
}

int64_t NumNear(const std::vector<int64_t>& near) {
  return std::ssize(near) - std::count(near.begin(), near.end(), 0);
}

// Whether some coordinate is not near.
bool IsProper(const std::vector<int64_t>& near) { return NumNear(near) < std::ssize(near); }

// The `most` longest dims; the first of equal ones.
std::vector<int> LongestDims(const Shape& shape, size_t most) {
  std::vector<int> dims;
  for (int k = 0; k < static_cast<int>(shape.size()); ++k) dims.push_back(k);
  std::stable_sort(dims.begin(), dims.end(), [&](int a, int b) { return shape[a] > shape[b]; });
  if (dims.size() > most) dims.resize(most);
  return dims;
}

int64_t MostOf(const std::vector<int64_t>& near) {
  return *std::max_element(near.begin(), near.end());
}

// The first of the coordinates with the most near ranks.
Placement AtNearest(const std::vector<int64_t>& near) {
  return Placement::At({std::find(near.begin(), near.end(), MostOf(near)) - near.begin()});
}

// Divides tensor dim k of `length` rows evenly among the near coordinates; the others get 0. One
// near coordinate gets the whole value.
Placement OverNear(int k, const std::vector<int64_t>& near, int64_t length) {
  const int64_t owners = NumNear(near);
  if (owners == 1) return AtNearest(near);
  const int64_t share = length / owners + (length % owners == 0 ? 0 : 1);
  Placement::Sizes sizes;
  for (const int64_t ranks : near) {
    sizes.push_back(ranks > 0 ? std::min(share, length) : 0);
    length -= sizes.back();
  }
  return Placement::RaggedShard(k, std::move(sizes));
}

// Collects the ends, each once.
class Ends {
 public:
  Ends(const Sharding& end, DType dtype) : end_(end), dtype_(dtype) {}

  // Ends at which all near coordinates hold data.
  void AddShared(const NearCounts& near) {
    std::vector<int> few;  // mesh dims that are At, or get a ragged cut
    size_t ragged = 0;     // the number of ragged cuts
    for (int d = 0; d < end_.mesh().NumDims(); ++d) {
      if (!IsProper(near[d])) continue;
      few.push_back(d);
      ragged += NumNear(near[d]) > 1 ? 1 : 0;
    }
    const std::vector<int> dims = LongestDims(end_.shape(), std::max(kMaxTensorDims, ragged));
    if (dims.size() < ragged) return;
    for (size_t shift = 0; shift < std::max<size_t>(dims.size(), 1); ++shift) {
      Fixed fixed;
      for (size_t i = 0; i < few.size(); ++i) {
        // A tensor without dims has only owners.
        const int k = dims.empty() ? 0 : dims[(i + shift) % dims.size()];
        const int64_t length = dims.empty() ? 0 : end_.shape()[k];
        fixed.emplace(few[i], OverNear(k, near[few[i]], length));
      }
      AddAll(fixed, dims);
    }
  }
  // Ends at which the nearest coordinate of one mesh dim, or of all, holds data. An owner stays if
  // none is nearer.
  void AddOwned(const NearCounts& near) {
    const bool is_large = end_.mesh().NumRanks() > kLargeMesh;
    const std::vector<int> dims = LongestDims(end_.shape(), is_large ? 1 : kMaxTensorDims);
    Fixed all;
    for (int d = 0; d < end_.mesh().NumDims(); ++d) {
      if (end_.mesh().dim(d).size == 1) continue;
      Placement nearest = AtNearest(near[d]);
      if (const std::optional<Placement> given = AsAt(end_, d)) {
        const int64_t first = given->coordinates()[0];
        if (near[d][first] == MostOf(near[d])) nearest = Placement::At({first});
      }
      AddAll({{d, nearest}}, dims);
      all.emplace(d, nearest);
    }
    if (!all.empty()) AddAll(all, dims);
  }
  std::vector<Sharding> Take() && { return std::move(list_); }

 private:
  using Fixed = std::map<int, Placement>;  // by mesh dim

  // The other mesh dims have the owners and cuts of the end, are replicated, or cut one of the
  // tensor dims.
  void AddAll(const Fixed& fixed, const std::vector<int>& tensor_dims) {
    const auto add = [&](const auto& placement_of) {
      std::vector<Placement> placements;
      for (int d = 0; d < end_.mesh().NumDims(); ++d) {
        const auto at = fixed.find(d);
        placements.push_back(at != fixed.end()             ? at->second
                             : end_.mesh().dim(d).size > 1 ? placement_of(d)
                                                           : Placement::Replicate());
      }
      Add(std::move(placements));
    };
    // The searches share a budget: first the owners and cuts of `end`, which need the fewest steps.
    add([&](int d) {
      if (OwnerOn(end_, d)) return *AsAt(end_, d);
      const bool is_cut = end_.placement(d).IsShard() && !end_.placement(d).IsRagged();
      return is_cut ? end_.placement(d) : Placement::Replicate();
    });
    add([](int) { return Placement::Replicate(); });
    for (const int k : tensor_dims) add([k](int) { return Placement::Shard(k); });
  }
  // Cuts that `end` has too keep their order, within the others.
  void Add(std::vector<Placement> placements) {
    std::vector<Cuts> cuts(end_.shape().size());
    const auto is_kept = [&](int d) { return placements[d] == end_.placement(d); };
    for (int d = 0; d < end_.mesh().NumDims(); ++d) {
      const Placement& p = placements[d];
      if (p.IsShard() && !is_kept(d)) cuts[p.tensor_dim()].push_back(d);
    }
    for (int k = 0; k < std::ssize(cuts); ++k) {
      for (const int d : end_.CutsOf(k)) {
        if (is_kept(d)) cuts[k].push_back(d);
      }
    }
    absl::StatusOr<Sharding> sharding = Sharding::Create(end_.mesh(), {dtype_, end_.shape()},
                                                         std::move(placements), std::move(cuts));
    if (!sharding.ok()) return;  // f4e2m1 cut inside a byte
    if (std::find(list_.begin(), list_.end(), *sharding) != list_.end()) return;
    list_.push_back(*std::move(sharding));
  }

  const Sharding& end_;
  const DType dtype_;
  std::vector<Sharding> list_;
};

}  // namespace

std::vector<Sharding> NearEnds(const Sharding& end, DType dtype, const Sharding& other,
                               const Topology& topology, bool owned) {
  if (NumElements(end.shape()) == 0) return {};
  Ends ends(end, dtype);
  const std::vector<int64_t> holders = Holders(other);
  for (const std::vector<int64_t>& ranks : {holders, other.mesh().Ranks()}) {
    bool found = false;
    for (int level = -1; level < topology.NumLevels(); ++level) {
      // The last level's one domain has all ranks.
      const bool is_last = level + 1 == topology.NumLevels();
      if (is_last && (found || !owned)) break;
      const NearCounts near = CountNear(end.mesh(), ranks, topology, level);
      if (NumNear(near[0]) == 0) continue;
      found = true;
      if (std::any_of(near.begin(), near.end(), IsProper)) ends.AddShared(near);
      if (owned) ends.AddOwned(near);
    }
    if (std::ssize(holders) == other.mesh().NumRanks()) break;
  }
  return std::move(ends).Take();
}

std::vector<Sharding> NearEndsOfBoth(const Sharding& from, const Sharding& to, DType dtype,
                                     const Topology& topology) {
  std::vector<Sharding> all;
  const auto add = [&](const std::vector<Sharding>& ends) {
    for (const Sharding& end : ends) {
      if (std::find(all.begin(), all.end(), end) == all.end()) all.push_back(end);
    }
  };
  const bool is_large = std::max(from.mesh().NumRanks(), to.mesh().NumRanks()) > kLargeMesh;
  const std::vector<Sharding> sources =
      NearEnds(from, dtype, to, topology, !is_large || from.HasPartial());
  const std::vector<Sharding> targets = NearEnds(to, dtype, from, topology, /*owned=*/true);
  add(sources);
  add(targets);
  if (is_large) return all;
  for (const Sharding& end : targets) add(NearEnds(from, dtype, end, topology, /*owned=*/false));
  for (const Sharding& end : sources) add(NearEnds(to, dtype, end, topology, /*owned=*/false));
  return all;
}

}  // namespace meshift
