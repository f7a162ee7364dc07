// Makes a number of calls of a cached all-gather on an engine that does nothing; symmetric_bench.sh
// counts the instructions. off: without symmetric memory; hit: a call that uses it; miss: a call
// whose target has none.
//
//   symmetric_calls off|hit|miss 1000
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "meshift/device_mesh.h"
#include "meshift/redistributor.h"
#include "meshift/sharding.h"
#include "meshift/status.h"
#include "meshift/symmetric.h"
#include "meshift/tensor_view.h"
#include "testing/internal/noop_engine.h"

namespace meshift {
namespace {

absl::Status Run(const std::string& mode, int64_t calls) {
  MESHIFT_ASSIGN_OR_RETURN(const DeviceMesh mesh, DeviceMesh::Parse("a=4"));
  NoopEngine engine(1, mesh.NumRanks());
  MESHIFT_ASSIGN_OR_RETURN(Redistributor redistribute,
                           Redistributor::Create(mesh, &engine, {.agreement = Agreement::kOff}));
  MESHIFT_ASSIGN_OR_RETURN(const auto pool,
                           redistribute.MakeSymmetricPool({0}, {.buffer_bytes = 1 << 20}));
  MESHIFT_ASSIGN_OR_RETURN(const SymmetricBlock in, pool->Allocate(64 << 10));
  MESHIFT_ASSIGN_OR_RETURN(const SymmetricBlock out, pool->Allocate(256 << 10));
  MESHIFT_ASSIGN_OR_RETURN(const Sharding from, Sharding::Parse("f32[65536]", mesh, "S(0)"));
  MESHIFT_ASSIGN_OR_RETURN(const Sharding to, from.WithPlacements("R"));
  const TensorView source = TensorView::Contiguous(in.data, DType::kF32, {16384});
  const TensorView target = TensorView::Contiguous(out.data, DType::kF32, {65536});
  const SymmetricUse use{.pool = pool.get(),
                         .source = pool->TensorAt(in.data),
                         .target = mode == "hit" ? pool->TensorAt(out.data) : SymmetricTensor()};
  const SymmetricUse* const said = mode == "off" ? nullptr : &use;
  for (int64_t i = 0; i < calls; ++i) {
    MESHIFT_RETURN_IF_ERROR(
        redistribute(
            {.from = from, .to = to, .source = source, .target = target, .symmetric = said})
            .status());
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace meshift

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const absl::Status status = meshift::Run(argv[1], std::atoll(argv[2]));
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
