// Defines the handles of meshift/c.h, except meshift_local_world (engines.cc) and
// meshift_explanation (explanations.cc). Each holds a C++ value; if that refers to an engine, the
// handle shares its ownership. Internal to capi. Handles have no locks: meshift/c.h says which
// threads may use each.
//
//   *stream = new meshift_stream{engine->shared, std::move(made)};   // keeps the engine alive
#ifndef MESHIFT_CAPI_HANDLES_H_
#define MESHIFT_CAPI_HANDLES_H_

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "comm/program/program.h"
#include "meshift/c.h"
#include "meshift/device_mesh.h"
#include "meshift/engine.h"
#include "meshift/plan.h"
#include "meshift/planner_options.h"
#include "meshift/redistributor.h"
#include "meshift/run_handle.h"
#include "meshift/sharding.h"

namespace meshift {

class NcclEngine;  // meshift/nccl_engine.h

namespace capi {

// An engine with its owner: a local world, an MPI job, or an NCCL engine, with its bootstrap if it
// has one.
struct SharedEngine {
  std::shared_ptr<void> owner;
  Engine* engine = nullptr;
  NcclEngine* nccl = nullptr;  // the same engine if it is an NcclEngine, else null
};

}  // namespace capi
}  // namespace meshift

struct meshift_mesh {
  meshift::DeviceMesh value;
};

struct meshift_sharding {
  meshift::Sharding value;
};

struct meshift_options {
  // The options for plans on these meshes. INVALID_ARGUMENT: "existing_groups" is malformed, or has
  // a group that is not on these meshes.
  absl::StatusOr<meshift::PlannerOptions> On(absl::Span<const meshift::DeviceMesh> meshes) const;

  // Values by option name. All are checked, except "existing_groups".
  std::map<std::string, std::string> texts;
};

namespace meshift::capi {

// The options for plans between two shardings; `options` may be NULL. Errors are those of On().
absl::StatusOr<PlannerOptions> PlanningOptions(const meshift_options* options, const Sharding& from,
                                               const Sharding& to);

}  // namespace meshift::capi

struct meshift_plan {
  meshift::Plan value;
};

struct meshift_program {
  meshift::Program value;
};

// In the structs below the engine is declared first, so that it is destroyed last.

struct meshift_engine {
  meshift::capi::SharedEngine shared;
};

struct meshift_stream {
  meshift::capi::SharedEngine engine;
  std::unique_ptr<meshift::Stream> value;
};

struct meshift_buffer {
  meshift::capi::SharedEngine engine;
  std::unique_ptr<meshift::Buffer> value;
};

struct meshift_redistributor {
  meshift::capi::SharedEngine engine;
  meshift::Redistributor value;
};

struct meshift_run {
  meshift::capi::SharedEngine engine;
  meshift::RunHandle value;
};

#endif  // MESHIFT_CAPI_HANDLES_H_
