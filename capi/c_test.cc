// meshift/c.h as C has it: what each function gives, and what each says to bad arguments.
#include "meshift/c.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "meshift/planner_options.h"
#include "planner/plan/option_table.h"

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Collects what a call says; frees it.
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

// A handle or text of a function that must not fail.
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
void FreeText(char* text) { meshift_free(text); }
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

Mesh MeshOf(const char* text) {
  Mesh mesh;
  EXPECT_FINE(meshift_mesh_parse(text, mesh.out(), error));
  return mesh;
}
Sharding ShardingOf(const char* text) {
  Sharding sharding;
  EXPECT_FINE(meshift_sharding_parse(text, sharding.out(), error));
  return sharding;
}
Plan PlanOf(const char* from, const char* to) {
  Plan plan;
  EXPECT_FINE(meshift_plan_make(ShardingOf(from), ShardingOf(to), nullptr, plan.out(), error));
  return plan;
}
World WorldOf(int64_t num_ranks) {
  meshift_local_options options = {};
  options.size = sizeof(options);
  options.num_ranks = num_ranks;
  World world;
  EXPECT_FINE(meshift_local_world_create(&options, world.out(), error));
  return world;
}
Engine EngineOf(const World& world, int64_t rank) {
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

// --- Version, numbers ---

TEST(C, SaysWhichItIs) {
  EXPECT_EQ(meshift_abi_version(), MESHIFT_ABI_VERSION);
  EXPECT_STREQ(meshift_version(), "0.2.0");
  EXPECT_STREQ(meshift_code_name(MESHIFT_OK), "OK");
  EXPECT_STREQ(meshift_code_name(MESHIFT_UNAUTHENTICATED), "UNAUTHENTICATED");
  EXPECT_EQ(meshift_code_name(17), nullptr);
  EXPECT_EQ(meshift_code_name(-1), nullptr);
  meshift_free(nullptr);
}

TEST(C, NamesDTypesAndOps) {
  for (meshift_dtype dtype = MESHIFT_DTYPE_BOOL; dtype <= MESHIFT_DTYPE_C128; ++dtype) {
    meshift_dtype parsed = 0;
    EXPECT_FINE(meshift_dtype_parse(meshift_dtype_name(dtype), &parsed, error));
    EXPECT_EQ(parsed, dtype);
    EXPECT_GT(meshift_dtype_bits(dtype), 0);
  }
  EXPECT_STREQ(meshift_dtype_name(MESHIFT_DTYPE_BF16), "bf16");
  EXPECT_EQ(meshift_dtype_bits(MESHIFT_DTYPE_F4E2M1), 4);
  for (meshift_op op = MESHIFT_OP_SUM; op <= MESHIFT_OP_XOR; ++op) {
    meshift_op parsed = 0;
    EXPECT_FINE(meshift_op_parse(meshift_op_name(op), &parsed, error));
    EXPECT_EQ(parsed, op);
  }
  EXPECT_STREQ(meshift_op_name(MESHIFT_OP_PRODUCT), "product");
  EXPECT_STREQ(meshift_step_op_name(MESHIFT_STEP_RELABEL), "relabel");
  EXPECT_STREQ(meshift_instruction_kind_name(MESHIFT_INSTRUCTION_REDUCE_IN_ORDER),
               "reduce_in_order");
  for (const int32_t none : {-1, 0, 100}) {
    EXPECT_EQ(meshift_dtype_name(none), nullptr);
    EXPECT_EQ(meshift_dtype_bits(none), 0);
    EXPECT_EQ(meshift_op_name(none), nullptr);
    EXPECT_EQ(meshift_step_op_name(none), nullptr);
    EXPECT_EQ(meshift_instruction_kind_name(none), nullptr);
  }
  Error error;
  meshift_dtype dtype = 0;
  EXPECT_EQ(meshift_dtype_parse("f33", &dtype, error), MESHIFT_INVALID_ARGUMENT);
  EXPECT_THAT(error.text(), HasSubstr("f33"));
  EXPECT_EQ(dtype, 0);
  meshift_op op = 0;
  EXPECT_EQ(meshift_op_parse("plus", &op, nullptr), MESHIFT_INVALID_ARGUMENT);
  EXPECT_INVALID(meshift_dtype_parse(nullptr, &dtype, error), "name is NULL");
  EXPECT_INVALID(meshift_dtype_parse("f32", nullptr, error), "dtype is NULL");
  EXPECT_INVALID(meshift_op_parse(nullptr, &op, error), "name is NULL");
  EXPECT_INVALID(meshift_op_parse("sum", nullptr, error), "op is NULL");
}

// --- Meshes ---

TEST(C, KnowsMeshes) {
  const Mesh mesh = MeshOf("a=2,b=2@4-5,0-1");
  Text text;
  EXPECT_FINE(meshift_mesh_text(mesh, text.out(), error));
  EXPECT_STREQ(text, "a=2,b=2@4-5,0-1");
  auto info = Sized<meshift_mesh_info>();
  EXPECT_FINE(meshift_mesh_get_info(mesh, &info, error));
  EXPECT_EQ(info.num_dims, 2);
  EXPECT_EQ(info.num_ranks, 4);
  EXPECT_EQ(info.max_rank, 5);
  Text name;
  int64_t size = 0;
  EXPECT_FINE(meshift_mesh_dim(mesh, 1, name.out(), &size, error));
  EXPECT_STREQ(name, "b");
  EXPECT_EQ(size, 2);
  EXPECT_FINE(meshift_mesh_dim(mesh, 0, nullptr, nullptr, error));
  int64_t number = 0;
  EXPECT_FINE(meshift_mesh_rank_at(mesh, 2, &number, error));
  EXPECT_EQ(number, 0);
  EXPECT_FINE(meshift_mesh_position_of(mesh, 1, &number, error));
  EXPECT_EQ(number, 3);
  std::vector<int64_t> coordinate(3, -1);
  EXPECT_FINE(meshift_mesh_coordinate(mesh, 5, coordinate.data(), 3, error));
  EXPECT_THAT(coordinate, ElementsAre(0, 1, -1));
  Mesh both;
  EXPECT_FINE(meshift_mesh_union(mesh, MeshOf("c=2@7,8"), both.out(), error));
  Text all;
  EXPECT_FINE(meshift_mesh_text(both, all.out(), error));
  EXPECT_STREQ(all, "ranks=6@0-1,4-5,7-8");
}

TEST(C, RefusesBadMeshes) {
  meshift_mesh* made = reinterpret_cast<meshift_mesh*>(1);
  Error why;
  EXPECT_EQ(meshift_mesh_parse("a=0", &made, why), MESHIFT_INVALID_ARGUMENT);
  EXPECT_EQ(made, nullptr);
  EXPECT_NE(why.text(), "");
  const Mesh mesh = MeshOf("a=2,b=2");
  Text text;
  int64_t number = 0;
  auto info = Sized<meshift_mesh_info>();
  EXPECT_INVALID(meshift_mesh_parse(nullptr, &made, error), "text is NULL");
  EXPECT_INVALID(meshift_mesh_parse("a=2", nullptr, error), "mesh is NULL");
  EXPECT_INVALID(meshift_mesh_union(nullptr, mesh, &made, error), "a is NULL");
  EXPECT_INVALID(meshift_mesh_union(mesh, nullptr, &made, error), "b is NULL");
  EXPECT_INVALID(meshift_mesh_union(mesh, mesh, nullptr, error), "mesh is NULL");
  EXPECT_INVALID(meshift_mesh_text(nullptr, text.out(), error), "mesh is NULL");
  EXPECT_INVALID(meshift_mesh_text(mesh, nullptr, error), "text is NULL");
  EXPECT_INVALID(meshift_mesh_get_info(nullptr, &info, error), "mesh is NULL");
  EXPECT_INVALID(meshift_mesh_get_info(mesh, nullptr, error), "info is NULL");
  EXPECT_INVALID(meshift_mesh_dim(nullptr, 0, nullptr, nullptr, error), "mesh is NULL");
  EXPECT_INVALID(meshift_mesh_dim(mesh, 2, nullptr, nullptr, error), "dim is 2, but there are 2");
  EXPECT_INVALID(meshift_mesh_dim(mesh, -1, nullptr, nullptr, error), "dim is -1, but there are 2");
  EXPECT_INVALID(meshift_mesh_rank_at(nullptr, 0, &number, error), "mesh is NULL");
  EXPECT_INVALID(meshift_mesh_rank_at(mesh, 0, nullptr, error), "rank is NULL");
  EXPECT_INVALID(meshift_mesh_rank_at(mesh, 4, &number, error), "position is 4, but there are 4");
  EXPECT_INVALID(meshift_mesh_position_of(nullptr, 0, &number, error), "mesh is NULL");
  EXPECT_INVALID(meshift_mesh_position_of(mesh, 0, nullptr, error), "position is NULL");
  EXPECT_REFUSED(MESHIFT_NOT_FOUND, meshift_mesh_position_of(mesh, 9, &number, error),
                 "rank 9 is not in mesh a=2,b=2");
  EXPECT_INVALID(meshift_mesh_coordinate(nullptr, 0, &number, 1, error), "mesh is NULL");
  EXPECT_INVALID(meshift_mesh_coordinate(mesh, 0, nullptr, 2, error), "coordinate is NULL");
  EXPECT_INVALID(meshift_mesh_coordinate(mesh, 0, &number, 1, error),
                 "capacity is 1, but a coordinate has 2 numbers");
  EXPECT_REFUSED(MESHIFT_NOT_FOUND, meshift_mesh_coordinate(mesh, -1, &number, 1, error),
                 "rank -1 is not in mesh a=2,b=2");
}

TEST(C, RefusesStructsOfAnotherSize) {
  const Mesh mesh = MeshOf("a=2");
  auto info = Sized<meshift_mesh_info>();
  for (const size_t size : {size_t{0}, sizeof(info) - 1, sizeof(info) + 8}) {
    info.size = size;
    Error error;
    EXPECT_EQ(meshift_mesh_get_info(mesh, &info, error), MESHIFT_INVALID_ARGUMENT);
    EXPECT_EQ(error.text(), "info.size is " + std::to_string(size) +
                                ", but this library's struct has " + std::to_string(sizeof(info)) +
                                " bytes");
    EXPECT_EQ(info.num_ranks, 0);
  }
}

// --- Shardings ---

TEST(C, KnowsShardings) {
  const Mesh mesh = MeshOf("dp=2,tp=4");
  Sharding sharding;
  EXPECT_FINE(meshift_sharding_create("bf16[10,8]", mesh, "S(0),S(1)", sharding.out(), error));
  Text text, placements;
  EXPECT_FINE(meshift_sharding_text(sharding, text.out(), error));
  EXPECT_STREQ(text, "bf16[10,8] on dp=2,tp=4 as S(0),S(1)");
  auto box = Sized<meshift_box>();
  EXPECT_FINE(meshift_sharding_local_box(sharding, 5, &box, error));
  EXPECT_EQ(box.dtype, MESHIFT_DTYPE_BF16);
  EXPECT_EQ(box.num_dims, 2);
  EXPECT_EQ(box.offset[0], 5);
  EXPECT_EQ(box.offset[1], 2);
  EXPECT_EQ(box.shape[0], 5);
  EXPECT_EQ(box.shape[1], 2);
  EXPECT_EQ(box.num_elements, 10);
  EXPECT_EQ(box.num_bytes, 20);
  EXPECT_FINE(meshift_sharding_local_box(sharding, 8, &box, error));
  EXPECT_EQ(box.num_dims, 1);
  EXPECT_EQ(box.num_elements, 0);
  EXPECT_FINE(meshift_sharding_tensor(sharding, &box, error));
  EXPECT_EQ(box.shape[0], 10);
  EXPECT_EQ(box.offset[0], 0);
  EXPECT_EQ(box.num_bytes, 160);
  Sharding other, wide;
  EXPECT_FINE(meshift_sharding_with_placements(sharding, "R,R", other.out(), error));
  EXPECT_FINE(meshift_sharding_placements(other, placements.out(), error));
  EXPECT_STREQ(placements, "R,R");
  EXPECT_FINE(meshift_sharding_with_dtype(sharding, MESHIFT_DTYPE_F32, wide.out(), error));
  Text wide_text;
  EXPECT_FINE(meshift_sharding_text(wide, wide_text.out(), error));
  EXPECT_STREQ(wide_text, "f32[10,8] on dp=2,tp=4 as S(0),S(1)");
  Mesh its;
  EXPECT_FINE(meshift_sharding_mesh(sharding, its.out(), error));
  Text its_text;
  EXPECT_FINE(meshift_mesh_text(its, its_text.out(), error));
  EXPECT_STREQ(its_text, "dp=2,tp=4");
}

TEST(C, RefusesBadShardings) {
  const Mesh mesh = MeshOf("a=2");
  const Sharding sharding = ShardingOf("f32[4] on a=2 as P");
  meshift_sharding* made = reinterpret_cast<meshift_sharding*>(1);
  meshift_mesh* its = nullptr;
  Text text;
  auto box = Sized<meshift_box>();
  Error why;
  EXPECT_EQ(meshift_sharding_create("f32[4]", mesh, "S(1)", &made, why), MESHIFT_INVALID_ARGUMENT);
  EXPECT_EQ(made, nullptr);
  EXPECT_THAT(why.text(), HasSubstr("out of range"));
  EXPECT_EQ(meshift_sharding_create("f33[4]", mesh, "R", &made, nullptr), MESHIFT_INVALID_ARGUMENT);
  EXPECT_EQ(meshift_sharding_create("f32[4]", mesh, "R,R", &made, nullptr),
            MESHIFT_INVALID_ARGUMENT);
  EXPECT_EQ(meshift_sharding_parse("f32[4]", &made, nullptr), MESHIFT_INVALID_ARGUMENT);
  EXPECT_EQ(meshift_sharding_with_placements(sharding, "S(3)", &made, nullptr),
            MESHIFT_INVALID_ARGUMENT);
  EXPECT_INVALID(meshift_sharding_create(nullptr, mesh, "R", &made, error), "tensor is NULL");
  EXPECT_INVALID(meshift_sharding_create("f32[4]", nullptr, "R", &made, error), "mesh is NULL");
  EXPECT_INVALID(meshift_sharding_create("f32[4]", mesh, nullptr, &made, error),
                 "placements is NULL");
  EXPECT_INVALID(meshift_sharding_create("f32[4]", mesh, "R", nullptr, error), "sharding is NULL");
  EXPECT_INVALID(meshift_sharding_parse(nullptr, &made, error), "text is NULL");
  EXPECT_INVALID(meshift_sharding_parse("f32[4] on a=2 as R", nullptr, error), "sharding is NULL");
  EXPECT_INVALID(meshift_sharding_with_placements(nullptr, "R", &made, error), "sharding is NULL");
  EXPECT_INVALID(meshift_sharding_with_placements(sharding, nullptr, &made, error),
                 "placements is NULL");
  EXPECT_INVALID(meshift_sharding_with_placements(sharding, "R", nullptr, error), "other is NULL");
  EXPECT_INVALID(meshift_sharding_with_dtype(nullptr, MESHIFT_DTYPE_F32, &made, error),
                 "sharding is NULL");
  EXPECT_INVALID(meshift_sharding_with_dtype(sharding, MESHIFT_DTYPE_F32, nullptr, error),
                 "other is NULL");
  for (const meshift_dtype none : {0, -1, 19}) {
    EXPECT_INVALID(meshift_sharding_with_dtype(sharding, none, &made, error),
                   "dtype is " + std::to_string(none) + ", not a dtype's number");
  }
  EXPECT_INVALID(meshift_sharding_text(nullptr, text.out(), error), "sharding is NULL");
  EXPECT_INVALID(meshift_sharding_text(sharding, nullptr, error), "text is NULL");
  EXPECT_INVALID(meshift_sharding_placements(nullptr, text.out(), error), "sharding is NULL");
  EXPECT_INVALID(meshift_sharding_placements(sharding, nullptr, error), "text is NULL");
  EXPECT_INVALID(meshift_sharding_mesh(nullptr, &its, error), "sharding is NULL");
  EXPECT_INVALID(meshift_sharding_mesh(sharding, nullptr, error), "mesh is NULL");
  EXPECT_INVALID(meshift_sharding_tensor(nullptr, &box, error), "sharding is NULL");
  EXPECT_INVALID(meshift_sharding_tensor(sharding, nullptr, error), "box is NULL");
  EXPECT_INVALID(meshift_sharding_local_box(nullptr, 0, &box, error), "sharding is NULL");
  EXPECT_INVALID(meshift_sharding_local_box(sharding, 0, nullptr, error), "box is NULL");
  box.size = 8;
  EXPECT_EQ(meshift_sharding_tensor(sharding, &box, nullptr), MESHIFT_INVALID_ARGUMENT);
  EXPECT_EQ(meshift_sharding_local_box(sharding, 0, &box, nullptr), MESHIFT_INVALID_ARGUMENT);
}

// --- Options ---

TEST(C, ListsTheOptionsOfPlans) {
  std::vector<std::string> names;
  for (size_t i = 0; i < meshift_option_count(); ++i) {
    auto info = Sized<meshift_option_info>();
    EXPECT_FINE(meshift_option_get_info(i, &info, error));
    names.emplace_back(info.name);
    EXPECT_GT(std::strlen(info.help), 0U) << info.name;
    EXPECT_GE(std::strlen(info.value_name), 0U);
  }
  std::vector<std::string> expected = {"topology", "engine"};
  for (const meshift::PlannerOption& option : meshift::PlannerOptionTable()) {
    expected.emplace_back(option.name);
  }
  EXPECT_EQ(names, expected);
  auto info = Sized<meshift_option_info>();
  EXPECT_EQ(meshift_option_get_info(names.size(), &info, nullptr), MESHIFT_INVALID_ARGUMENT);
  EXPECT_INVALID(meshift_option_get_info(0, nullptr, error), "info is NULL");
}

TEST(C, TakesOptionsByName) {
  const Sharding from = ShardingOf("bf16[64,16] on dp=2,tp=4 as P,R");
  const Sharding to = ShardingOf("bf16[64,16] on dp=2,tp=4 as R,R");
  Options options;
  EXPECT_FINE(meshift_options_create(options.out(), error));
  // In whatever order: native_invariance is of the engine.
  EXPECT_FINE(meshift_options_set(options, "native_invariance", "all_reduce", error));
  EXPECT_FINE(meshift_options_set(options, "reproducibility", "batch-invariant", error));
  EXPECT_FINE(meshift_options_set(options, "topology", "h100", error));
  EXPECT_FINE(meshift_options_set(options, "engine", "nccl", error));
  EXPECT_FINE(meshift_options_set(options, "max_memory", "1.5GiB", error));
  EXPECT_FINE(meshift_options_set(options, "new_groups", "off", error));
  EXPECT_FINE(meshift_options_set(options, "existing_groups", "dp", error));
  Plan plan;
  EXPECT_FINE(meshift_plan_make(from, to, options, plan.out(), error));
  Text text;
  EXPECT_FINE(meshift_plan_text(plan, text.out(), error));
  EXPECT_THAT(
      std::string(text),
      HasSubstr("# topology h100, engine nccl, planner best, reproducibility "
                "batch-invariant, max_memory 1610612736, new_groups off, existing_groups dp;dp,tp, "
                "native_invariance all_reduce\n"));
  // A later value takes the place of an earlier one.
  EXPECT_FINE(meshift_options_set(options, "max_memory", "1", error));
  meshift_plan* none = nullptr;
  EXPECT_EQ(meshift_plan_make(from, to, options, &none, nullptr), MESHIFT_RESOURCE_EXHAUSTED);
  EXPECT_EQ(none, nullptr);
}

TEST(C, RefusesBadOptions) {
  Options options;
  EXPECT_FINE(meshift_options_create(options.out(), error));
  EXPECT_INVALID(meshift_options_create(nullptr, error), "options is NULL");
  EXPECT_INVALID(meshift_options_set(nullptr, "planner", "best", error), "options is NULL");
  EXPECT_INVALID(meshift_options_set(options, nullptr, "best", error), "name is NULL");
  EXPECT_INVALID(meshift_options_set(options, "planner", nullptr, error), "value is NULL");
  EXPECT_INVALID(meshift_options_set(options, "plan", "best", error), "unknown option 'plan'");
  EXPECT_INVALID(meshift_options_set(options, "engine", "abacus", error),
                 "option engine: unknown engine 'abacus'; expected local, mpi or nccl");
  EXPECT_INVALID(meshift_options_set(options, "new_groups", "perhaps", error),
                 "option new_groups: 'perhaps' is neither on nor off");
  EXPECT_EQ(meshift_options_set(options, "topology", "h1000", nullptr), MESHIFT_INVALID_ARGUMENT);
  // Only a plan's meshes say whether there is such a group.
  EXPECT_FINE(meshift_options_set(options, "existing_groups", "zz", error));
  Error error;
  meshift_plan* plan = nullptr;
  EXPECT_EQ(meshift_plan_make(ShardingOf("f32[4] on a=2 as P"), ShardingOf("f32[4] on a=2 as R"),
                              options, &plan, error),
            MESHIFT_INVALID_ARGUMENT);
  EXPECT_THAT(error.text(), StartsWith("option existing_groups: "));
  EXPECT_THAT(error.text(), HasSubstr("zz"));
}

// --- Plans ---

TEST(C, Plans) {
  const Plan plan = PlanOf("bf16[64,16] on dp=2,tp=4 as P,R", "bf16[64,16] on dp=2,tp=4 as R,R");
  EXPECT_FINE(meshift_plan_verify(plan, 0, nullptr, nullptr, error));
  auto info = Sized<meshift_plan_info>();
  EXPECT_FINE(meshift_plan_get_info(plan, &info, error));
  EXPECT_EQ(info.num_meshes, 1);
  EXPECT_GT(info.collectives, 0);
  EXPECT_GT(info.bytes_sent, 0);
  EXPECT_GT(info.est_ns, 0);
  EXPECT_GE(info.peak_bytes, info.workspace_bytes);
  EXPECT_GE(info.bytes_sent, info.lower_bound_bytes_sent);
  int64_t sent = 0;
  int64_t reductions = 0;
  for (int32_t i = 0; i < info.num_steps; ++i) {
    auto step = Sized<meshift_step>();
    EXPECT_FINE(meshift_plan_step(plan, i, &step, error));
    Text text;
    EXPECT_FINE(meshift_plan_step_text(plan, i, text.out(), error));
    EXPECT_THAT(std::string(text), StartsWith(meshift_step_op_name(step.op)));
    Sharding after;
    EXPECT_FINE(meshift_plan_step_after(plan, i, after.out(), error));
    EXPECT_NE(static_cast<meshift_sharding*>(after), nullptr);
    for (size_t d = 0; d < step.num_mesh_dims; ++d) EXPECT_LT(step.mesh_dims[d], 2);
    EXPECT_EQ(step.wire_dtype != MESHIFT_DTYPE_NONE, step.op <= MESHIFT_STEP_EXCHANGE);
    EXPECT_EQ(step.group_size > 0, step.op <= MESHIFT_STEP_EXCHANGE);
    EXPECT_EQ(step.in_order, 0);
    EXPECT_EQ(step.divisor, 0);
    reductions += step.reduce_op == MESHIFT_OP_SUM ? 1 : 0;
    sent += step.bytes_sent;
  }
  EXPECT_EQ(sent, info.bytes_sent);
  EXPECT_EQ(reductions, 1);
  Text kept, why, fingerprint, text, json;
  EXPECT_FINE(meshift_plan_promise(plan, kept.out(), why.out(), error));
  EXPECT_STREQ(kept, "replicas");
  EXPECT_THAT(std::string(why), HasSubstr("reduced by one group"));
  EXPECT_FINE(meshift_plan_promise(plan, nullptr, nullptr, error));
  EXPECT_FINE(meshift_plan_fingerprint(plan, fingerprint.out(), error));
  EXPECT_EQ(std::strlen(fingerprint), 32U);
  EXPECT_FINE(meshift_plan_text(plan, text.out(), error));
  EXPECT_FINE(meshift_plan_json(plan, -1, json.out(), error));
  EXPECT_EQ(std::string(json).find('\n'), std::string::npos);
  for (const Text* form : {&text, &json}) {
    Plan again;
    EXPECT_FINE(meshift_plan_read(*form, again.out(), error));
    Text its;
    EXPECT_FINE(meshift_plan_text(again, its.out(), error));
    EXPECT_STREQ(its, text);
  }
  Sharding from, to;
  EXPECT_FINE(meshift_plan_from(plan, from.out(), error));
  EXPECT_FINE(meshift_plan_to(plan, to.out(), error));
  Text from_text, to_text;
  EXPECT_FINE(meshift_sharding_text(from, from_text.out(), error));
  EXPECT_FINE(meshift_sharding_text(to, to_text.out(), error));
  EXPECT_STREQ(from_text, "bf16[64,16] on dp=2,tp=4 as P,R");
  EXPECT_STREQ(to_text, "bf16[64,16] on dp=2,tp=4 as R,R");
}

TEST(C, PlansFromMeshToMesh) {
  const Plan plan = PlanOf("f32[8] on a=4 as S(0)", "f32[8] on b=2@7,9 as S(0)");
  auto info = Sized<meshift_plan_info>();
  EXPECT_FINE(meshift_plan_get_info(plan, &info, error));
  ASSERT_EQ(info.num_meshes, 2);
  Mesh second;
  EXPECT_FINE(meshift_plan_mesh(plan, 1, second.out(), error));
  Text text;
  EXPECT_FINE(meshift_mesh_text(second, text.out(), error));
  EXPECT_STREQ(text, "b=2@7,9");
  meshift_mesh* none = nullptr;
  EXPECT_INVALID(meshift_plan_mesh(plan, 2, &none, error), "mesh is 2, but there are 2");
}

TEST(C, NamesTheRuleThatAPlanBreaks) {
  const Plan plan = PlanOf("f32[8] on a=4 as P", "f32[8] on a=4 as R");
  Text text;
  EXPECT_FINE(meshift_plan_text(plan, text.out(), error));
  std::string changed(text);
  const size_t at = changed.find("P -> R");
  changed.replace(at, 6, "P -> S(0)");
  Plan wrong;
  EXPECT_FINE(meshift_plan_read(changed.c_str(), wrong.out(), error));
  Text rule;
  int32_t step = 7;
  Error error;
  EXPECT_EQ(meshift_plan_verify(wrong, 0, rule.out(), &step, error), MESHIFT_FAILED_PRECONDITION);
  EXPECT_STREQ(rule, "target");
  EXPECT_EQ(step, -1);
  EXPECT_NE(error.text(), "");
  EXPECT_EQ(meshift_plan_verify(wrong, 0, nullptr, nullptr, nullptr), MESHIFT_FAILED_PRECONDITION);
  // Too little work to prove anything.
  EXPECT_EQ(meshift_plan_verify(plan, 1, nullptr, nullptr, nullptr), MESHIFT_FAILED_PRECONDITION);
}

TEST(C, RefusesBadPlans) {
  const Sharding from = ShardingOf("f32[8] on a=4 as P");
  const Sharding to = ShardingOf("f32[8] on a=4 as R");
  const Plan plan = PlanOf("f32[8] on a=4 as P", "f32[8] on a=4 as R");
  meshift_plan* made = reinterpret_cast<meshift_plan*>(1);
  meshift_sharding* sharding = nullptr;
  meshift_mesh* mesh = nullptr;
  Text text;
  auto info = Sized<meshift_plan_info>();
  auto step = Sized<meshift_step>();
  EXPECT_EQ(meshift_plan_make(from, ShardingOf("f32[9] on a=4 as R"), nullptr, &made, nullptr),
            MESHIFT_INVALID_ARGUMENT);
  EXPECT_EQ(made, nullptr);
  EXPECT_EQ(meshift_plan_read("{}", &made, nullptr), MESHIFT_INVALID_ARGUMENT);
  EXPECT_INVALID(meshift_plan_make(nullptr, to, nullptr, &made, error), "from is NULL");
  EXPECT_INVALID(meshift_plan_make(from, nullptr, nullptr, &made, error), "to is NULL");
  EXPECT_INVALID(meshift_plan_make(from, to, nullptr, nullptr, error), "plan is NULL");
  EXPECT_INVALID(meshift_plan_read(nullptr, &made, error), "text is NULL");
  EXPECT_INVALID(meshift_plan_read("{}", nullptr, error), "plan is NULL");
  EXPECT_INVALID(meshift_plan_text(nullptr, text.out(), error), "plan is NULL");
  EXPECT_INVALID(meshift_plan_text(plan, nullptr, error), "text is NULL");
  EXPECT_INVALID(meshift_plan_json(nullptr, 2, text.out(), error), "plan is NULL");
  EXPECT_INVALID(meshift_plan_json(plan, 2, nullptr, error), "json is NULL");
  EXPECT_INVALID(meshift_plan_json(plan, -2, text.out(), error), "indent is -2, not in -1..16");
  EXPECT_INVALID(meshift_plan_fingerprint(nullptr, text.out(), error), "plan is NULL");
  EXPECT_INVALID(meshift_plan_fingerprint(plan, nullptr, error), "text is NULL");
  EXPECT_INVALID(meshift_plan_promise(nullptr, nullptr, nullptr, error), "plan is NULL");
  EXPECT_INVALID(meshift_plan_from(nullptr, &sharding, error), "plan is NULL");
  EXPECT_INVALID(meshift_plan_from(plan, nullptr, error), "from is NULL");
  EXPECT_INVALID(meshift_plan_to(nullptr, &sharding, error), "plan is NULL");
  EXPECT_INVALID(meshift_plan_to(plan, nullptr, error), "to is NULL");
  EXPECT_INVALID(meshift_plan_verify(nullptr, 0, nullptr, nullptr, error), "plan is NULL");
  EXPECT_INVALID(meshift_plan_verify(plan, -1, nullptr, nullptr, error),
                 "max_work is -1, not 0 or more");
  EXPECT_INVALID(meshift_plan_get_info(nullptr, &info, error), "plan is NULL");
  EXPECT_INVALID(meshift_plan_get_info(plan, nullptr, error), "info is NULL");
  EXPECT_INVALID(meshift_plan_mesh(nullptr, 0, &mesh, error), "plan is NULL");
  EXPECT_INVALID(meshift_plan_mesh(plan, 0, nullptr, error), "out is NULL");
  EXPECT_INVALID(meshift_plan_step(nullptr, 0, &step, error), "plan is NULL");
  EXPECT_INVALID(meshift_plan_step(plan, 0, nullptr, error), "out is NULL");
  EXPECT_INVALID(meshift_plan_step(plan, 1, &step, error), "step is 1, but there are 1");
  EXPECT_INVALID(meshift_plan_step_text(nullptr, 0, text.out(), error), "plan is NULL");
  EXPECT_INVALID(meshift_plan_step_text(plan, 0, nullptr, error), "text is NULL");
  EXPECT_INVALID(meshift_plan_step_text(plan, -1, text.out(), error),
                 "step is -1, but there are 1");
  EXPECT_INVALID(meshift_plan_step_after(nullptr, 0, &sharding, error), "plan is NULL");
  EXPECT_INVALID(meshift_plan_step_after(plan, 0, nullptr, error), "after is NULL");
  EXPECT_INVALID(meshift_plan_step_after(plan, 9, &sharding, error), "step is 9, but there are 1");
  info.size = step.size = 1;
  EXPECT_EQ(meshift_plan_get_info(plan, &info, nullptr), MESHIFT_INVALID_ARGUMENT);
  EXPECT_EQ(meshift_plan_step(plan, 0, &step, nullptr), MESHIFT_INVALID_ARGUMENT);
}

// --- Programs; program_test.cc runs them ---

TEST(C, RefusesBadProgramArguments) {
  const Plan plan = PlanOf("f32[8] on a=4 as P", "f32[8] on a=4 as R");
  Program program;
  EXPECT_FINE(meshift_plan_lower(plan, 2, nullptr, program.out(), error));
  Text text;
  EXPECT_FINE(meshift_program_text(program, text.out(), error));
  EXPECT_THAT(std::string(text), StartsWith("rank 2: "));
  meshift_program* made = nullptr;
  auto options = Sized<meshift_program_options>();
  auto info = Sized<meshift_program_info>();
  auto group = Sized<meshift_program_group>();
  auto instruction = Sized<meshift_instruction>();
  auto copy = Sized<meshift_copy>();
  auto message = Sized<meshift_message>();
  EXPECT_INVALID(meshift_plan_lower(nullptr, 0, nullptr, &made, error), "plan is NULL");
  EXPECT_INVALID(meshift_plan_lower(plan, 0, nullptr, nullptr, error), "program is NULL");
  EXPECT_INVALID(meshift_plan_lower(plan, -1, nullptr, &made, error), "rank -1 is negative");
  EXPECT_INVALID(meshift_program_text(nullptr, text.out(), error), "program is NULL");
  EXPECT_INVALID(meshift_program_text(program, nullptr, error), "text is NULL");
  EXPECT_INVALID(meshift_program_get_info(nullptr, &info, error), "program is NULL");
  EXPECT_INVALID(meshift_program_get_info(program, nullptr, error), "info is NULL");
  EXPECT_INVALID(meshift_program_get_group(nullptr, 0, &group, error), "program is NULL");
  EXPECT_INVALID(meshift_program_get_group(program, 0, nullptr, error), "group is NULL");
  EXPECT_INVALID(meshift_program_get_group(program, 1, &group, error),
                 "index is 1, but there are 1");
  EXPECT_INVALID(meshift_program_get_instruction(nullptr, 0, &instruction, error),
                 "program is NULL");
  EXPECT_INVALID(meshift_program_get_instruction(program, 0, nullptr, error),
                 "instruction is NULL");
  EXPECT_INVALID(meshift_program_get_instruction(program, 1, &instruction, error),
                 "index is 1, but there are 1");
  EXPECT_INVALID(meshift_program_get_copy(nullptr, 0, &copy, error), "program is NULL");
  EXPECT_INVALID(meshift_program_get_copy(program, 0, &copy, error), "index is 0, but there are 0");
  EXPECT_INVALID(meshift_program_get_message(nullptr, 0, &message, error), "program is NULL");
  EXPECT_INVALID(meshift_program_get_message(program, SIZE_MAX, &message, error),
                 "index is 18446744073709551615, but there are 0");
  // A target whose elements overlap.
  const int64_t strides[] = {0};
  options.target_strides = strides;
  EXPECT_EQ(meshift_plan_lower(plan, 0, &options, &made, nullptr), MESHIFT_INVALID_ARGUMENT);
  EXPECT_EQ(made, nullptr);
  options.size = info.size = group.size = instruction.size = 3;
  EXPECT_EQ(meshift_plan_lower(plan, 0, &options, &made, nullptr), MESHIFT_INVALID_ARGUMENT);
  EXPECT_EQ(meshift_program_get_info(program, &info, nullptr), MESHIFT_INVALID_ARGUMENT);
  EXPECT_EQ(meshift_program_get_group(program, 0, &group, nullptr), MESHIFT_INVALID_ARGUMENT);
  EXPECT_EQ(meshift_program_get_instruction(program, 0, &instruction, nullptr),
            MESHIFT_INVALID_ARGUMENT);
}

TEST(C, GivesARankOfNoMeshAnEmptyProgram) {
  const Plan plan = PlanOf("f32[8] on a=4 as P", "f32[8] on a=4 as R");
  for (const int64_t rank : {int64_t{4}, INT64_MAX}) {
    Program program;
    EXPECT_FINE(meshift_plan_lower(plan, rank, nullptr, program.out(), error));
    auto info = Sized<meshift_program_info>();
    EXPECT_FINE(meshift_program_get_info(program, &info, error));
    EXPECT_EQ(info.num_instructions, 0U);
    EXPECT_EQ(info.num_groups, 1U);
    EXPECT_EQ(info.source_bytes, 0);
    auto group = Sized<meshift_program_group>();
    EXPECT_FINE(meshift_program_get_group(program, 0, &group, error));
    EXPECT_EQ(group.num_ranks, 0U);
    EXPECT_EQ(group.member, -1);
  }
}

// --- Engines ---

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

TEST(C, RefusesBadEngineArguments) {
  meshift_local_world* made = reinterpret_cast<meshift_local_world*>(1);
  auto options = Sized<meshift_local_options>();
  EXPECT_EQ(meshift_local_world_create(&options, &made, nullptr), MESHIFT_INVALID_ARGUMENT);
  EXPECT_EQ(made, nullptr);
  options.num_ranks = 2;
  options.num_workers = -2;
  EXPECT_INVALID(meshift_local_world_create(&options, &made, error),
                 "options.num_workers is -2, not -1 or more");
  options.num_workers = 0;
  options.timeout_ns = -1;
  EXPECT_INVALID(meshift_local_world_create(&options, &made, error),
                 "options.timeout_ns is -1, not 0 or more");
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
  EXPECT_INVALID(meshift_local_world_engine(world, 2, &none, error), "rank is 2, but there are 2");
  EXPECT_INVALID(meshift_local_world_engine(world, -1, &none, error),
                 "rank is -1, but there are 2");
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
                 "num_bytes is -1, not 0 or more");
  EXPECT_EQ(meshift_buffer_data(nullptr), nullptr);
  EXPECT_INVALID(meshift_stream_copy_in(nullptr, &byte, &byte, 1, error), "stream is NULL");
  EXPECT_INVALID(meshift_stream_copy_in(stream, nullptr, &byte, 1, error), "host is NULL");
  EXPECT_INVALID(meshift_stream_copy_in(stream, &byte, nullptr, 1, error), "data is NULL");
  EXPECT_INVALID(meshift_stream_copy_in(stream, &byte, &byte, -1, error),
                 "num_bytes is -1, not 0 or more");
  EXPECT_INVALID(meshift_stream_copy_out(nullptr, &byte, &byte, 1, error), "stream is NULL");
  EXPECT_INVALID(meshift_stream_copy_out(stream, nullptr, &byte, 1, error), "data is NULL");
  EXPECT_INVALID(meshift_stream_copy_out(stream, &byte, nullptr, 1, error), "host is NULL");
  EXPECT_INVALID(meshift_stream_copy_out(stream, &byte, &byte, -1, error),
                 "num_bytes is -1, not 0 or more");
  // More than any machine has.
  EXPECT_EQ(meshift_buffer_create(engine, INT64_MAX, &no_buffer, nullptr),
            MESHIFT_RESOURCE_EXHAUSTED);
}

