#include "planner/verifier/promise.h"

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "meshift/topology.h"
#include "planner/verifier/boxes.h"

namespace meshift::verifier_internal {
namespace {

// On a mesh of at most this many ranks, all groups are compared rank by rank.
constexpr int64_t kMaxCompared = 4096;

using Result = std::optional<PlanFault>;

template <typename... Args>
PlanFault Fault(size_t step, fmt::format_string<Args...> format, Args&&... args) {
  return {static_cast<int>(step), "promise", fmt::format(format, std::forward<Args>(args)...)};
}

class PromiseRules {
 public:
  PromiseRules(const PlanFields& plan, const std::vector<StepView>& views)
      : plan_(plan), views_(views) {
    for (size_t i = 0; i < views.size(); ++i) {
      if (views[i].Reduces() && !IsExactReduction(views[i])) rounding_.push_back(i);
    }
  }

  Result Run() const {
    if (Result fault = CheckBlocks()) return fault;
    if (plan_.kept == Reproducibility::kNone) return std::nullopt;
    for (const size_t i : rounding_) {
      if (IsOrdered(i)) continue;  // every group gets the same bits from equal contributions
      if (Result fault = CheckSingleSourced(i)) return fault;
    }
    if (plan_.kept == Reproducibility::kReplicas) return std::nullopt;
    if (rounding_.empty()) return std::nullopt;
    if (Result fault = CheckAtOnce()) return fault;
    const size_t i = rounding_.front();
    if (IsOrdered(i)) return std::nullopt;
    if (plan_.kept == Reproducibility::kOrdered) return NothingShows(i, "");
    return CheckNative(i);
  }

 private:
  bool IsOrdered(size_t i) const { return views_[i].step.reduce_order == ReduceOrder::kAscending; }

  // Every reduction in order has the block of the option reduce_block, whatever the promise.
  Result CheckBlocks() const {
    const int64_t option = plan_.inputs.options.reduce_block;
    if (option < 0) {
      return PlanFault{
          {}, "reduce_block", fmt::format("option reduce_block is {}, below 0", option)};
    }
    const auto asked = option > 0 ? std::optional<int64_t>(option) : std::nullopt;
    const auto text = [](const std::optional<int64_t>& block) {
      return block ? fmt::format("{}", *block) : std::string("null");
    };
    for (size_t i = 0; i < views_.size(); ++i) {
      const std::optional<int64_t>& block = views_[i].step.reduce_block;
      if (!IsOrdered(i) || block == asked) continue;
      return PlanFault{
          static_cast<int>(i), "reduce_block",
          fmt::format("reduce_block is {}; option reduce_block is {}", text(block), text(asked))};
    }
    return std::nullopt;
  }

  Result CheckSingleSourced(size_t i) const {
    const StepView& view = views_[i];
    const MeshShape& mesh_shape = view.mesh_shape;
    for (int d = 0; d < static_cast<int>(mesh_shape.sizes.size()); ++d) {
      if (mesh_shape.sizes[d] == 1 || Contains(view.step.mesh_dims, d)) continue;
      const DimState& before = view.before.dims[d];
      const int64_t copies = before.IsReplicated() ? mesh_shape.sizes[d]
                             : before.owned        ? NumOwners(mesh_shape, view.before, d)
                                                   : 1;
      if (copies == 1) continue;
      return Fault(i, "mesh dim {} {}: {} groups form each {}, and their bits may differ",
                   view.Name(d), before.owned ? "has several owners" : "is replicated", copies,
                   Name(*view.step.reduce_op));
    }
    return std::nullopt;
  }

  // The fault unless one reduction rounds, over exactly the mesh dims that are P in the source and
  // not in the target (of another mesh: all that are P in the source). Otherwise the bits depend on
  // the plan. REQUIRES: some reduction rounds.
  Result CheckAtOnce() const {
    const size_t first = rounding_.front();
    if (rounding_.size() > 1) {
      return Fault(rounding_[1], "step {} has rounded the {} before: bits depend on the plan",
                   first, Name(*views_[first].step.reduce_op));
    }
    const bool one_mesh = plan_.from_mesh == plan_.to_mesh;
    const State& source = views_.front().before;
    const State& target = views_.back().after;
    DimSet right;
    for (int d = 0; d < static_cast<int>(source.dims.size()); ++d) {
      if (!source.dims[d].IsPartial() || (one_mesh && target.dims[d].IsPartial())) continue;
      right.push_back(d);
    }
    const StepView& view = views_[first];
    const bool on_source = view.mesh_before() == plan_.from_mesh;
    const DimSet reduced = view.ReducedDims();
    if (on_source && reduced == right) return std::nullopt;
    return Fault(first,
                 "it reduces over {}{}; it must reduce over exactly the mesh dims that are partial "
                 "in the source{}: {}",
                 view.mesh_shape_before().Names(reduced), on_source ? "" : " of the target's mesh",
                 one_mesh ? " and not in the target" : "",
                 right.empty() ? "none" : views_.front().mesh_shape_before().Names(right));
  }

