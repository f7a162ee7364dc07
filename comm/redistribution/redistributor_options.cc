// PlanningOptions(): the options with which a redistributor makes its plans. Checks nothing.
#include "meshift/redistributor.h"

namespace meshift {

PlannerOptions PlanningOptions(const DeviceMesh& mesh, const Engine& engine,
                               const RedistributorOptions& options) {
  PlannerOptions planning = options.planning;
  planning.engine = options.expert.capabilities.value_or(engine.Capabilities());
  // All groups are split from the redistributor's root.
  if (planning.groups.IsSet()) planning.groups.root = mesh;
  return planning;
}

}  // namespace meshift