// --- Redistributing ---

// Two ranks, driven by this thread.
class TwoRanks : public ::testing::Test {
 protected:
  static constexpr int kRanks = 2;

  TwoRanks() {
    for (int r = 0; r < kRanks; ++r) {
      engine_[r] = std::make_unique<Engine>(EngineOf(world_, r));
      redistributor_[r] = std::make_unique<Redistributor>();
      EXPECT_FINE(meshift_redistributor_create(mesh_, *engine_[r], nullptr,
                                               redistributor_[r]->out(), error));
      in_[r] = {1.0F + r, 2.0F + r, 3.0F + r, 4.0F + r};
    }
  }

  meshift_redistribution Sum(int rank) {
    auto what = Sized<meshift_redistribution>();
    what.from = parts_;
    what.to = sums_;
    what.source = in_[rank].data();
    what.target = out_[rank].data();
    return what;
  }

  const World world_ = WorldOf(kRanks);
  const Mesh mesh_ = MeshOf("a=2");
  const Sharding parts_ = ShardingOf("f32[4] on a=2 as P");
  const Sharding sums_ = ShardingOf("f32[4] on a=2 as R");
  std::unique_ptr<Engine> engine_[kRanks];
  std::unique_ptr<Redistributor> redistributor_[kRanks];
  std::vector<float> in_[kRanks];
  std::vector<float> out_[kRanks] = {std::vector<float>(4), std::vector<float>(4)};
};

