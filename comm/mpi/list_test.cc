// A call with a list of tensors gives the results of one call per tensor, across processes.
#include "absl/status/status.h"
#include "base/status.h"
#include "meshift/device_mesh.h"
#include "meshift/mpi_engine.h"
#include "meshift/status.h"
#include "testing/internal/conformance/list_check.h"
#include "testing/internal/mpi/rank_main.h"

namespace meshift {
namespace {

absl::Status Run() {
  MESHIFT_ASSIGN_OR_RETURN(const auto bootstrap, MpiBootstrap());
  MESHIFT_ASSIGN_OR_RETURN(const auto engine, CreateMpiEngine({.control = bootstrap->control()}));
  MESHIFT_ASSIGN_OR_RETURN(const DeviceMesh mesh,
                           DeviceMesh::Create({{.name = "a", .size = engine->world_size() / 2},
                                               {.name = "b", .size = 2}}));
  MESHIFT_RETURN_IF_ERROR(CheckLists(engine.get(), mesh, {.lists = 60, .seed = 1}));
  return CheckLists(
      engine.get(), mesh,
      {.lists = 20, .seed = 2, .coalesce_bytes = 32, .ragged_sizes = RaggedSizes::kMax});
}

}  // namespace
}  // namespace meshift

int main() { return meshift::RunAsRank("list_test", meshift::Run); }
