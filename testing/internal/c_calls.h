// Helpers for tests of meshift/c.h: they own handles and error texts, so that a test needs one call
// per line.
//
//   const Plan plan = PlanOf("f32[4] on a=2 as P", "f32[4] on a=2 as R");
//   EXPECT_INVALID(meshift_plan_verify(plan, nullptr, error), "verdict is NULL");
#ifndef MESHIFT_TESTING_INTERNAL_C_CALLS_H_
#define MESHIFT_TESTING_INTERNAL_C_CALLS_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>

#include "meshift/c.h"

namespace meshift::capi_testing {

// Receives the error text of a call, and frees it.
class Error {
 public:
  Error() = default;
  Error(const Error&) = delete;
  Error& operator=(const Error&) = delete;
  ~Error() { meshift_free(text_); }
  operator char**() { return &text_; }  // NOLINT: an argument
  std::string text() const { return text_ == nullptr ? "" : text_; }

 private:
  char* text_ = nullptr;
};

// Owns a handle or text from a function that must not fail.
template <typename T, void (*Destroy)(T*)>
class Owned {
 public:
  Owned() = default;
  Owned(Owned&& other) noexcept : value_(std::exchange(other.value_, nullptr)) {}
  Owned& operator=(Owned&&) = delete;
  ~Owned() { Destroy(value_); }
  T** out() {
    Reset();
    return &value_;
  }
  operator T*() const { return value_; }  // NOLINT: an argument
  void Reset() { Destroy(std::exchange(value_, nullptr)); }

 private:
  T* value_ = nullptr;
};
inline void FreeText(char* text) { meshift_free(text); }
using Text = Owned<char, FreeText>;
using Mesh = Owned<meshift_mesh, meshift_mesh_destroy>;
using Sharding = Owned<meshift_sharding, meshift_sharding_destroy>;
using Options = Owned<meshift_options, meshift_options_destroy>;
using Plan = Owned<meshift_plan, meshift_plan_destroy>;
using Program = Owned<meshift_program, meshift_program_destroy>;
using World = Owned<meshift_local_world, meshift_local_world_destroy>;
using Engine = Owned<meshift_engine, meshift_engine_destroy>;
using Stream = Owned<meshift_stream, meshift_stream_destroy>;
using Buffer = Owned<meshift_buffer, meshift_buffer_destroy>;
using Redistributor = Owned<meshift_redistributor, meshift_redistributor_destroy>;
using Pending = Owned<meshift_run, meshift_run_destroy>;

#define EXPECT_FINE(call)                   \
  do {                                      \
    Error error;                            \
    EXPECT_EQ((call), MESHIFT_OK) << #call; \
    EXPECT_EQ(error.text(), "");            \
  } while (false)
#define EXPECT_REFUSED(expected, call, message) \
  do {                                          \
    Error error;                                \
    EXPECT_EQ((call), (expected)) << #call;     \
    EXPECT_EQ(error.text(), (message));         \
  } while (false)
#define EXPECT_INVALID(call, message) EXPECT_REFUSED(MESHIFT_INVALID_ARGUMENT, call, message)

inline Mesh MeshOf(const char* text) {
  Mesh mesh;
  EXPECT_FINE(meshift_mesh_parse(text, mesh.out(), error));
  return mesh;
}
inline Sharding ShardingOf(const char* text) {
  Sharding sharding;
  EXPECT_FINE(meshift_sharding_parse(text, sharding.out(), error));
  return sharding;
}
inline Plan PlanOf(const char* from, const char* to) {
  Plan plan;
  EXPECT_FINE(meshift_plan_make(ShardingOf(from), ShardingOf(to), nullptr, plan.out(), error));
  return plan;
}
inline World WorldOf(int64_t num_ranks) {
  meshift_local_options options = {};
  options.size = sizeof(options);
  options.num_ranks = num_ranks;
  World world;
  EXPECT_FINE(meshift_local_world_create(&options, world.out(), error));
  return world;
}
inline Engine EngineOf(const World& world, int64_t rank) {
  Engine engine;
  EXPECT_FINE(meshift_local_world_engine(world, rank, engine.out(), error));
  return engine;
}
template <typename Struct>
Struct Sized() {
  Struct made = {};
  made.size = sizeof(made);
  return made;
}

}  // namespace meshift::capi_testing

#endif  // MESHIFT_TESTING_INTERNAL_C_CALLS_H_