TEST_F(TwoRanks, Redistribute) {
  Pending run[kRanks];
  for (int r = 0; r < kRanks; ++r) {
    const meshift_redistribution what = Sum(r);
    EXPECT_FINE(meshift_redistribute(*redistributor_[r], &what, run[r].out(), error));
  }
  for (int r = 0; r < kRanks; ++r) {
    EXPECT_FINE(meshift_run_wait(run[r], error));
    EXPECT_FINE(meshift_run_wait(run[r], error));
    int32_t done = 0;
    EXPECT_FINE(meshift_run_is_done(run[r], &done, error));
    EXPECT_EQ(done, 1);
    EXPECT_THAT(out_[r], ElementsAre(3, 5, 7, 9));
    auto stats = Sized<meshift_stats>();
    EXPECT_FINE(meshift_redistributor_get_stats(*redistributor_[r], &stats, error));
    EXPECT_EQ(stats.calls, 1);
    EXPECT_EQ(stats.plans_made, 1);
    EXPECT_EQ(stats.plans_cached, 1);
  }
}

TEST_F(TwoRanks, RedistributeWithStridesAWorkspaceAndStreams) {
  const Sharding rows = ShardingOf("f32[2,2] on a=2 as S(0)");
  const Sharding all = ShardingOf("f32[2,2] on a=2 as R");
  const int64_t strides[] = {1, 2};  // the transposed target
  Pending run[kRanks], next[kRanks];
  Stream stream[kRanks];
  std::vector<char> workspace[kRanks];
  for (int r = 0; r < kRanks; ++r) {
    EXPECT_FINE(meshift_stream_create(*engine_[r], stream[r].out(), error));
    auto what = Sized<meshift_redistribution>();
    what.from = rows;
    what.to = all;
    what.source = in_[r].data();
    what.target = out_[r].data();
    what.target_strides = strides;
    what.after = stream[r];
    const meshift_redistribution* const list[] = {&what};
    int64_t bytes = -1;
    EXPECT_FINE(meshift_redistributor_workspace_bytes(*redistributor_[r], list, 1, &bytes, error));
    EXPECT_GT(bytes, 0);
    workspace[r].resize(bytes + 16);
    what.workspace =
        workspace[r].data() + (16 - reinterpret_cast<uintptr_t>(workspace[r].data()) % 16) % 16;
    what.workspace_bytes = bytes;
    EXPECT_FINE(meshift_redistribute(*redistributor_[r], &what, run[r].out(), error));
  }
  for (int r = 0; r < kRanks; ++r) {
    // In place, after the first; then what the stream does comes after that.
    auto what = Sized<meshift_redistribution>();
    what.from = parts_;
    what.to = sums_;
    what.source = what.target = out_[r].data();
    what.after_run = run[r];
    EXPECT_FINE(meshift_redistribute(*redistributor_[r], &what, next[r].out(), error));
    EXPECT_FINE(meshift_run_wait_on(next[r], stream[r], error));
  }
  for (int r = 0; r < kRanks; ++r) {
    EXPECT_FINE(meshift_stream_synchronize(stream[r], error));
    EXPECT_THAT(out_[r], ElementsAre(2, 4, 4, 6));
  }
}

