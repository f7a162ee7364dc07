#include "meshift/plan.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "meshift/plan_io.h"
#include "meshift/planner.h"
#include "meshift/verifier.h"

namespace meshift {
namespace {

Plan PlanOf(const std::string& mesh, const std::string& tensor, const std::string& from,
            const std::string& to, const PlannerOptions& options = {}) {
  const Sharding source = *Sharding::Parse(tensor, *DeviceMesh::Parse(mesh), from);
  return *MakePlan(source, *source.WithPlacements(to), options);
}

TEST(FingerprintTest, IsXxh3) {
  // Values from xxhsum -H2.
  EXPECT_EQ(Fingerprint::Of("").ToString(), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(Fingerprint::Of("a").ToString(), "a96faf705af16834e6c632b61e964e1f");
  EXPECT_EQ(Fingerprint::Of("abc").ToString(), "06b05ab6733a618578af5f94892f3950");
}

TEST(FingerprintTest, ParsesWhatItPrints) {
  const Fingerprint f = Fingerprint::Of("x");
  EXPECT_EQ(*Fingerprint::Parse(f.ToString()), f);
  EXPECT_FALSE(Fingerprint::Parse("12").ok());
  EXPECT_FALSE(Fingerprint::Parse(std::string(32, 'G')).ok());
  EXPECT_FALSE(Fingerprint::Parse(std::string(32, 'A')).ok());
}

TEST(PlanTest, CanonicalTextIsThatOfTheFormatsPage) {
  EXPECT_EQ(PlanOf("ddp=8,fsdp=5,tp=1", "bf16[4096,512]", "P,P,R", "R,R,R",
                   {.topology = *Topology::Parse("nvlink=8")})
                .CanonicalText(),
            "meshift.plan 1\n"
            "mesh ddp=8,fsdp=5,tp=1\n"
            "tensor bf16[4096,512]\n"
            "from 0 P,P,R\n"
            "to 0 R,R,R\n"
            "step all_reduce mesh 0 dims ddp,fsdp group_size 40 groups 1 tensor_dims - reduce sum "
            "any divisor - sizes even wire bf16 accumulate f32 after R,R,R\n");
}

TEST(PlanTest, FingerprintLeavesCostsOut) {
  const Plan plan = PlanOf("a=2,b=2", "f32[8]", "P,S(0)", "R,R");
  PlanFields fields = plan.fields();
  fields.steps[0].est_ns += 1;
  fields.total.est_ns += 1;
  fields.inputs.options.topology = *Topology::Parse("h100");
  EXPECT_EQ(Plan::Seal(fields).fingerprint(), plan.fingerprint());
  fields.steps[0].group_size = 3;
  EXPECT_NE(Plan::Seal(fields).fingerprint(), plan.fingerprint());
}

// Steps made by hand with mesh dims that do not exist: they get a label and a fingerprint, and the
// verifier names the error.
TEST(PlanTest, StepsThatNameNothingAreSealedAndRefused) {
  PlanFields fields = PlanOf("a=2,b=2", "f32[8]", "P,S(0)", "R,S(0)").fields();
  fields.steps[0].mesh_dims = {-1, 0, 7};
  Plan plan = Plan::Seal(fields);
  EXPECT_EQ(plan.steps()[0].Label(), "all_reduce{#-1,a,#7}");
  EXPECT_NE(plan.CanonicalText().find("step all_reduce mesh 0 dims #-1,a,#7 "), std::string::npos)
      << plan.CanonicalText();
  EXPECT_EQ(Verify(plan).fault->message,
            "mesh dim -1 is out of range, not in mesh order, or named twice");
  fields.steps[0].op = StepOp{99};
  fields.steps[0].reduce_order = ReduceOrder{9};
  plan = Plan::Seal(fields);
  EXPECT_EQ(plan.steps()[0].ToString(), "?{#-1,a,#7} -> R,S(0)");
  EXPECT_EQ(Verify(plan).fault->message, "op 99 is not known");
}

TEST(PlanIoTest, ReadsWhatItWrites) {
  for (const Plan& plan :
       {PlanOf("a=2,b=3@5,4,3,2,1,0", "i8[7,5]", "S(1)[1],S(1)[0]", "S(0),S(1)"),
        PlanOf("a=2", "f64[]", "P(max)", "R"), PlanOf("a=2", "bool[3]", "R", "R"),
        PlanOf("a=3,b=2", "bf16[0,4]", "P(avg),P", "S(0),S(1)"),
        PlanOf("a=2,b=2", "i32[4]", "S(0),R", "P(product),R")}) {
    for (const int indent : {-1, 2}) {
      const auto again = PlanFromJson(PlanToJson(plan, indent));
      ASSERT_TRUE(again.ok()) << again.status();
      EXPECT_EQ(*again, plan);
    }
  }
}

// f32 shards, cast to bf16, then gathered.
Plan CastPlan() {
  PlanFields fields = PlanOf("a=2", "bf16[8]", "S(0)", "R").fields();
  const Sharding source = *fields.from.WithDType(DType::kF32);
  const Step cast{
      .op = StepOp::kCast, .after = fields.from, .bytes_in = 16, .bytes_out = 8, .est_ns = 10};
  fields.from = source;
  fields.steps.insert(fields.steps.begin(), cast);
  return Plan::Seal(std::move(fields));
}

TEST(PlanIoTest, ACastChangesTheDType) {
  const Plan plan = CastPlan();
  EXPECT_EQ(plan.steps()[0].ToString(), "cast{bf16} -> S(0)");
  EXPECT_EQ(plan.CanonicalText(),
            "meshift.plan 1\n"
            "mesh a=2\n"
            "tensor f32[8]\n"
            "from 0 S(0)\n"
            "to 0 R dtype bf16\n"
            "step cast mesh 0 dims - group_size - groups - tensor_dims - reduce - - divisor - "
            "sizes - wire - accumulate - after S(0) dtype bf16\n"
            "step all_gather mesh 0 dims a group_size 2 groups 1 tensor_dims 0 reduce - - "
            "divisor - sizes even wire bf16 accumulate - after R\n");
  const auto json = nlohmann::ordered_json::parse(PlanToJson(plan));
  EXPECT_EQ(json["to"]["dtype"], "bf16");
  EXPECT_EQ(json["steps"][0]["dtype"], "bf16");
  EXPECT_FALSE(json["steps"][1].contains("dtype"));
  const auto again = PlanFromJson(json.dump());
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, plan);
}

TEST(PlanIoTest, ReadsTheExamples) {
  std::ifstream file("tests/data/plan_examples.json");
  const auto examples = nlohmann::ordered_json::parse(file);
  for (const auto& json : examples["plans"]) {
    const auto plan = PlanFromJson(json.dump());
    ASSERT_TRUE(plan.ok()) << plan.status();
    nlohmann::ordered_json expected = json;  // with a key that readers ignore
    expected.erase("id");
    expected["inputs"]["options"] = {{"planner", "best"}, {"reproducibility", "replicas"}};
    EXPECT_EQ(nlohmann::ordered_json::parse(PlanToJson(*plan)), expected);
  }
}

TEST(PlanIoTest, BadTextNamesStepAndRule) {
  const std::string good = PlanToJson(
      PlanOf("a=2,b=2", "f32[8]", "P,R", "R,R", {.reproducibility = Reproducibility::kNone}), -1);
  const auto with = [&good](const std::string& from, const std::string& to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  struct Case {
    std::string text;
    std::string rule;
    std::optional<int> step;
    std::string message;
  };
  for (const Case& c : std::vector<Case>{
           {"", "format", {}, "cut short"},
           {good.substr(0, good.size() / 2), "format", {}, "cut short"},
           {"[]", "format", {}, "one JSON object"},
           {good + '\0', "format", {}, "cut short"},
           {with("\"steps\":", "\"steps\":[],\"steps\":"),
            "format",
            {},
            "key 'steps' appears twice"},
           {"{\"format\":" + std::string(1'000'000, '['), "format", {}, "deeper than 100"},
           {with("\"version\":1", "\"version\":3"), "format", {}, "version 3 is newer"},
           {with("\"version\":1", "\"version\":0"), "format", {}, "version 0"},
           {with("meshift.plan", "x.plan"), "format", {}, "'x.plan'"},
           {with("\"tensor\"", "\"tensour\""), "format", {}, "'tensor' is missing"},
           {with("\"bytes_in\":32", "\"bytes_in\":\"32\""), "format", 0, "'bytes_in'"},
           {with("\"bytes_in\":32", "\"bytes_in\":1e3"), "format", 0, "'bytes_in'"},
           {with("[\"a\",2]", "[\"a\",0]"), "mesh", {}, "0"},
           {with("\"op\":\"all_reduce\"", "\"op\":\"all_cast\""), "op", 0, "'all_cast'"},
           {with("\"mesh_dims\":[\"a\"]", "\"mesh_dims\":[\"z\"]"), "mesh_dims", 0, "'z'"},
           {with("\"after\":\"R,R\"", "\"after\":\"R,S(3)\""), "after", 0, "Shard(3)"},
           {with("\"sizes\":\"even\"", "\"sizes\":\"odd\""), "sizes", 0, "'odd'"},
           {with("\"reduce_op\":\"sum\"", "\"reduce_op\":\"add\""), "reduce_op", 0, "add"},
           {with("\"wire_dtype\":\"f32\"", "\"wire_dtype\":\"f33\""), "dtype", 0, "f33"},
       }) {
    PlanFault fault;
    const auto plan = PlanFromJson(c.text, &fault);
    ASSERT_FALSE(plan.ok()) << c.text;
    EXPECT_EQ(fault.rule, c.rule) << plan.status();
    EXPECT_EQ(fault.step, c.step) << plan.status();
    EXPECT_NE(fault.message.find(c.message), std::string::npos) << plan.status();
  }
}

}  // namespace
}  // namespace meshift
