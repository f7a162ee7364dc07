// The functions of meshift/c.h on engines, streams and buffers: results, and errors for bad
// arguments.
#include <gtest/gtest.h>

#include <vector>

#include "meshift/c.h"
#include "testing/internal/c_calls.h"

namespace meshift::capi_testing {
namespace {

TEST(C, MakesLocalWorlds) {
  const World world = WorldOf(3);
  const Engine engine = EngineOf(world, 2);
  auto info = Sized<meshift_engine_info>();
  EXPECT_FINE(meshift_engine_get_info(engine, &info, error));
  EXPECT_EQ(info.rank, 2);
  EXPECT_EQ(info.world_size, 3);
  EXPECT_STREQ(info.name, "local");
  EXPECT_FINE(meshift_engine_set_timeouts(engine, 1000000000, 1000000000, error));
  Stream stream;
  EXPECT_FINE(meshift_stream_create(engine, stream.out(), error));
  Buffer buffer;
  EXPECT_FINE(meshift_buffer_create(engine, 16, buffer.out(), error));
  const char in[17] = "0123456789abcdef";
  char out[17] = {};
  EXPECT_FINE(meshift_stream_copy_in(stream, in, meshift_buffer_data(buffer), 16, error));
  EXPECT_FINE(meshift_stream_copy_out(stream, meshift_buffer_data(buffer), out, 16, error));
  EXPECT_FINE(meshift_stream_synchronize(stream, error));
  EXPECT_STREQ(out, in);
}

// Both dims reduced one after the other: other groups form the sums of ranks 0 and 2.
TEST(C, SetsTheOrderOfReductions) {
  const World world = WorldOf(4);
  const Mesh mesh = MeshOf("a=2,b=2");
  Options planning;
  EXPECT_FINE(meshift_options_create(planning.out(), error));
  EXPECT_FINE(meshift_options_set(planning, "planner", "per-dim", error));
  auto options = Sized<meshift_redistributor_options>();
  options.planning = planning;
  const Sharding from = ShardingOf("f32[1] on a=2,b=2 as P,P");
  const Sharding to = ShardingOf("f32[1] on a=2,b=2 as R,R");
  std::vector<Redistributor> redistributors(4);
  for (int r = 0; r < 4; ++r) {
    EXPECT_FINE(meshift_redistributor_create(mesh, EngineOf(world, r), &options,
                                             redistributors[r].out(), error));
  }
  for (const auto order : {MESHIFT_REDUCTION_ORDER_RANKS, MESHIFT_REDUCTION_ORDER_ADVERSARIAL,
                           MESHIFT_REDUCTION_ORDER_TOPOLOGY}) {
    EXPECT_FINE(meshift_local_world_set_reduction_order(world, order, 2, error));
    const float in[] = {0.1F, 0.2F, 0.3F, 0.4F};
    float out[4] = {};
    std::vector<Pending> runs(4);
    for (int r = 0; r < 4; ++r) {
      auto what = Sized<meshift_redistribution>();
      what.from = from;
      what.to = to;
      what.source = &in[r];
      what.target = &out[r];
      EXPECT_FINE(meshift_redistribute(redistributors[r], &what, runs[r].out(), error));
    }
    for (const Pending& run : runs) EXPECT_FINE(meshift_run_wait(run, error));
    EXPECT_EQ(out[0] == out[2], order != MESHIFT_REDUCTION_ORDER_ADVERSARIAL);
    EXPECT_NEAR(out[0], 1, 1e-5);
  }
  EXPECT_INVALID(meshift_local_world_set_reduction_order(nullptr, 0, 0, error), "world is NULL");
  EXPECT_INVALID(meshift_local_world_set_reduction_order(world, 3, 0, error),
                 "order is 3; it must be 0, 1 or 2");
  EXPECT_INVALID(meshift_local_world_set_reduction_order(world, -1, 0, error),
                 "order is -1; it must be 0, 1 or 2");
  EXPECT_INVALID(meshift_local_world_set_reduction_order(world, 1, 0, error),
                 "domain_size is 0; it must be 1 or more");
}

TEST(C, RefusesBadEngineArguments) {
  meshift_local_world* made = reinterpret_cast<meshift_local_world*>(1);
  auto options = Sized<meshift_local_options>();
  EXPECT_EQ(meshift_local_world_create(&options, &made, nullptr), MESHIFT_INVALID_ARGUMENT);
  EXPECT_EQ(made, nullptr);
  options.num_ranks = 2;
  options.num_workers = -2;
  EXPECT_INVALID(meshift_local_world_create(&options, &made, error),
                 "options.num_workers is -2; it must be -1 or more");
  options.num_workers = 0;
  options.timeout_ns = -1;
  EXPECT_INVALID(meshift_local_world_create(&options, &made, error),
                 "options.timeout_ns is -1; it must be 0 or more");
  EXPECT_INVALID(meshift_local_world_create(nullptr, &made, error), "options is NULL");
  options.timeout_ns = 0;
  EXPECT_INVALID(meshift_local_world_create(&options, nullptr, error), "world is NULL");
  options.size = 4;
  EXPECT_EQ(meshift_local_world_create(&options, &made, nullptr), MESHIFT_INVALID_ARGUMENT);

  const World world = WorldOf(2);
  const Engine engine = EngineOf(world, 0);
  meshift_engine* none = nullptr;
  EXPECT_INVALID(meshift_local_world_engine(nullptr, 0, &none, error), "world is NULL");
  EXPECT_INVALID(meshift_local_world_engine(world, 0, nullptr, error), "engine is NULL");
  EXPECT_INVALID(meshift_local_world_engine(world, 2, &none, error),
                 "rank is 2; it must be at least 0 and below 2");
  EXPECT_INVALID(meshift_local_world_engine(world, -1, &none, error),
                 "rank is -1; it must be at least 0 and below 2");
  auto info = Sized<meshift_engine_info>();
  EXPECT_INVALID(meshift_engine_get_info(nullptr, &info, error), "engine is NULL");
  EXPECT_INVALID(meshift_engine_get_info(engine, nullptr, error), "info is NULL");
  EXPECT_INVALID(meshift_engine_set_timeouts(nullptr, 1, 1, error), "engine is NULL");
  EXPECT_EQ(meshift_engine_set_timeouts(engine, 0, 1, nullptr), MESHIFT_INVALID_ARGUMENT);
  Text path;
  EXPECT_INVALID(meshift_engine_dump(nullptr, "/tmp", path.out(), error), "engine is NULL");
  EXPECT_INVALID(meshift_engine_dump(engine, nullptr, path.out(), error), "folder is NULL");
  EXPECT_INVALID(meshift_engine_dump(engine, "/tmp", nullptr, error), "path is NULL");
  EXPECT_EQ(meshift_engine_dump(engine, "/tmp", path.out(), nullptr),
            MESHIFT_FAILED_PRECONDITION);  // no redistributor yet

  Stream stream;
  EXPECT_FINE(meshift_stream_create(engine, stream.out(), error));
  meshift_stream* no_stream = nullptr;
  meshift_buffer* no_buffer = nullptr;
  char byte = 0;
  EXPECT_INVALID(meshift_stream_create(nullptr, &no_stream, error), "engine is NULL");
  EXPECT_INVALID(meshift_stream_create(engine, nullptr, error), "stream is NULL");
  EXPECT_INVALID(meshift_stream_synchronize(nullptr, error), "stream is NULL");
  EXPECT_INVALID(meshift_buffer_create(nullptr, 1, &no_buffer, error), "engine is NULL");
  EXPECT_INVALID(meshift_buffer_create(engine, 1, nullptr, error), "buffer is NULL");
  EXPECT_INVALID(meshift_buffer_create(engine, -1, &no_buffer, error),
                 "num_bytes is -1; it must be 0 or more");
  EXPECT_EQ(meshift_buffer_data(nullptr), nullptr);
  EXPECT_INVALID(meshift_stream_copy_in(nullptr, &byte, &byte, 1, error), "stream is NULL");
  EXPECT_INVALID(meshift_stream_copy_in(stream, nullptr, &byte, 1, error), "host is NULL");
  EXPECT_INVALID(meshift_stream_copy_in(stream, &byte, nullptr, 1, error), "data is NULL");
  EXPECT_INVALID(meshift_stream_copy_in(stream, &byte, &byte, -1, error),
                 "num_bytes is -1; it must be 0 or more");
  EXPECT_INVALID(meshift_stream_copy_out(nullptr, &byte, &byte, 1, error), "stream is NULL");
  EXPECT_INVALID(meshift_stream_copy_out(stream, nullptr, &byte, 1, error), "data is NULL");
  EXPECT_INVALID(meshift_stream_copy_out(stream, &byte, nullptr, 1, error), "host is NULL");
  EXPECT_INVALID(meshift_stream_copy_out(stream, &byte, &byte, -1, error),
                 "num_bytes is -1; it must be 0 or more");
  // More than any machine has.
  EXPECT_EQ(meshift_buffer_create(engine, INT64_MAX, &no_buffer, nullptr),
            MESHIFT_RESOURCE_EXHAUSTED);
}

}  // namespace
}  // namespace meshift::capi_testing
