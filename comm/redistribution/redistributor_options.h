// How a Redistributor (meshift/redistributor.h) plans and runs, and what it counts.
//
//   Redistributor::Create(mesh, engine, {.reproducibility = Reproducibility::kOrdered,
//                                        .agreement = Agreement::kAlways});
#ifndef MESHIFT_COMM_REDISTRIBUTION_REDISTRIBUTOR_OPTIONS_H_
#define MESHIFT_COMM_REDISTRIBUTION_REDISTRIBUTOR_OPTIONS_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "meshift/engine.h"
#include "comm/executor/group_cache.h"
#include "comm/symmetric/symmetric_use.h"
#include "meshift/device_mesh.h"
#include "meshift/topology.h"
#include "planner/groups/group_budget.h"
#include "planner/options/capabilities.h"
#include "planner/plan/buffers.h"
#include "meshift/plan.h"
#include "meshift/planner.h"
#include "meshift/planner_cache.h"

namespace meshift {

// Which calls wait until all peers have told which plan they run.
enum class Agreement : uint8_t { kOff, kFirstCalls, kAlways };

// Whether each group has a stream of its own, or all share one, as where a framework has one stream
// for communication: then a call waits for all before it. To compare with; bits are the same.
enum class StreamMode : uint8_t { kPerGroup, kSingleStream };

struct RedistributorOptions {
  // Of planning (meshift/planner.h); equal on all ranks.
  Reproducibility reproducibility = Reproducibility::kReplicas;
  Topology topology = Topology::Flat();
  PlannerKind planner = PlannerKind::kBest;
  // None: what the engine says of itself (Engine::Capabilities), so that plans name it.
  std::optional<EngineCapabilities> capabilities = std::nullopt;
  RaggedSizes ragged_sizes = RaggedSizes::kCost;
  int64_t reduce_block = 0;
  std::optional<int64_t> max_memory = std::nullopt;  // of each plan that is made, in bytes
  std::optional<int64_t> max_value = std::nullopt;   // of a value between two steps, likewise
  Buffers buffers = Buffers::kTwo;  // how calls hand them over, for the limit and the plans
  // Of each plan that is made. The root is the redistributor's mesh, whatever it says.
  GroupBudget groups = {};

  // Whether plans that the caller brings are proven (meshift/verifier.h) before they run.
  bool verify_plans = true;
  bool time_steps = false;  // whether last_run() has the time of each step
  // Bytes, about, that each of three caches may hold: of plans; of programs for plans that are
  // made; of programs for plans that the caller brings. What was not used for the longest time goes
  // first.
  int64_t max_cached_bytes = int64_t{64} << 20;
  // Where plans are made and remembered; several redistributors may share it, so that each plan is
  // made once in a process. Of PlanningOptions(mesh, engine, options). None: the redistributor's
  // own.
  std::shared_ptr<PlannerCache> plans = nullptr;

  // Of running; the first two equal on all ranks.
  Agreement agreement = Agreement::kFirstCalls;
  int64_t agreement_calls = 16;  // kFirstCalls: those with numbers below it
  // For peers that are to agree, and for a ticket that is missing. None: the engine's
  // (Engine::timeouts), where the first call of all is of the phase of setup.
  std::optional<std::chrono::nanoseconds> timeout = std::nullopt;
  StreamMode streams = StreamMode::kPerGroup;  // this rank's; ranks may differ
  // A list of tensors: those whose collectives send at most so many bytes each are merged into few
  // collectives (comm/program/coalesce.h). Equal on all ranks. None: as many as a collective
  // carries while it starts, which the engine says, or the topology's fastest links. 0: only what
  // sends nothing.
  std::optional<int64_t> coalesce_bytes = std::nullopt;
};

// How a redistributor of this mesh and these options plans: `options.plans` is made of this.
PlannerOptions PlanningOptions(const DeviceMesh& mesh, const Engine& engine,
                               const RedistributorOptions& options);

struct RedistributorStats {
  int64_t calls = 0;
  int64_t plans_made = 0;     // planned or verified, and lowered, because they were not cached
  int64_t plans_reused = 0;   // found
  int64_t plans_cached = 0;   // now
  int64_t programs_made = 0;  // lowered for other layouts than row-major
  GroupCacheStats groups;
  // Calls that named a symmetric pool: how many used it, and why others did not. The rest of
  // `calls` named none.
  SymmetricCounts symmetric;
};

}  // namespace meshift

#endif  // MESHIFT_COMM_REDISTRIBUTION_REDISTRIBUTOR_OPTIONS_H_