TEST_F(TwoRanks, RedistributeLists) {
  std::vector<float> more[kRanks] = {std::vector<float>(4), std::vector<float>(4)};
  Pending run[kRanks];
  for (int r = 0; r < kRanks; ++r) {
    const meshift_redistribution one = Sum(r);
    meshift_redistribution two = Sum(r);
    two.target = more[r].data();
    const meshift_redistribution* const list[] = {&one, &two};
    EXPECT_FINE(
        meshift_redistribute_list(*redistributor_[r], list, 2, nullptr, 0, run[r].out(), error));
  }
  for (int r = 0; r < kRanks; ++r) {
    EXPECT_FINE(meshift_run_wait(run[r], error));
    EXPECT_THAT(out_[r], ElementsAre(3, 5, 7, 9));
    EXPECT_THAT(more[r], ElementsAre(3, 5, 7, 9));
  }
}

TEST_F(TwoRanks, RunPlansAndPrepare) {
  Pending run[kRanks];
  for (int r = 0; r < kRanks; ++r) {
    Plan plan;
    EXPECT_FINE(meshift_redistributor_prepare(*redistributor_[r], parts_, sums_, MESHIFT_DTYPE_NONE,
                                              plan.out(), error));
    EXPECT_FINE(meshift_redistributor_prepare(*redistributor_[r], parts_, sums_, MESHIFT_DTYPE_F64,
                                              nullptr, error));
    meshift_redistribution what = Sum(r);
    what.from = what.to = nullptr;
    EXPECT_FINE(meshift_redistribute_plan(*redistributor_[r], plan, &what, run[r].out(), error));
  }
  for (int r = 0; r < kRanks; ++r) {
    EXPECT_FINE(meshift_run_wait(run[r], error));
    EXPECT_THAT(out_[r], ElementsAre(3, 5, 7, 9));
  }
}

