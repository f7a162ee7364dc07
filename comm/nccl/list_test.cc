// Lists of tensors against one call each, on the NCCL engine over the stand-in libraries.
#include <gtest/gtest.h>

#include <cstdint>

#include "base/status.h"
#include "meshift/device_mesh.h"
#include "meshift/nccl_engine.h"
#include "testing/internal/conformance/list_check.h"
#include "testing/internal/nccl/nccl_threads.h"

namespace meshift {
namespace {

TEST(NcclListTest, ListsDoWhatTheirTensorsDo) {
  const DeviceMesh mesh = DeviceMesh::Parse("a=2,b=2").value();
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    auto ranks = NcclThreads::Create(4, {}, seed);
    ASSERT_TRUE(ranks.ok()) << ranks.status();
    (*ranks)->Run([&](NcclEngine& engine, int64_t) {
      EXPECT_EQ(Message(CheckLists(&engine, mesh, {.lists = 15, .seed = seed})), "");
    });
    EXPECT_EQ(Violations(), "");
  }
}

}  // namespace
}  // namespace meshift
