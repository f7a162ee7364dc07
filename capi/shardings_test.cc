// The functions of meshift/c.h on dtypes, meshes, shardings and options: results, and errors for
// bad arguments.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "meshift/c.h"
#include "planner/plan/option_table.h"
#include "testing/internal/c_calls.h"

namespace meshift::capi_testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

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
  EXPECT_INVALID(meshift_mesh_dim(mesh, 2, nullptr, nullptr, error),
                 "dim is 2; it must be at least 0 and below 2");
  EXPECT_INVALID(meshift_mesh_dim(mesh, -1, nullptr, nullptr, error),
                 "dim is -1; it must be at least 0 and below 2");
  EXPECT_INVALID(meshift_mesh_rank_at(nullptr, 0, &number, error), "mesh is NULL");
  EXPECT_INVALID(meshift_mesh_rank_at(mesh, 0, nullptr, error), "rank is NULL");
  EXPECT_INVALID(meshift_mesh_rank_at(mesh, 4, &number, error),
                 "position is 4; it must be at least 0 and below 4");
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
                   "dtype is " + std::to_string(none) + ", which is not a dtype number");
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
  for (const PlannerOption& option : PlannerOptionTable()) {
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
  // In any order, although native_invariance belongs to the engine.
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

}  // namespace
}  // namespace meshift::capi_testing
