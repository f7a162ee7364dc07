// The functions of meshift/c.h on explanations: results, and errors for bad arguments.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "meshift/c.h"
#include "testing/internal/c_calls.h"

namespace meshift::capi_testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsNull;

using Explanation = Owned<meshift_explanation, meshift_explanation_destroy>;

// On 16 B200 an all_reduce, or a reduce_scatter and an all_gather (docs/command_line.md).
class Explanations : public ::testing::Test {
 protected:
  Explanations() {
    Options options;
    EXPECT_FINE(meshift_options_create(options.out(), error));
    EXPECT_FINE(meshift_options_set(options, "topology", "b200-ndr", error));
    EXPECT_FINE(meshift_explanation_create(from_, to_, options, 0, explanation_.out(), error));
  }

  const Sharding from_ = ShardingOf("f32[16777216] on a=16 as P");
  const Sharding to_ = ShardingOf("f32[16777216] on a=16 as R");
  Explanation explanation_;
};

TEST_F(Explanations, ListAlternatives) {
  ASSERT_EQ(meshift_explanation_count(explanation_), 3U);
  const std::string verdicts[] = {"best", "costs more", "per-dim"};
  const int32_t num_steps[] = {1, 2, 1};
  for (size_t i = 0; i < 3; ++i) {
    auto alternative = Sized<meshift_alternative>();
    EXPECT_FINE(meshift_explanation_get(explanation_, i, &alternative, error));
    EXPECT_EQ(alternative.verdict, verdicts[i]);
    EXPECT_EQ(alternative.num_steps, num_steps[i]);
    EXPECT_EQ(*alternative.reason == 0, i == 0);
    Plan plan;
    EXPECT_FINE(meshift_explanation_plan(explanation_, i, plan.out(), error));
    EXPECT_FINE(meshift_plan_verify(plan, 0, nullptr, nullptr, error));
    auto info = Sized<meshift_plan_info>();
    EXPECT_FINE(meshift_plan_get_info(plan, &info, error));
    EXPECT_EQ(info.num_steps, num_steps[i]);
    // The parts of a step's time add up to it.
    for (int32_t s = 0; s < num_steps[i]; ++s) {
      auto step = Sized<meshift_step>();
      EXPECT_FINE(meshift_plan_step(plan, s, &step, error));
      auto time = Sized<meshift_step_time>();
      EXPECT_FINE(meshift_explanation_step_time(explanation_, i, s, &time, error));
      EXPECT_EQ(time.starts_ns + time.hops_ns + time.messages_ns + time.links_ns + time.copies_ns,
                step.est_ns);
    }
  }
}

TEST_F(Explanations, GiveReasons) {
  auto alternative = Sized<meshift_alternative>();
  EXPECT_FINE(meshift_explanation_get(explanation_, 1, &alternative, error));
  EXPECT_THAT(alternative.reason, HasSubstr("1 more collective"));
}

TEST_F(Explanations, SayWhatTimeIsMadeOf) {
  auto time = Sized<meshift_step_time>();
  EXPECT_FINE(meshift_explanation_step_time(explanation_, 0, 0, &time, error));
  EXPECT_STREQ(time.algorithm, "tree");
  EXPECT_STREQ(time.protocol, "LL128");
  EXPECT_STREQ(time.slowest_links, "nvlink");
  EXPECT_EQ(time.links_per_domain, 0);
  EXPECT_FINE(meshift_explanation_step_time(explanation_, 1, 1, &time, error));
  EXPECT_STREQ(time.algorithm, "ring");
  EXPECT_STREQ(time.slowest_links, "net");
  EXPECT_EQ(time.links_per_domain, 8);
}

TEST(C, ExplainsWithoutProtocolsAndCalls) {
  const Sharding from = ShardingOf("f32[8] on a=2 as R");
  const Sharding to = ShardingOf("f32[8] on a=2 as S(0)");
  Explanation explanation;
  EXPECT_FINE(meshift_explanation_create(from, to, nullptr, 1, explanation.out(), error));
  auto time = Sized<meshift_step_time>();
  time.algorithm = time.protocol = time.slowest_links = "not set";
  EXPECT_FINE(meshift_explanation_step_time(explanation, 0, 0, &time, error));
  EXPECT_GT(time.copies_ns, 0);
  EXPECT_THAT(time.algorithm, IsNull());
  EXPECT_THAT(time.protocol, IsNull());
  EXPECT_THAT(time.slowest_links, IsNull());
}

TEST_F(Explanations, RefuseBadArguments) {
  meshift_explanation* made = reinterpret_cast<meshift_explanation*>(1);
  EXPECT_INVALID(meshift_explanation_create(nullptr, to_, nullptr, 0, &made, error),
                 "from is NULL");
  EXPECT_EQ(made, nullptr);
  EXPECT_INVALID(meshift_explanation_create(from_, nullptr, nullptr, 0, &made, error),
                 "to is NULL");
  EXPECT_INVALID(meshift_explanation_create(from_, to_, nullptr, 0, nullptr, error),
                 "explanation is NULL");
  EXPECT_INVALID(meshift_explanation_create(from_, to_, nullptr, -1, &made, error),
                 "most is -1; it must be 0 or more");
  const Sharding other = ShardingOf("f32[8] on a=16 as R");
  EXPECT_EQ(meshift_explanation_create(from_, other, nullptr, 0, &made, nullptr),
            MESHIFT_INVALID_ARGUMENT);
  Options options;
  EXPECT_FINE(meshift_options_create(options.out(), error));
  EXPECT_FINE(meshift_options_set(options, "existing_groups", "b", error));
  EXPECT_EQ(meshift_explanation_create(from_, to_, options, 0, &made, nullptr),
            MESHIFT_INVALID_ARGUMENT);
  EXPECT_EQ(made, nullptr);

  EXPECT_EQ(meshift_explanation_count(nullptr), 0U);
  auto alternative = Sized<meshift_alternative>();
  EXPECT_INVALID(meshift_explanation_get(nullptr, 0, &alternative, error), "explanation is NULL");
  EXPECT_INVALID(meshift_explanation_get(explanation_, 3, &alternative, error),
                 "index is 3; it must be at least 0 and below 3");
  EXPECT_INVALID(meshift_explanation_get(explanation_, 0, nullptr, error), "alternative is NULL");
  alternative.size = 1;
  EXPECT_EQ(meshift_explanation_get(explanation_, 0, &alternative, nullptr),
            MESHIFT_INVALID_ARGUMENT);
  meshift_plan* plan = reinterpret_cast<meshift_plan*>(1);
  EXPECT_INVALID(meshift_explanation_plan(explanation_, 3, &plan, error),
                 "index is 3; it must be at least 0 and below 3");
  EXPECT_EQ(plan, nullptr);
  EXPECT_INVALID(meshift_explanation_plan(explanation_, 0, nullptr, error), "plan is NULL");
  auto time = Sized<meshift_step_time>();
  EXPECT_INVALID(meshift_explanation_step_time(explanation_, 0, 1, &time, error),
                 "step is 1; it must be at least 0 and below 1");
  EXPECT_INVALID(meshift_explanation_step_time(explanation_, 0, -1, &time, error),
                 "step is -1; it must be at least 0 and below 1");
  EXPECT_INVALID(meshift_explanation_step_time(explanation_, 0, 0, nullptr, error), "time is NULL");
  EXPECT_INVALID(meshift_explanation_step_time(explanation_, 9, 0, &time, error),
                 "index is 9; it must be at least 0 and below 3");
}

}  // namespace
}  // namespace meshift::capi_testing
