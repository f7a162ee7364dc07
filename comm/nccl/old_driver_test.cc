// The engine on a driver that is older than the toolkit: its kernels come as PTX.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "meshift/device_mesh.h"
#include "meshift/nccl_engine.h"
#include "meshift/redistributor.h"
#include "testing/internal/nccl/engine_fixture.h"

namespace meshift {
namespace {

TEST_F(NcclEngineTest, KernelsRunOnADriverOfCuda124) {
  Start(2);
  const DeviceMesh mesh = DeviceMesh::Parse("a=2").value();
  // Sums that NCCL does not do.
  const Pair pair = PairOf("i16[8]", mesh, "P", "R");
  ranks_->Run([&](NcclEngine& engine, int64_t) {
    Redistributor redistribute = Redistributor::Create(mesh, &engine).value();
    EXPECT_EQ(Call(engine, pair).Result(redistribute, std::vector<uint8_t>(16, 1)),
              std::vector<uint8_t>(16, 2));
  });
}

}  // namespace
}  // namespace meshift
