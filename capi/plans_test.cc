// The functions of meshift/c.h on plans and programs: results, and errors for bad arguments.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>

#include "meshift/c.h"
#include "testing/internal/c_calls.h"

namespace meshift::capi_testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

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
  EXPECT_INVALID(meshift_plan_mesh(plan, 2, &none, error),
                 "mesh is 2; it must be at least 0 and below 2");
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
  EXPECT_INVALID(meshift_plan_json(plan, -2, text.out(), error),
                 "indent is -2; it must be -1 to 16");
  EXPECT_INVALID(meshift_plan_fingerprint(nullptr, text.out(), error), "plan is NULL");
  EXPECT_INVALID(meshift_plan_fingerprint(plan, nullptr, error), "text is NULL");
  EXPECT_INVALID(meshift_plan_promise(nullptr, nullptr, nullptr, error), "plan is NULL");
  EXPECT_INVALID(meshift_plan_from(nullptr, &sharding, error), "plan is NULL");
  EXPECT_INVALID(meshift_plan_from(plan, nullptr, error), "from is NULL");
  EXPECT_INVALID(meshift_plan_to(nullptr, &sharding, error), "plan is NULL");
  EXPECT_INVALID(meshift_plan_to(plan, nullptr, error), "to is NULL");
  EXPECT_INVALID(meshift_plan_verify(nullptr, 0, nullptr, nullptr, error), "plan is NULL");
  EXPECT_INVALID(meshift_plan_verify(plan, -1, nullptr, nullptr, error),
                 "max_work is -1; it must be 0 or more");
  EXPECT_INVALID(meshift_plan_get_info(nullptr, &info, error), "plan is NULL");
  EXPECT_INVALID(meshift_plan_get_info(plan, nullptr, error), "info is NULL");
  EXPECT_INVALID(meshift_plan_mesh(nullptr, 0, &mesh, error), "plan is NULL");
  EXPECT_INVALID(meshift_plan_mesh(plan, 0, nullptr, error), "out is NULL");
  EXPECT_INVALID(meshift_plan_step(nullptr, 0, &step, error), "plan is NULL");
  EXPECT_INVALID(meshift_plan_step(plan, 0, nullptr, error), "out is NULL");
  EXPECT_INVALID(meshift_plan_step(plan, 1, &step, error),
                 "step is 1; it must be at least 0 and below 1");
  EXPECT_INVALID(meshift_plan_step_text(nullptr, 0, text.out(), error), "plan is NULL");
  EXPECT_INVALID(meshift_plan_step_text(plan, 0, nullptr, error), "text is NULL");
  EXPECT_INVALID(meshift_plan_step_text(plan, -1, text.out(), error),
                 "step is -1; it must be at least 0 and below 1");
  EXPECT_INVALID(meshift_plan_step_after(nullptr, 0, &sharding, error), "plan is NULL");
  EXPECT_INVALID(meshift_plan_step_after(plan, 0, nullptr, error), "after is NULL");
  EXPECT_INVALID(meshift_plan_step_after(plan, 9, &sharding, error),
                 "step is 9; it must be at least 0 and below 1");
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
                 "index is 1; it must be at least 0 and below 1");
  EXPECT_INVALID(meshift_program_get_instruction(nullptr, 0, &instruction, error),
                 "program is NULL");
  EXPECT_INVALID(meshift_program_get_instruction(program, 0, nullptr, error),
                 "instruction is NULL");
  EXPECT_INVALID(meshift_program_get_instruction(program, 1, &instruction, error),
                 "index is 1; it must be at least 0 and below 1");
  EXPECT_INVALID(meshift_program_get_copy(nullptr, 0, &copy, error), "program is NULL");
  EXPECT_INVALID(meshift_program_get_copy(program, 0, &copy, error),
                 "index is 0, but there are none");
  EXPECT_INVALID(meshift_program_get_message(nullptr, 0, &message, error), "program is NULL");
  EXPECT_INVALID(meshift_program_get_message(program, SIZE_MAX, &message, error),
                 "index is 18446744073709551615, but there are none");
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

}  // namespace
}  // namespace meshift::capi_testing
