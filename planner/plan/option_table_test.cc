#include "planner/plan/option_table.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_replace.h"
#include "meshift/plan_io.h"
#include "meshift/planner.h"

namespace meshift {
namespace {

DeviceMesh Mesh(const char* text) { return DeviceMesh::Parse(text).value(); }

// For each option a text that is not its default, for plans on a=2,b=2.
const std::vector<std::pair<std::string, std::string>>& Texts() {
  static const auto* const kTexts = new std::vector<std::pair<std::string, std::string>>{
      {"planner", "per-dim"},
      {"reproducibility", "batch-invariant"},
      {"reduce_dtype", "f64"},
      {"ragged_sizes", "sum"},
      {"ordered_reductions", "off"},
      {"reduce_block", "3"},
      {"max_memory", "1610612736"},
      {"max_value", "0"},
      {"buffers", "consumed"},
      {"new_groups", "off"},
      {"existing_groups", "a;a,b"},
      {"max_communicators", "2"},
      {"expected_uses", "7"},
      {"max_work", "1000"},
      {"native_invariance", "all_reduce"},
  };
  return *kTexts;
}

TEST(OptionTable, ReadsWhatItWrites) {
  const std::vector<DeviceMesh> meshes = {Mesh("a=2,b=2")};
  PlannerOptions options;
  size_t at = 0;
  for (const PlannerOption& option : PlannerOptionTable()) {
    ASSERT_LT(at, Texts().size());
    const auto& [name, text] = Texts()[at++];
    EXPECT_EQ(option.name, name);
    EXPECT_EQ(FindPlannerOption(name), &option);
    const std::optional<std::string> by_default = option.write(options, meshes);
    EXPECT_NE(by_default, text);
    EXPECT_TRUE(option.read(text, meshes, &options).ok()) << name;
    EXPECT_EQ(option.write(options, meshes), text);
    // A refused text changes nothing.
    const PlannerOptions before = options;
    for (const char* const wrong : {"", "no such", "-1", "9223372036854775808", "z"}) {
      EXPECT_FALSE(option.read(wrong, meshes, &options).ok()) << name << " " << wrong;
      EXPECT_EQ(options, before);
    }
  }
  EXPECT_EQ(at, Texts().size());
  EXPECT_EQ(FindPlannerOption("exceeded_max_value"), nullptr);
  EXPECT_EQ(FindPlannerOption(""), nullptr);
}

TEST(OptionTable, GroupsOfTwoMeshes) {
  const std::vector<DeviceMesh> meshes = {Mesh("a=2,b=2"), Mesh("a=2@2,4")};
  const PlannerOption& option = *FindPlannerOption("existing_groups");
  PlannerOptions options;
  EXPECT_TRUE(option.read("b;a,b;1:a;*", meshes, &options).ok());
  EXPECT_EQ(options.groups.existing_groups->size(), 4);
  EXPECT_EQ(option.write(options, meshes), "b;a,b;1:a;*");
  // A group that is named twice counts once.
  EXPECT_TRUE(option.read("b;*;b;*", meshes, &options).ok());
  EXPECT_EQ(option.write(options, meshes), "b;*");
  EXPECT_TRUE(option.read("-", meshes, &options).ok());
  EXPECT_EQ(option.write(options, meshes), "-");
}

// A wrong option in a plan's text is refused with the rule that it breaks.
TEST(OptionTable, APlansTextNamesTheRule) {
  const Sharding from =
      Sharding::Parse(TensorType::Parse("f32[8]").value(), Mesh("a=2,b=2"), "P,S(0)").value();
  const Plan plan = MakePlan(from, from.WithPlacements("R,R").value()).value();
  const std::string text = PlanToText(plan);
  const std::string line = "# topology flat, engine local, planner best, reproducibility replicas";
  ASSERT_NE(text.find(line + "\n"), std::string::npos) << text;
  const auto fault = [&](const std::string& inputs) {
    PlanFault unread;
    const absl::StatusOr<Plan> read =
        PlanFromText(absl::StrReplaceAll(text, {{line, "# " + inputs}}), &unread);
    return read.ok() ? std::string() : unread.rule + ": " + unread.message;
  };
  const auto option = [&](const std::string& name_and_text) {
    return fault("topology flat, engine local, planner best, " + name_and_text);
  };
  EXPECT_EQ(fault("topology no such, engine local").substr(0, 10), "topology: ");
  EXPECT_EQ(option("reproducibility ordered"),
            "promise: option reproducibility is 'ordered'; key 'asked' is 'replicas'");
  EXPECT_EQ(option("reproducibility x").substr(0, 40), "promise: option reproducibility: unknown");
  EXPECT_EQ(option("reduce_dtype f33").substr(0, 46),
            "cast: option reduce_dtype: unknown dtype 'f33'");
  EXPECT_EQ(
      option("max_memory 1 KB"),
      "max_memory: option max_memory: '1 KB' is not a number of bytes below 2^63, such as 4096 "
      "or 1.5 GiB");
  EXPECT_EQ(option("buffers three").substr(0, 30), "total: option buffers: unknown");
  EXPECT_EQ(option("new_groups no"), "new_groups: option new_groups: 'no' is neither on nor off");
  for (const char* const groups : {"a;c", "a;", "1:a", ""}) {
    EXPECT_EQ(option("existing_groups " + std::string(groups)).substr(0, 40),
              "existing_groups: option existing_groups:");
  }
  EXPECT_EQ(option("max_communicators -1"),
            "max_communicators: option max_communicators: '-1' is not a number in "
            "0..9223372036854775807");
  EXPECT_EQ(option("expected_uses 0"),
            "expected_uses: option expected_uses: '0' is not a number in 1..9223372036854775807");
  EXPECT_EQ(option("reduce_block two"),
            "reduce_block: option reduce_block: 'two' is not a number in 1..9223372036854775807");
  EXPECT_EQ(option("exceeded_max_value x"),
            "exceeded_max_value: option exceeded_max_value: 'x' is not a number in "
            "0..9223372036854775807");
  // An unknown option is ignored: a later version may have it.
  EXPECT_EQ(option("something new"), "");
  // Without the option, the promise is the one under "asked".
  EXPECT_EQ(fault("topology flat, engine local"), "");
}

}  // namespace
}  // namespace meshift
