#include "comm/redistribution/redistributor_options.h"

namespace meshift {

PlannerOptions PlanningOptions(const Engine& engine, const RedistributorOptions& options) {
  return {.reproducibility = options.reproducibility,
          .topology = options.topology,
          .planner = options.planner,
          .engine = options.capabilities.value_or(engine.Capabilities()),
          .ragged_sizes = options.ragged_sizes,
          .reduce_block = options.reduce_block,
          .max_memory = options.max_memory,
          .buffers = options.buffers,
          .groups = options.groups};
}

}  // namespace meshift
