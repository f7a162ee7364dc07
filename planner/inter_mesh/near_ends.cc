#include "planner/inter_mesh/near_ends.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "meshift/placement.h"

namespace meshift {
namespace {

// The most tensor dims that get new cuts, unless more mesh dims need one each.
constexpr size_t kMaxTensorDims = 2;

// By mesh dim: which coordinates are those of some near rank.
using NearCoordinates = std::vector<std::vector<bool>>;

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

// Whether some coordinate is not near.
bool IsProper(const std::vector<bool>& near) {
  return std::find(near.begin(), near.end(), false) != near.end();
}

// `level`: -1 means that near ranks are those of `other` themselves. nullopt if no rank is near, or
// if every mesh dim has a near rank at each coordinate.
std::optional<NearCoordinates> FindNear(const DeviceMesh& mesh, const DeviceMesh& other,
                                        const Topology& topology, int level) {
  const auto place = [&](int64_t rank) {
    return level < 0 ? rank : topology.DomainOf(level, rank);
  };
  NumberSet places;
  for (int64_t i = 0; i < other.NumRanks(); ++i) places.Add(place(other.RankAt(i)));
  places.Merge();
  NearCoordinates near;
  for (int d = 0; d < mesh.NumDims(); ++d) near.emplace_back(mesh.dim(d).size, false);
  bool found = false;
  for (int64_t i = 0; i < mesh.NumRanks(); ++i) {
    if (!places.Contains(place(mesh.RankAt(i)))) continue;
    found = true;
    int64_t rest = i;
    for (int d = mesh.NumDims() - 1; d >= 0; --d) {
      near[d][rest % mesh.dim(d).size] = true;
      rest /= mesh.dim(d).size;
    }
  }
  if (!found || std::none_of(near.begin(), near.end(), IsProper)) return std::nullopt;
  return near;
}

// The `most` longest dims; the first of equal ones.
std::vector<int> LongestDims(const Shape& shape, size_t most) {
  std::vector<int> dims;
  for (int k = 0; k < static_cast<int>(shape.size()); ++k) dims.push_back(k);
  std::stable_sort(dims.begin(), dims.end(), [&](int a, int b) { return shape[a] > shape[b]; });
  if (dims.size() > most) dims.resize(most);
  return dims;
}

// Divides tensor dim k of `length` rows evenly among the near coordinates; the others get 0. One
// near coordinate gets the whole value.
Placement OverNear(int k, const std::vector<bool>& near, int64_t length) {
  const int64_t owners = std::count(near.begin(), near.end(), true);
  if (owners == 1) return Placement::At({std::find(near.begin(), near.end(), true) - near.begin()});
  const int64_t share = length / owners + (length % owners == 0 ? 0 : 1);
  Placement::Sizes sizes;
  for (const bool is_near : near) {
    sizes.push_back(is_near ? std::min(share, length) : 0);
    length -= sizes.back();
  }
  return Placement::RaggedShard(k, std::move(sizes));
}

// Collects the ends, each once.
class Ends {
 public:
  Ends(const Sharding& end, DType dtype) : end_(end), dtype_(dtype) {}

  void Add(const NearCoordinates& near) {
    std::vector<int> few;     // mesh dims that are At, or get a ragged cut
    size_t ragged = 0;        // the number of ragged cuts
    std::vector<int> others;  // the others of size > 1
    for (int d = 0; d < end_.mesh().NumDims(); ++d) {
      if (IsProper(near[d])) {
        few.push_back(d);
        ragged += std::count(near[d].begin(), near[d].end(), true) > 1 ? 1 : 0;
      } else if (end_.mesh().dim(d).size > 1) {
        others.push_back(d);
      }
    }
    const std::vector<int> dims = LongestDims(end_.shape(), std::max(kMaxTensorDims, ragged));
    if (dims.size() < ragged) return;
    for (size_t shift = 0; shift < std::max<size_t>(dims.size(), 1); ++shift) {
      std::vector<Placement> placements(end_.mesh().NumDims(), Placement::Replicate());
      for (size_t i = 0; i < few.size(); ++i) {
        // A tensor without dims has only owners.
        const int k = dims.empty() ? 0 : dims[(i + shift) % dims.size()];
        const int64_t length = dims.empty() ? 0 : end_.shape()[k];
        placements[few[i]] = OverNear(k, near[few[i]], length);
      }
      // The searches share a budget: first the cuts of `end`, which need the fewest steps.
      for (const int d : others) {
        const bool is_cut = end_.placement(d).IsShard() && !end_.placement(d).IsRagged();
        placements[d] = is_cut ? end_.placement(d) : Placement::Replicate();
      }
      Add(placements);
      for (const int d : others) placements[d] = Placement::Replicate();
      Add(placements);
      for (const int k : dims) {
        for (const int d : others) placements[d] = Placement::Shard(k);
        Add(placements);
      }
    }
  }
  std::vector<Sharding> Take() && { return std::move(list_); }

 private:
  void Add(std::vector<Placement> placements) {
    absl::StatusOr<Sharding> sharding =
        Sharding::Create(end_.mesh(), {dtype_, end_.shape()}, std::move(placements));
    if (!sharding.ok()) return;  // f4e2m1 cut inside a byte
    if (std::find(list_.begin(), list_.end(), *sharding) != list_.end()) return;
    list_.push_back(*std::move(sharding));
  }

  const Sharding& end_;
  const DType dtype_;
  std::vector<Sharding> list_;
};

}  // namespace

std::vector<Sharding> NearEnds(const Sharding& end, DType dtype, const DeviceMesh& other,
                               const Topology& topology) {
  if (NumElements(end.shape()) == 0) return {};
  Ends ends(end, dtype);
  // The last level is left out: its one domain has all ranks.
  for (int level = -1; level + 1 < topology.NumLevels(); ++level) {
    const std::optional<NearCoordinates> near = FindNear(end.mesh(), other, topology, level);
    if (near) ends.Add(*near);
  }
  return std::move(ends).Take();
}

}  // namespace meshift