TEST_F(TwoRanks, CallInTheOrderOfTickets) {
  Pending run[kRanks][2];
  std::vector<float> more[kRanks] = {std::vector<float>(4), std::vector<float>(4)};
  for (int r = 0; r < kRanks; ++r) {
    // The second waits in its thread for the first.
    std::thread second([&, r] {
      meshift_redistribution what = Sum(r);
      what.target = more[r].data();
      what.has_ticket = 1;
      what.ticket = 1;
      EXPECT_FINE(meshift_redistribute(*redistributor_[r], &what, run[r][1].out(), error));
    });
    meshift_redistribution what = Sum(r);
    what.has_ticket = 1;
    EXPECT_FINE(meshift_redistribute(*redistributor_[r], &what, run[r][0].out(), error));
    second.join();
  }
  for (int r = 0; r < kRanks; ++r) {
    EXPECT_FINE(meshift_run_wait(run[r][0], error));
    EXPECT_FINE(meshift_run_wait(run[r][1], error));
    EXPECT_THAT(more[r], ElementsAre(3, 5, 7, 9));
  }
}

TEST_F(TwoRanks, DestroyHandlesInAnyOrder) {
  Pending run[kRanks];
  for (int r = 0; r < kRanks; ++r) {
    const meshift_redistribution what = Sum(r);
    EXPECT_FINE(meshift_redistribute(*redistributor_[r], &what, run[r].out(), error));
    redistributor_[r]->Reset();
    engine_[r]->Reset();
  }
  const_cast<World&>(world_).Reset();
  for (int r = 0; r < kRanks; ++r) {
    EXPECT_FINE(meshift_run_wait(run[r], error));
    EXPECT_THAT(out_[r], ElementsAre(3, 5, 7, 9));
  }
}

