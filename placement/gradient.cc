#include "meshift/gradient.h"

#include <optional>
#include <utility>
#include <vector>

#include "base/status.h"
#include "meshift/status.h"

namespace meshift {
namespace {

absl::StatusOr<Sharding> WithPlacements(const Sharding& sharding,
                                        std::vector<Placement> placements) {
  std::vector<Cuts> cuts;
  for (int k = 0; k < static_cast<int>(sharding.shape().size()); ++k) {
    cuts.emplace_back(sharding.CutsOf(k).begin(), sharding.CutsOf(k).end());
  }
  return Sharding::Create(sharding.mesh(), sharding.tensor(), std::move(placements),
                          std::move(cuts));
}

std::vector<Placement> WithoutPartials(const Sharding& sharding) {
  std::vector<Placement> placements(sharding.placements().begin(), sharding.placements().end());
  for (Placement& placement : placements) {
    if (placement.IsPartial()) placement = Placement::Replicate();
  }
  return placements;
}

}  // namespace

absl::StatusOr<RedistributionPair> GradientOf(const Sharding& from, const Sharding& to,
                                              const GradientOptions& options) {
  if (from.shape() != to.shape()) {
    return InvalidArgument("source {} and target {} differ in shape", from.tensor().ToString(),
                           to.tensor().ToString());
  }
  if (options.op != ReduceOp::kSum && options.op != ReduceOp::kAvg) {
    return InvalidArgument("a gradient is a sum or an avg of contributions, not {}",
                           Name(options.op));
  }
  std::vector<Placement> incoming = WithoutPartials(to);
  for (const std::string& name : options.summed_over) {
    const std::optional<int> dim = to.mesh().FindDim(name);
    if (!dim) return InvalidArgument("mesh {} has no dim '{}'", to.mesh().ToString(), name);
    if (incoming[*dim].IsShard()) {
      return InvalidArgument(
          "mesh dim '{}' is {} in {}: its ranks hold different elements, not "
          "contributions to the same",
          name, incoming[*dim].ToString(), to.ToString());
    }
    incoming[*dim] = Placement::Partial(options.op);
  }
  MESHIFT_ASSIGN_OR_RETURN(Sharding source, WithPlacements(to, std::move(incoming)));
  MESHIFT_ASSIGN_OR_RETURN(Sharding target, WithPlacements(from, WithoutPartials(from)));
  return RedistributionPair{std::move(source), std::move(target)};
}

}  // namespace meshift
