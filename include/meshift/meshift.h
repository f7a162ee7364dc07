// Includes the headers that most programs need: meshes, shardings, plans and their proofs,
// redistributions, and the in-process engine.
//
//   #include "meshift/meshift.h"
//   #include "meshift/mpi_engine.h"      // or nccl_engine.h
//
// It declares nothing itself. Not included: the MPI and NCCL engines, calibration.h,
// deterministic.h, dlpack.h, ragged.h, testing.h, torch.h, and the C interface c.h.
#ifndef MESHIFT_MESHIFT_H_
#define MESHIFT_MESHIFT_H_

#include "meshift/bootstrap.h"      // IWYU pragma: export
#include "meshift/device_mesh.h"    // IWYU pragma: export
#include "meshift/dtype.h"          // IWYU pragma: export
#include "meshift/engine.h"         // IWYU pragma: export
#include "meshift/explain.h"        // IWYU pragma: export
#include "meshift/gradient.h"       // IWYU pragma: export
#include "meshift/local_world.h"    // IWYU pragma: export
#include "meshift/placement.h"      // IWYU pragma: export
#include "meshift/plan.h"           // IWYU pragma: export
#include "meshift/plan_io.h"        // IWYU pragma: export
#include "meshift/planner.h"        // IWYU pragma: export
#include "meshift/planner_cache.h"  // IWYU pragma: export
#include "meshift/redistributor.h"  // IWYU pragma: export
#include "meshift/run_handle.h"     // IWYU pragma: export
#include "meshift/sharding.h"       // IWYU pragma: export
#include "meshift/status.h"         // IWYU pragma: export
#include "meshift/tensor_view.h"    // IWYU pragma: export
#include "meshift/topology.h"       // IWYU pragma: export
#include "meshift/union_mesh.h"     // IWYU pragma: export
#include "meshift/verifier.h"       // IWYU pragma: export
#include "meshift/version.h"        // IWYU pragma: export

#endif  // MESHIFT_MESHIFT_H_