TEST_F(TwoRanks, EndWithAnAbort) {
  Pending run;
  const meshift_redistribution what = Sum(0);
  EXPECT_FINE(meshift_redistribute(*redistributor_[0], &what, run.out(), error));
  EXPECT_FINE(meshift_redistributor_abort(*redistributor_[1], error));
  EXPECT_EQ(meshift_run_wait(run, nullptr), MESHIFT_ABORTED);
  meshift_run* none = nullptr;
  const meshift_redistribution other = Sum(1);
  EXPECT_EQ(meshift_redistribute(*redistributor_[1], &other, &none, nullptr), MESHIFT_ABORTED);
  EXPECT_INVALID(meshift_redistributor_abort(nullptr, error), "redistributor is NULL");
}

TEST_F(TwoRanks, RefuseBadRedistributors) {
  meshift_redistributor* none = reinterpret_cast<meshift_redistributor*>(1);
  auto options = Sized<meshift_redistributor_options>();
  const Engine& engine = *engine_[0];
  EXPECT_INVALID(meshift_redistributor_create(nullptr, engine, nullptr, &none, error),
                 "mesh is NULL");
  EXPECT_EQ(none, nullptr);
  EXPECT_INVALID(meshift_redistributor_create(mesh_, nullptr, nullptr, &none, error),
                 "engine is NULL");
  EXPECT_INVALID(meshift_redistributor_create(mesh_, engine, nullptr, nullptr, error),
                 "redistributor is NULL");
  options.agreement = 3;
  EXPECT_INVALID(meshift_redistributor_create(mesh_, engine, &options, &none, error),
                 "options.agreement is 3, not 0, 1 or 2");
  options = Sized<meshift_redistributor_options>();
  options.timeout_ns = -1;
  EXPECT_INVALID(meshift_redistributor_create(mesh_, engine, &options, &none, error),
                 "options.timeout_ns is -1, not 0 or more");
  options = Sized<meshift_redistributor_options>();
  options.max_cached_bytes = -1;
  EXPECT_INVALID(meshift_redistributor_create(mesh_, engine, &options, &none, error),
                 "options.max_cached_bytes is -1, not 0 or more");
  options.size = 0;
  EXPECT_EQ(meshift_redistributor_create(mesh_, engine, &options, &none, nullptr),
            MESHIFT_INVALID_ARGUMENT);
  // Ranks that the world does not have.
  EXPECT_EQ(meshift_redistributor_create(MeshOf("a=3"), engine, nullptr, &none, nullptr),
            MESHIFT_INVALID_ARGUMENT);
  Options planning;
  EXPECT_FINE(meshift_options_create(planning.out(), error));
  EXPECT_FINE(meshift_options_set(planning, "existing_groups", "zz", error));
  options = Sized<meshift_redistributor_options>();
  options.planning = planning;
  EXPECT_EQ(meshift_redistributor_create(mesh_, engine, &options, &none, nullptr),
            MESHIFT_INVALID_ARGUMENT);
}

