// A communicator and a stream lent by a framework through meshift/c.h, on the stand-ins for NCCL
// and the driver. comm/nccl/lent_test.cc tests the rules.
#include <cuda.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "comm/cuda/driver.h"
#include "comm/nccl/nccl_library.h"
#include "meshift/c.h"
#include "meshift/status.h"
#include "testing/internal/nccl/nccl_threads.h"

namespace meshift {
namespace {

constexpr int kRanks = 2;

void ExpectOk(meshift_code code, char** error) {
  EXPECT_EQ(code, MESHIFT_OK) << (*error == nullptr ? "" : *error);
  meshift_free(*error);
  *error = nullptr;
}

// Sums over the ranks on the lent communicator; all work is on the framework's stream.
void Sum(void* communicator, void* cuda_stream, int64_t rank) {
  char* error = nullptr;
  meshift_nccl_lent lent = {};
  lent.size = sizeof(lent);
  lent.communicator = communicator;
  lent.stream = cuda_stream;
  lent.may_split = 1;
  meshift_engine* engine = nullptr;
  lent.deallocate = [](void*, void*) {};
  EXPECT_EQ(meshift_nccl_engine_from_lent(&lent, &engine, &error), MESHIFT_INVALID_ARGUMENT);
  EXPECT_STREQ(error, "lent.allocate and lent.deallocate must both be set, or neither");
  meshift_free(error);
  lent.deallocate = nullptr;
  ExpectOk(meshift_nccl_engine_from_lent(&lent, &engine, &error), &error);
  meshift_stream* stream = nullptr;
  ExpectOk(meshift_nccl_stream_wrap(engine, cuda_stream, &stream, &error), &error);

  meshift_mesh* mesh = nullptr;
  ExpectOk(meshift_mesh_parse("a=2", &mesh, &error), &error);
  meshift_sharding *parts = nullptr, *sums = nullptr;
  ExpectOk(meshift_sharding_create("i32[4]", mesh, "P", &parts, &error), &error);
  ExpectOk(meshift_sharding_with_placements(parts, "R", &sums, &error), &error);
  meshift_buffer *in = nullptr, *out = nullptr;
  ExpectOk(meshift_buffer_create(engine, 16, &in, &error), &error);
  ExpectOk(meshift_buffer_create(engine, 16, &out, &error), &error);
  std::array<int32_t, 4> values;
  values.fill(static_cast<int32_t>(rank) + 1);
  ExpectOk(meshift_stream_copy_in(stream, values.data(), meshift_buffer_data(in), 16, &error),
           &error);
  meshift_redistributor* redistributor = nullptr;
  ExpectOk(meshift_redistributor_create(mesh, engine, nullptr, &redistributor, &error), &error);
  meshift_redistribution what = {};
  what.size = sizeof(what);
  what.from = parts;
  what.to = sums;
  what.source = meshift_buffer_data(in);
  what.target = meshift_buffer_data(out);
  what.after = stream;
  meshift_run* run = nullptr;
  ExpectOk(meshift_redistribute(redistributor, &what, &run, &error), &error);
  ExpectOk(meshift_run_wait_on(run, stream, &error), &error);
  ExpectOk(meshift_stream_copy_out(stream, meshift_buffer_data(out), values.data(), 16, &error),
           &error);
  ExpectOk(meshift_stream_synchronize(stream, &error), &error);
  EXPECT_EQ(values, (std::array<int32_t, 4>{3, 3, 3, 3}));

  meshift_run_destroy(run);
  meshift_redistributor_destroy(redistributor);
  meshift_buffer_destroy(out);
  meshift_buffer_destroy(in);
  meshift_sharding_destroy(sums);
  meshift_sharding_destroy(parts);
  meshift_mesh_destroy(mesh);
  meshift_stream_destroy(stream);
  meshift_engine_destroy(engine);
}

TEST(NcclByC, RunsOnWhatIsLent) {
  TheFake()->reset();
  const auto driver = CudaDriver::Load().value();
  const auto nccl = NcclLibrary::Load().value();
  ASSERT_EQ(Message(driver->Init(0)), "");
  ncclUniqueId id;
  ASSERT_EQ(nccl->GetUniqueId(&id), ncclSuccess);
  RunThreads(kRanks, [&](int64_t rank) {
    CUdevice device = 0;
    CUcontext context = nullptr;
    CUstream stream = nullptr;
    EXPECT_EQ(Message(driver->DeviceGet(&device, static_cast<int>(rank))), "");
    EXPECT_EQ(Message(driver->DevicePrimaryCtxRetain(&context, device)), "");
    EXPECT_EQ(Message(driver->CtxSetCurrent(context)), "");
    EXPECT_EQ(Message(driver->StreamCreate(&stream, CU_STREAM_NON_BLOCKING)), "");
    ncclComm_t comm = nullptr;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    EXPECT_EQ(nccl->CommInitRankConfig(&comm, kRanks, id, static_cast<int>(rank), &config),
              ncclSuccess);
    TheFake()->lend_comm(comm, 1);
    TheFake()->lend_stream(stream);
    Sum(comm, stream, rank);
    TheFake()->take_back(comm);
    EXPECT_EQ(nccl->CommFinalize(comm), ncclSuccess);
    EXPECT_EQ(nccl->CommDestroy(comm), ncclSuccess);
    TheFake()->take_back(stream);
    EXPECT_EQ(Message(driver->StreamDestroy(stream)), "");
    EXPECT_EQ(Message(driver->CtxSetCurrent(nullptr)), "");
    EXPECT_EQ(Message(driver->DevicePrimaryCtxRelease(device)), "");
  });
  EXPECT_EQ(TheFake()->record_leaks(), 0);
  EXPECT_EQ(Violations(), "");
}

}  // namespace
}  // namespace meshift