  // The fault of a reduction for which the plan has no proof.
  Result NothingShows(size_t i, std::string_view why) const {
    return Fault(i, "nothing in the plan shows that its {} of {} is {}{}{}",
                 Name(*views_[i].step.reduce_op), Name(views_[i].before.dtype), Name(plan_.kept),
                 why.empty() ? "" : ": ", why);
  }

  // The fault unless reduction `i`, which the engine's own collective does, is batch-invariant.
  Result CheckNative(size_t i) const {
    const Step& step = views_[i].step;
    const NativeInvariance native = plan_.inputs.options.engine.native_invariance;
    if (native != NativeInvariance::kReduceScatter &&
        (native != NativeInvariance::kAllReduce || step.op != StepOp::kAllReduce)) {
      return NothingShows(i, fmt::format("option native_invariance is {}", Name(native)));
    }
    if (AreEquivalent(views_[i].mesh_shape, step.mesh_dims, plan_.inputs.options.topology)) {
      return std::nullopt;
    }
    return NothingShows(i, "its groups are not equivalent on the topology");
  }

  // Whether any two members with given coordinates have the same relation in every group: which has
  // the lower rank, and which levels' domains they share.
  static bool AreEquivalent(const MeshShape& mesh_shape, absl::Span<const int> mesh_dims,
                            const Topology& topology) {
    const int64_t members = mesh_shape.GroupSize(mesh_dims);
    if (members == mesh_shape.mesh.NumRanks()) return true;
    if (mesh_shape.mesh.IsRowMajor() && topology.NumLevels() == 1) return true;
    if (mesh_shape.mesh.NumRanks() > kMaxCompared)
      return DomainsAreDigits(mesh_shape, mesh_dims, topology);
    Cuts all;
    Cuts inside(mesh_dims.begin(), mesh_dims.end());
    Cuts others;
    for (int d = 0; d < static_cast<int>(mesh_shape.sizes.size()); ++d) {
      if (mesh_shape.sizes[d] == 1) continue;
      all.push_back(d);
      if (!Contains(mesh_dims, d)) others.push_back(d);
    }
    std::vector<int64_t> first;  // ranks of the first group
    Walk groups(mesh_shape, others, {all});
    do {
      std::vector<int64_t> ranks;
      Walk walk(mesh_shape, inside, {all});
      do {
        ranks.push_back(
            mesh_shape.mesh.RankAt(static_cast<int64_t>(groups.index(0) + walk.index(0))));
      } while (walk.Next());
      if (first.empty()) first = ranks;
      for (size_t a = 0; a < ranks.size(); ++a) {
        for (size_t b = 0; b < a; ++b) {
          if ((ranks[a] < ranks[b]) != (first[a] < first[b])) return false;
          if (topology.LevelBetween(ranks[a], ranks[b]) !=
              topology.LevelBetween(first[a], first[b])) {
            return false;
          }
        }
      }
    } while (groups.Next());
    return true;
  }

  // The same for larger meshes, without a comparison. True if the mesh is row-major and, on each
  // level with several domains, either some digits of a rank's coordinates determine its domain, or
  // the members of a group are too far apart to share a domain. In the first case the group's own
  // coordinates say which members share one. May be false where a comparison rank by rank would
  // find the groups equivalent.
  static bool DomainsAreDigits(const MeshShape& mesh_shape, absl::Span<const int> mesh_dims,
                               const Topology& topology) {
    if (!mesh_shape.mesh.IsRowMajor()) return false;
    const auto dims = static_cast<int>(mesh_shape.sizes.size());
    int64_t apart = 1;
    for (int d = dims - 1; d >= 0 && !Contains(mesh_dims, d); --d) apart *= mesh_shape.sizes[d];
    for (int level = 0; level + 1 < topology.NumLevels(); ++level) {
      int64_t left = topology.level(level).domain_size;
      if (left >= mesh_shape.mesh.NumRanks() || left <= apart) continue;
      int d = dims - 1;
      while (left % mesh_shape.sizes[d] == 0) left /= mesh_shape.sizes[d--];
      if (mesh_shape.sizes[d] % left != 0) return false;
    }
    return true;
  }

  const PlanFields& plan_;
  const std::vector<StepView>& views_;
  std::vector<size_t> rounding_;  // reductions whose bits depend on the order
};

}  // namespace

Result CheckPromise(const PlanFields& plan, const std::vector<StepView>& views) {
  return PromiseRules(plan, views).Run();
}

}  // namespace meshift::verifier_internal