TEST_F(TwoRanks, TakeOptions) {
  Options planning;
  EXPECT_FINE(meshift_options_create(planning.out(), error));
  EXPECT_FINE(meshift_options_set(planning, "reproducibility", "ordered", error));
  auto options = Sized<meshift_redistributor_options>();
  options.planning = planning;
  options.agreement = MESHIFT_AGREEMENT_OFF;
  options.single_stream = 1;
  options.timeout_ns = 1000000000;
  options.max_cached_bytes = 1 << 20;
  Redistributor made;
  EXPECT_FINE(meshift_redistributor_create(mesh_, *engine_[0], &options, made.out(), error));
  planning.Reset();
  Plan plan;
  EXPECT_FINE(meshift_redistributor_prepare(made, parts_, sums_, 0, plan.out(), error));
  Text kept;
  EXPECT_FINE(meshift_plan_promise(plan, kept.out(), nullptr, error));
  EXPECT_STREQ(kept, "ordered");
}

TEST_F(TwoRanks, RefuseBadRedistributions) {
  meshift_run* none = reinterpret_cast<meshift_run*>(1);
  const Redistributor& redistributor = *redistributor_[0];
  meshift_redistribution what = Sum(0);
  EXPECT_INVALID(meshift_redistribute(nullptr, &what, &none, error), "redistributor is NULL");
  EXPECT_EQ(none, nullptr);
  EXPECT_INVALID(meshift_redistribute(redistributor, nullptr, &none, error), "what is NULL");
  EXPECT_INVALID(meshift_redistribute(redistributor, &what, nullptr, error), "run is NULL");
  what.from = nullptr;
  EXPECT_INVALID(meshift_redistribute(redistributor, &what, &none, error), "what.from is NULL");
  what = Sum(0);
  what.to = nullptr;
  EXPECT_INVALID(meshift_redistribute(redistributor, &what, &none, error), "what.to is NULL");
  what = Sum(0);
  what.reduce_dtype = 77;
  EXPECT_INVALID(meshift_redistribute(redistributor, &what, &none, error),
                 "what.reduce_dtype is 77, not a dtype's number");
  what = Sum(0);
  what.size -= 8;
  EXPECT_EQ(meshift_redistribute(redistributor, &what, &none, nullptr), MESHIFT_INVALID_ARGUMENT);
  // No memory, though there are elements; overlapping tensors; a workspace that is too small.
  what = Sum(0);
  what.target = nullptr;
  EXPECT_EQ(meshift_redistribute(redistributor, &what, &none, nullptr), MESHIFT_INVALID_ARGUMENT);
  what = Sum(0);
  what.target = in_[0].data() + 1;
  EXPECT_EQ(meshift_redistribute(redistributor, &what, &none, nullptr), MESHIFT_INVALID_ARGUMENT);
  // Shardings of ranks that are not in the redistributor's mesh.
  const Sharding elsewhere = ShardingOf("f32[4] on a=2@5,6 as R");
  what = Sum(0);
  what.to = elsewhere;
  EXPECT_EQ(meshift_redistribute(redistributor, &what, &none, nullptr), MESHIFT_INVALID_ARGUMENT);
  // What was refused has changed nothing.
  auto stats = Sized<meshift_stats>();
  EXPECT_FINE(meshift_redistributor_get_stats(redistributor, &stats, error));
  EXPECT_EQ(stats.calls, 0);
  EXPECT_INVALID(meshift_redistributor_get_stats(nullptr, &stats, error), "redistributor is NULL");
  EXPECT_INVALID(meshift_redistributor_get_stats(redistributor, nullptr, error), "stats is NULL");
}

