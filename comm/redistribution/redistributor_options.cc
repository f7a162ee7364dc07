#include "meshift/redistributor.h"

namespace meshift {

PlannerOptions PlanningOptions(const DeviceMesh& mesh, const Engine& engine,
                               const RedistributorOptions& options) {
  PlannerOptions planning = {.reproducibility = options.reproducibility,
                             .topology = options.topology,
                             .planner = options.planner,
                             .engine = options.capabilities.value_or(engine.Capabilities()),
                             .ragged_sizes = options.ragged_sizes,
                             .reduce_block = options.reduce_block,
                             .max_memory = options.max_memory,
                             .max_value = options.max_value,
                             .buffers = options.buffers,
                             .groups = options.groups};
  // All groups are split from the redistributor's root.
  if (planning.groups.IsSet()) planning.groups.root = mesh;
  return planning;
}

}  // namespace meshift