TEST_F(TwoRanks, RefuseBadListsAndPlans) {
  meshift_run* none = nullptr;
  const Redistributor& redistributor = *redistributor_[0];
  const meshift_redistribution what = Sum(0);
  const meshift_redistribution* const list[] = {&what, nullptr};
  int64_t bytes = 0;
  EXPECT_INVALID(meshift_redistribute_list(nullptr, list, 1, nullptr, 0, &none, error),
                 "redistributor is NULL");
  EXPECT_INVALID(meshift_redistribute_list(redistributor, nullptr, 1, nullptr, 0, &none, error),
                 "list is NULL");
  EXPECT_INVALID(meshift_redistribute_list(redistributor, list, 2, nullptr, 0, &none, error),
                 "list[1]: what is NULL");
  EXPECT_INVALID(meshift_redistribute_list(redistributor, list, 1, nullptr, 0, nullptr, error),
                 "run is NULL");
  EXPECT_INVALID(meshift_redistributor_workspace_bytes(nullptr, list, 1, &bytes, error),
                 "redistributor is NULL");
  EXPECT_INVALID(meshift_redistributor_workspace_bytes(redistributor, list, 1, nullptr, error),
                 "bytes is NULL");
  EXPECT_INVALID(meshift_redistributor_workspace_bytes(redistributor, list, 2, &bytes, error),
                 "list[1]: what is NULL");

  const Plan plan = PlanOf("f32[4] on a=2 as P", "f32[4] on a=2 as R");
  meshift_redistribution buffers = Sum(0);
  EXPECT_INVALID(meshift_redistribute_plan(redistributor, plan, &buffers, &none, error),
                 "what.from, what.to and what.reduce_dtype are the plan's, and must not be set");
  buffers.from = buffers.to = nullptr;
  EXPECT_INVALID(meshift_redistribute_plan(nullptr, plan, &buffers, &none, error),
                 "redistributor is NULL");
  EXPECT_INVALID(meshift_redistribute_plan(redistributor, nullptr, &buffers, &none, error),
                 "plan is NULL");
  EXPECT_INVALID(meshift_redistribute_plan(redistributor, plan, nullptr, &none, error),
                 "what is NULL");
  EXPECT_INVALID(meshift_redistribute_plan(redistributor, plan, &buffers, nullptr, error),
                 "run is NULL");
  // A plan that is not right does not run.
  Text text;
  EXPECT_FINE(meshift_plan_text(plan, text.out(), error));
  std::string changed(text);
  changed.replace(changed.find("P -> R"), 6, "P -> S(0)");
  Plan wrong;
  EXPECT_FINE(meshift_plan_read(changed.c_str(), wrong.out(), error));
  Error error;
  EXPECT_EQ(meshift_redistribute_plan(redistributor, wrong, &buffers, &none, error),
            MESHIFT_INVALID_ARGUMENT);
  EXPECT_THAT(error.text(), HasSubstr("breaks rule target"));

  EXPECT_INVALID(meshift_redistributor_prepare(nullptr, parts_, sums_, 0, nullptr, error),
                 "redistributor is NULL");
  EXPECT_INVALID(meshift_redistributor_prepare(redistributor, nullptr, sums_, 0, nullptr, error),
                 "from is NULL");
  EXPECT_INVALID(meshift_redistributor_prepare(redistributor, parts_, nullptr, 0, nullptr, error),
                 "to is NULL");
  EXPECT_INVALID(meshift_redistributor_prepare(redistributor, parts_, sums_, -3, nullptr, error),
                 "reduce_dtype is -3, not a dtype's number");
}

TEST_F(TwoRanks, RefuseHandlesOfOtherEngines) {
  const World other_world = WorldOf(kRanks);
  Stream of_other_rank, of_other_world;
  EXPECT_FINE(meshift_stream_create(*engine_[1], of_other_rank.out(), error));
  EXPECT_FINE(meshift_stream_create(EngineOf(other_world, 0), of_other_world.out(), error));
  Pending run[kRanks];
  for (int r = 0; r < kRanks; ++r) {
    const meshift_redistribution what = Sum(r);
    EXPECT_FINE(meshift_redistribute(*redistributor_[r], &what, run[r].out(), error));
  }
  meshift_run* none = nullptr;
  for (const Stream* const stream : {&of_other_rank, &of_other_world}) {
    meshift_redistribution what = Sum(0);
    what.after = *stream;
    EXPECT_INVALID(meshift_redistribute(*redistributor_[0], &what, &none, error),
                   "what.after is of another engine");
    EXPECT_INVALID(meshift_run_wait_on(run[0], *stream, error), "stream is of another engine");
  }
  meshift_redistribution what = Sum(0);
  what.after_run = run[1];
  EXPECT_INVALID(meshift_redistribute(*redistributor_[0], &what, &none, error),
                 "what.after_run is of another engine");
  int32_t done = 0;
  EXPECT_INVALID(meshift_run_wait(nullptr, error), "run is NULL");
  EXPECT_INVALID(meshift_run_is_done(nullptr, &done, error), "run is NULL");
  EXPECT_INVALID(meshift_run_is_done(run[0], nullptr, error), "done is NULL");
  EXPECT_INVALID(meshift_run_wait_on(nullptr, of_other_rank, error), "run is NULL");
  EXPECT_INVALID(meshift_run_wait_on(run[0], nullptr, error), "stream is NULL");
  for (const Pending& one : run) EXPECT_FINE(meshift_run_wait(one, error));
}

// Ranks that disagree learn it from each other, where they have a control channel.
TEST(C, TellsRanksThatDisagree) {
  auto options = Sized<meshift_local_options>();
  options.num_ranks = 2;
  options.control = 1;
  World world;
  EXPECT_FINE(meshift_local_world_create(&options, world.out(), error));
  std::vector<std::thread> ranks;
  for (int r = 0; r < 2; ++r) {
    ranks.emplace_back([&, r] {
      const Engine engine = EngineOf(world, r);
      const Mesh mesh = MeshOf("a=2");
      Redistributor redistributor;
      EXPECT_FINE(meshift_redistributor_create(mesh, engine, nullptr, redistributor.out(), error));
      const Sharding from = ShardingOf("f32[4] on a=2 as P");
      const Sharding to = ShardingOf(r == 0 ? "f32[4] on a=2 as R" : "f32[4] on a=2 as S(0)");
      std::vector<float> in(4), out(4);
      auto what = Sized<meshift_redistribution>();
      what.from = from;
      what.to = to;
      what.source = in.data();
      what.target = out.data();
      meshift_run* run = nullptr;
      Error error;
      EXPECT_EQ(meshift_redistribute(redistributor, &what, &run, error),
                MESHIFT_FAILED_PRECONDITION);
      EXPECT_THAT(error.text(), HasSubstr("P -> S(0)"));
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

TEST(C, DestroysNothing) {
  meshift_mesh_destroy(nullptr);
  meshift_sharding_destroy(nullptr);
  meshift_options_destroy(nullptr);
  meshift_plan_destroy(nullptr);
  meshift_program_destroy(nullptr);
  meshift_local_world_destroy(nullptr);
  meshift_engine_destroy(nullptr);
  meshift_stream_destroy(nullptr);
  meshift_buffer_destroy(nullptr);
  meshift_redistributor_destroy(nullptr);
  meshift_run_destroy(nullptr);
}

}  // namespace
