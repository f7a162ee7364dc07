#include "cli/plan_command.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "planner/plan/quantity.h"
#include "testing/internal/command.h"

namespace meshift::cli {
namespace {

std::vector<std::string> FlattenedArgs(const std::vector<std::string>& more = {}) {
  std::vector<std::string> args = {
      "plan", "--mesh", "ddp=8,fsdp=5,tp=1", "--tensor", "bf16[4096,512]", "--from", "P,P,R",
      "--to", "R,R,R",  "--topology",        "nvlink=8"};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

// The line of `text` that starts with `start`.
std::string Line(const std::string& text, const std::string& start) {
  const size_t at = ("\n" + text).find("\n" + start);
  if (at == std::string::npos) return "no line '" + start + "' in:\n" + text;
  return text.substr(at, text.find('\n', at) - at);
}

TEST(Plan, TwoPartialDimsAreOneAllReduceOverTheFlattenedGroup) {
  const Outcome outcome = Meshift(FlattenedArgs());
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.err, "");
  EXPECT_EQ(Line(outcome.out, "# meshift"), "# meshift plan: bf16[4096,512], P,P,R -> R,R,R");
  EXPECT_EQ(Line(outcome.out, "# mesh ddp"), "# mesh ddp=8,fsdp=5,tp=1 (40 ranks)");
  EXPECT_EQ(Line(outcome.out, "0 ").substr(0, 55),
            "0       all_reduce  ddp,fsdp   1 x 40  R,R,R  4 MiB  4 ");
  EXPECT_EQ(Line(outcome.out, "1 ").substr(0, 7), "no line");
  EXPECT_EQ(Line(outcome.out, "promise").substr(0, 23), "promise replicas: kept ");
}

TEST(Plan, ThePerDimPlannerSaysThatItDoesNotKeepThePromise) {
  const Outcome outcome = Meshift(FlattenedArgs({"--planner", "per-dim"}));
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(Line(outcome.out, "promise").substr(0, 37), "promise replicas: NOT kept, only none");
}

std::vector<std::string> GroupArgs(const std::vector<std::string>& more,
                                   const std::string& verb = "plan") {
  std::vector<std::string> args = {verb,       "--mesh",         "ddp=4,fsdp=2,tp=2",
                                   "--tensor", "f32[1024,2048]", "--from",
                                   "P,P,S(0)", "--to",           "R,R,S(0)"};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

// The ops and groups of the plan that `outcome` prints, by step: "all_reduce ddp,fsdp".
std::vector<std::string> Steps(const Outcome& outcome) {
  std::vector<std::string> steps;
  for (int i = 0;; ++i) {
    std::istringstream line(Line(outcome.out, std::to_string(i) + " "));
    std::string number;
    std::string op;
    std::string dims;
    line >> number >> op >> dims;
    if (number != std::to_string(i)) return steps;
    steps.push_back(op + " " + dims);
  }
}

TEST(Plan, WithoutNewGroupsThePromiseIsKeptByThoseThatExist) {
  using Texts = std::vector<std::string>;
  EXPECT_EQ(Steps(Meshift(GroupArgs({}))), Texts{"all_reduce ddp,fsdp"});
  const Outcome without = Meshift(GroupArgs({"--no-new-groups"}));
  ASSERT_EQ(without.code, 0) << without;
  EXPECT_NE(Line(without.out, "# topology")
                .find(", new_groups off, existing_groups ddp;fsdp;tp;ddp,fsdp,tp"),
            std::string::npos)
      << without;
  EXPECT_EQ(Steps(without), (Texts{"reduce_scatter ddp", "all_reduce fsdp", "all_gather ddp"}));
  EXPECT_EQ(Line(without.out, "promise").substr(0, 23), "promise replicas: kept ");
  EXPECT_EQ(Meshift({"check", "-"}, without.out).code, 0);
  EXPECT_EQ(Meshift(GroupArgs({"--no-new-groups"}, "run")).code, 0);
  const Outcome explained = Meshift(GroupArgs({"--no-new-groups"}, "explain"));
  EXPECT_NE(explained.out.find("] needs groups: "), std::string::npos) << explained;
  EXPECT_NE(explained.out.find("; but needs the new group ddp,fsdp\n"), std::string::npos)
      << explained;
  // The existing group is used, in any order of its dims.
  EXPECT_EQ(Steps(Meshift(GroupArgs({"--no-new-groups", "--existing-groups", "fsdp,ddp;tp"}))),
            Texts{"all_reduce ddp,fsdp"});
}

// A masked value is larger than the value rule allows: the plan is made anyway, and says so.
TEST(Plan, WithoutAnyGroupThatDoesItALargerValueIsHeld) {
  const Outcome larger = Meshift(GroupArgs({"--no-new-groups", "--existing-groups", "-"}));
  ASSERT_EQ(larger.code, 0) << larger;
  EXPECT_NE(Line(larger.out, "# topology").find(", exceeded_max_value 8388608"), std::string::npos)
      << larger;
  EXPECT_EQ(Meshift({"check", "-"}, larger.out).code, 0);
  const Outcome refusal =
      Meshift(GroupArgs({"--no-new-groups", "--existing-groups", "-", "--max-value", "5MiB"}));
  EXPECT_EQ(refusal.code, 1) << refusal;
  EXPECT_EQ(
      refusal.err,
      "meshift: no plan keeps to --max-value = 5242880: in the cheapest one the intermediate value "
      "P,P,P in f32 takes 8 MiB, more than --max-value (5 MiB)\n");
}

TEST(Plan, WithoutAnyGroupThatDoesItSaysWhichIsMissing) {
  const Outcome refusal =
      Meshift(GroupArgs({"--no-new-groups", "--existing-groups", "-", "--promise", "ordered"}));
  EXPECT_EQ(refusal.code, 1) << refusal;
  EXPECT_EQ(refusal.err,
            "meshift: no plan over the existing groups (ddp,fsdp,tp) keeps 'ordered'; the "
            "cheapest one needs the new group ddp,fsdp, and --no-new-groups is given\n");
}

TEST(Plan, FewerCommunicatorsOrARefusalThatNamesTheLeast) {
  const Outcome one = Meshift(GroupArgs({"--max-communicators", "1"}));
  ASSERT_EQ(one.code, 0) << one;
  EXPECT_NE(Line(one.out, "# topology").find(", max_communicators 1"), std::string::npos) << one;
  EXPECT_EQ(Meshift({"check", "-"}, one.out).code, 0);
  const Outcome none = Meshift(GroupArgs({"--max-communicators", "0"}));
  EXPECT_EQ(none.code, 1);
  EXPECT_EQ(none.err, "meshift: --max-communicators is 0; the smallest sufficient value is 1\n");
}

// The set-up of 0.1 s is shared by the uses; with few uses the existing group is cheaper.
TEST(Plan, NewGroupsCostTheirSetUp) {
  const Outcome many = Meshift(GroupArgs({"--expected-uses", "1000000000"}));
  EXPECT_EQ(Steps(many)[0], "all_reduce ddp,fsdp");
  EXPECT_NE(Line(many.out, "total").find(", setup 1 ns, peak "), std::string::npos) << many;
  EXPECT_EQ(Meshift({"check", "-"}, many.out).code, 0);
  const Outcome few = Meshift(GroupArgs({"--expected-uses", "1"}));
  EXPECT_NE(Steps(few)[0], "all_reduce ddp,fsdp") << few;
  EXPECT_EQ(Line(few.out, "total").find("setup"), std::string::npos) << few;
  EXPECT_EQ(Meshift({"check", "-"}, few.out).code, 0);
}

// A refusal names the least memory that suffices, one byte less is refused, and the plan repeats
// the limit.
TEST(Plan, ALimitOnMemoryIsKeptOrRefused) {
  const auto plan = [](const std::string& limit, const std::string& verb = "plan") {
    return Meshift({verb, "--mesh", "a=8,b=2", "--tensor", "f32[64,48,40]", "--from", "S(2),S(0)",
                    "--to", "R,S(0)", "--max-memory", limit});
  };
  const Outcome refusal = plan("0");
  EXPECT_EQ(refusal.code, 1) << refusal;
  EXPECT_EQ(refusal.out, "");
  const std::string start =
      "meshift: --max-memory is 0 bytes per rank; the smallest sufficient value is ";
  ASSERT_EQ(refusal.err.substr(0, start.size()), start);
  const int64_t least = std::stoll(refusal.err.substr(start.size()));
  EXPECT_EQ(plan(std::to_string(least - 1)).code, 1);
  const Outcome leanest = plan(std::to_string(least));
  ASSERT_EQ(leanest.code, 0) << leanest;
  EXPECT_NE(Line(leanest.out, "# topology").find(", max_memory " + std::to_string(least)),
            std::string::npos)
      << leanest;
  EXPECT_NE(Line(leanest.out, "total").find(", peak " + ExactBytesText(least) + ", "),
            std::string::npos)
      << leanest;
  EXPECT_EQ(Meshift({"check", "-"}, leanest.out).code, 0);
  EXPECT_EQ(plan(std::to_string(least), "run").code, 0);

  // A limit that does not bind changes only the plan's inputs.
  const Outcome roomy = plan("1GiB");
  ASSERT_EQ(roomy.code, 0) << roomy;
  EXPECT_NE(roomy.out.find(", max_memory 1073741824\n"), std::string::npos) << roomy;
  EXPECT_NE(Line(roomy.out, "fingerprint"), Line(leanest.out, "fingerprint"));
  const std::string larger =
      std::string(leanest.out).replace(leanest.out.find(", max_memory "), 13, ", max_memory 1, x ");
  EXPECT_EQ(Meshift({"check", "-"}, larger).code, 1) << larger;
}

// Memory and its limit are those of a run with these buffers.
TEST(Plan, BuffersMayBeOneOrConsumed) {
  const auto plan = [](const std::string& buffers, const std::string& limit) {
    return Meshift({"plan", "--mesh", "a=8", "--tensor", "f32[64,48]", "--from", "S(1)", "--to",
                    "S(0)", "--buffers", buffers, "--max-memory", limit});
  };
  // Source and target are 1536 bytes each.
  for (const auto& [buffers, tensors, how] :
       std::vector<std::tuple<std::string, int64_t, std::string>>{
           {"two", 3072, "source 1536, target 1536, workspace "},
           {"consumed", 3072, "consumed source 1536, target 1536, workspace "},
           {"one", 1536, "source 1536 and target 1536 in one buffer, workspace "}}) {
    SCOPED_TRACE(buffers);
    const Outcome refusal = plan(buffers, "0");
    EXPECT_EQ(refusal.code, 1);
    const std::string start =
        "meshift: --max-memory is 0 bytes per rank; the smallest sufficient value is ";
    ASSERT_EQ(refusal.err.substr(0, start.size()), start) << refusal;
    const int64_t least = std::stoll(refusal.err.substr(start.size()));
    EXPECT_NE(refusal.err.find(how + std::to_string(least - tensors) + "\n"), std::string::npos)
        << refusal;
    EXPECT_EQ(plan(buffers, std::to_string(least - 1)).code, 1);
    const Outcome leanest = plan(buffers, std::to_string(least));
    ASSERT_EQ(leanest.code, 0) << leanest;
    EXPECT_EQ(leanest.out.find(", buffers " + buffers) == std::string::npos, buffers == "two");
    EXPECT_EQ(Meshift({"check", "-"}, leanest.out).code, 0);
  }
}

TEST(Plan, TheTargetsDTypeMayBeAnother) {
  const std::vector<std::string> args = {
      "plan", "--mesh",    "fsdp=8,tp=2", "--tensor", "bf16[4096,512]", "--from", "P,S(1)",
      "--to", "S(0),S(1)", "--to-dtype",  "f32",      "--reduce-dtype"};
  const auto with = [&args](const char* dtype) {
    std::vector<std::string> all = args;
    all.push_back(dtype);
    return Meshift(all);
  };
  const Outcome outcome = with("f32");
  EXPECT_EQ(outcome.code, 0) << outcome;
  EXPECT_EQ(Line(outcome.out, "# meshift"),
            "# meshift plan: bf16[4096,512], P,S(1) -> S(0),S(1) as f32");
  EXPECT_EQ(Line(outcome.out, "0 ").substr(0, 12), "0       cast");
  EXPECT_EQ(Line(outcome.out, "1 ").substr(0, 22), "1       reduce_scatter");
  EXPECT_EQ(with("f33").code, 2);
  EXPECT_EQ(with("f33").err.substr(0, 24), "meshift: --reduce-dtype:");
}

TEST(Plan, TheSameInputPrintsTheSameBytes) {
  for (const char* format : {"text", "json"}) {
    EXPECT_EQ(Meshift(FlattenedArgs({"--format", format})),
              Meshift(FlattenedArgs({"--format", format})));
  }
}

TEST(Plan, WhatItPrintsChecks) {
  const Outcome plan = Meshift(FlattenedArgs({"--format", "json", "--messages"}));
  ASSERT_EQ(plan.code, 0) << plan;
  const size_t at = plan.out.find("\"fingerprint\": \"") + 16;
  EXPECT_EQ(Meshift({"check", "-"}, plan.out),
            (Outcome{0, "ok " + plan.out.substr(at, 32) + "\n", ""}));
  const std::string file = WriteFile("plan.json", plan.out);
  EXPECT_EQ(Meshift({"check", file, file}).out, file + ": ok " + plan.out.substr(at, 32) + "\n" +
                                                    file + ": ok " + plan.out.substr(at, 32) +
                                                    "\n");
}

TEST(Plan, RelativePathsAreThoseOfTheCaller) {
  const std::string file =
      WriteFile("relative.json", Meshift(FlattenedArgs({"--format", "json"})).out);
  const size_t slash = file.rfind('/');
  setenv("BUILD_WORKING_DIRECTORY", file.substr(0, slash).c_str(), /*overwrite=*/1);
  EXPECT_EQ(Meshift({"check", file.substr(slash + 1)}).code, 0);
  EXPECT_EQ(Meshift({"check", file}).code, 0);
  unsetenv("BUILD_WORKING_DIRECTORY");
  EXPECT_EQ(Meshift({"check", file.substr(slash + 1)}).code, 3);
}

TEST(Plan, MessagesFollowThePlan) {
  const std::string out = Meshift({"plan", "--mesh", "a=2,b=2", "--tensor", "f32[4,6]", "--from",
                                   "S(0),P", "--to", "S(1),P", "--max-value", "0", "--messages"})
                              .out;
  EXPECT_EQ(out.substr(out.find("# step  source")), &R"(
# step  source  target  box         contribution  bytes
0            2       0  [2:4, 0:3]  b=0              24
0            3       1  [2:4, 0:3]  b=1              24
0            0       2  [0:2, 3:6]  b=0              24
0            1       3  [0:2, 3:6]  b=1              24
)"[1]);
}

TEST(Plan, MessagesAreAKeyOfTheJsonForm) {
  const auto messages = [](const std::string& from) {
    const Outcome outcome =
        Meshift({"plan", "--mesh", "a=2,b=2", "--tensor", "f32[4,6]", "--from", from, "--to",
                 "S(1),P", "--max-value", "0", "--messages", "--format", "json"});
    EXPECT_EQ(Meshift({"check", "-"}, outcome.out).code, 0) << outcome;
    return outcome.out.substr(outcome.out.find("  \"messages\""));
  };
  EXPECT_EQ(messages("S(0),P"), &R"(
  "messages": [
    {"step":0,"source":2,"target":0,"box":{"offset":[2,0],"size":[2,3]},"contribution":{"b":0}},
    {"step":0,"source":3,"target":1,"box":{"offset":[2,0],"size":[2,3]},"contribution":{"b":1}},
    {"step":0,"source":0,"target":2,"box":{"offset":[0,3],"size":[2,3]},"contribution":{"b":0}},
    {"step":0,"source":1,"target":3,"box":{"offset":[0,3],"size":[2,3]},"contribution":{"b":1}}
  ]
}
)"[1]);
  EXPECT_EQ(messages("S(1),P"), "  \"messages\": [\n  ]\n}\n");
}

TEST(Plan, ATopologyFileIsTheSameAsItsText) {
  const std::string file = WriteFile("nvlink.json", R"({"levels": [
      {"name": "nvlink", "domain_size": 4, "bandwidth_bytes_per_us": 360000, "latency_ns": 1000},
      {"name": "net", "domain_size": 0, "bandwidth_bytes_per_us": 40000, "latency_ns": 5000}]})");
  const std::vector<std::string> args = {"plan",   "--mesh", "a=8",  "--tensor", "f32[64]",
                                         "--from", "S(0)",   "--to", "R",        "--topology"};
  std::vector<std::string> with_file = args;
  with_file.push_back(file);
  const Outcome outcome = Meshift(with_file);
  EXPECT_EQ(outcome.code, 0) << outcome;
  EXPECT_NE(outcome.out.find("nvlink"), std::string::npos) << outcome;
}

TEST(Plan, OntoAnotherMesh) {
  std::vector<std::string> args = {"plan",    "--mesh",   "a=4",      "--to-mesh",
                                   "b=2@3-4", "--tensor", "f32[8,2]", "--from",
                                   "S(0)",    "--to",     "S(0)",     "--messages"};
  const Outcome outcome = Meshift(args);
  EXPECT_EQ(outcome.code, 0) << outcome;
  EXPECT_EQ(Line(outcome.out, "# meshift"),
            "# meshift plan: f32[8,2], S(0) on mesh 0 -> S(0) on mesh 1");
  EXPECT_EQ(Line(outcome.out, "# mesh b"), "# mesh b=2@3-4 (2 ranks)");
  EXPECT_EQ(Line(outcome.out, "0 ").substr(0, 36), "0       exchange  -           1 x 5 ");
  EXPECT_NE(outcome.out.find("mesh=1"), std::string::npos) << outcome;
  // Rank 3 has the last quarter and needs the first half; rank 4 needs the other.
  args.insert(args.end(), {"--format", "json"});
  const std::string json = Meshift(args).out;
  for (const char* message : {R"("source":0,"target":3,"box":{"offset":[0,0],"size":[2,2]})",
                              R"("source":1,"target":3,"box":{"offset":[2,0],"size":[2,2]})",
                              R"("source":2,"target":4,"box":{"offset":[4,0],"size":[2,2]})",
                              R"("source":3,"target":4,"box":{"offset":[6,0],"size":[2,2]})"}) {
    EXPECT_NE(json.find(message), std::string::npos) << message << "\n" << json;
  }
  args[4] = "b=2@3-3";
  EXPECT_NE(Meshift(args).err.find("--to-mesh: mesh 'b=2@3-3'"), std::string::npos);
}
// Rank 4 has the second half of the columns, rank 3 the first; the mesh has them the other way
// round.
TEST(Plan, RelabelledRanksTakeWhatTheyHave) {
  std::vector<std::string> args = {"plan",    "--mesh",   "a=2@3,4",  "--to-mesh",
                                   "b=2@4,3", "--tensor", "f32[8,2]", "--from",
                                   "S(0)",    "--to",     "S(0)"};
  EXPECT_NE(Meshift(args).out.find("sent 32 B"), std::string::npos);
  args.push_back("--relabel-ranks");
  const Outcome outcome = Meshift(args);
  EXPECT_EQ(outcome.code, 0) << outcome;
  EXPECT_EQ(Line(outcome.out, "# mesh b"), "# mesh b=2@3-4 (2 ranks)");
  EXPECT_NE(outcome.out.find("total: 0 collectives, sent 0 B"), std::string::npos) << outcome;
  EXPECT_EQ(Meshift({"plan", "--batch", "-", "--relabel-ranks"}).err,
            "meshift: --relabel-ranks and --batch exclude each other\n");
  args[4] = "b=4097";
  EXPECT_EQ(
      Meshift(args).err,
      "meshift: --relabel-ranks: the target mesh has 4097 ranks; at most 4096 can be reordered\n");
}

const char* const kExperts = R"({"model": "tiny", "dtype": "bf16", "parameters": [
    {"name": "a.w", "shape": [64, 32], "tp_dim": 0},
    {"name": "e.0.w", "shape": [16, 32], "tp_dim": 0, "expert": 0},
    {"name": "e.1.w", "shape": [16, 32], "tp_dim": 0, "expert": 1},
    {"name": "e.2.w", "shape": [16, 32], "tp_dim": 0, "expert": 2},
    {"name": "e.3.w", "shape": [16, 32], "tp_dim": 0, "expert": 3}]})";

TEST(PlanModel, ByRulesOntoAnotherMesh) {
  const std::string model = WriteFile("experts.json", kExperts);
  const std::string rules = WriteFile("rules.json", R"_({"rules": [
      {"match": "e.*", "from": "EP,S(0)", "to": "EP"},
      {"match": "a.*", "from": "S(0),S(0)", "to": "TP"}]})_");
  std::vector<std::string> args = {"plan",      "--model",    model,         "--rules",
                                   rules,       "--mesh",     "ep=2,fsdp=4", "--to-mesh",
                                   "tp=4@8-11", "--topology", "nvlink=4"};
  const Outcome outcome = Meshift(args);
  EXPECT_EQ(outcome.code, 0) << outcome;
  EXPECT_EQ(Line(outcome.out, "# meshift"), "# meshift plan: 5 parameters of tiny, by " + rules);
  EXPECT_EQ(Line(outcome.out, "# mesh tp"), "# mesh tp=4@8-11 (4 ranks)");
  EXPECT_EQ(Line(outcome.out, "4 ").substr(0, 65),
            "4        bf16[16,32]  EP,S(0)    EP    exchange{onto mesh 1}  256");
  EXPECT_EQ(Line(outcome.out, "total").substr(0, 37), "total: 5 parameters, 5 distinct plans");
  // 4 KiB of a.w by 8 ranks, 1 KiB of each expert by the four that have it, each of which has two
  // experts: 512 bytes + 2 * 256; all of it leaves its domain.
  EXPECT_EQ(Line(outcome.out, "per rank"),
            "per rank: sent 682 B on average, 1 KiB by the busiest, rank 0");
  EXPECT_EQ(Line(outcome.out, "over nvlink"), "over nvlink: 0 B in all");
  EXPECT_EQ(Line(outcome.out, "over net"), "over net: 8 KiB in all, 1 KiB by the busiest, rank 0");
  args.insert(args.end(), {"--format", "json"});
  EXPECT_NE(Meshift(args).out.find("\"traffic\": {\n    \"ranks\": 12,"), std::string::npos);
}

// Together, all four replicas send; alone, each tensor has the same plan.
TEST(PlanModel, TogetherTheBusiestLinkIsLeast) {
  std::string parameters;
  for (int e = 0; e < 32; ++e) {
    const std::string number = std::to_string(e);
    parameters += std::string(e == 0 ? "" : ",") + R"({"name": "e.)" + number +
                  R"(.w", "shape": [512, 512], "tp_dim": 0, "expert": )" + number + "}";
  }
  const std::string model = WriteFile(
      "many.json", R"({"model": "tiny", "dtype": "bf16", "parameters": [)" + parameters + "]}");
  std::vector<std::string> args = {"plan",      "--model", model, "--mesh", "dp=4", "--to-mesh",
                                   "s=32@8-39", "--from",  "R",   "--to",   "EP"};
  EXPECT_EQ(Line(Meshift(args).out, "together").substr(0, 7), "no line");
  args.insert(args.end(), {"--format", "json"});
  EXPECT_EQ(Meshift(args).out.find("{\n  \"format\": \"meshift.model_plan\",\n"), 0);
  args.resize(args.size() - 2);
  args.push_back("--together");
  const Outcome outcome = Meshift(args);
  EXPECT_EQ(outcome.code, 0) << outcome;
  // 8 of 32 tensors by each rank, 512 KiB each, at 360,000 bytes per us.
  EXPECT_EQ(
      Line(outcome.out, "together"),
      "together: busiest link flat of rank 0 (sent) 11.7 us, bound 11.7 us; starts 0 ns, copies "
      "2.8 us");
  EXPECT_NE(outcome.out.find("slice{dp}; exchange{onto mesh 1}"), std::string::npos) << outcome;
  args.insert(args.end(), {"--format", "json"});
  const Outcome json = Meshift(args);
  EXPECT_EQ(json.out.find("{\n  \"format\": \"meshift.plans\",\n  \"version\": 1,\n"), 0) << json;
  EXPECT_NE(json.out.find("\"together\": {\n"), std::string::npos) << json;
  EXPECT_NE(json.out.find("\"direction\": \"sent\""), std::string::npos) << json;

  args = {"plan",   "--model", model,  "--mesh", "dp=4",       "--to-mesh",  "s=32@8-39",
          "--from", "R",       "--to", "EP",     "--together", "--max-work", "1000"};
  EXPECT_NE(Meshift(args).code, 0);
  EXPECT_EQ(Meshift(FlattenedArgs({"--together"})).err,
            "meshift: --together needs --model or --batch\n");
}

// Rounds keep the order of the rows; a tensor that is too large for a bucket gets another plan.
TEST(PlanModel, ABucketCutsAnUpdateIntoRounds) {
  const std::string model = WriteFile("rounds.json", R"({"model": "m", "dtype": "f32",
      "parameters": [{"name": "v", "shape": [64, 48, 40], "tp_dim": 0},
                     {"name": "w", "shape": [64, 48, 40], "tp_dim": 0},
                     {"name": "x", "shape": [64, 48, 8], "tp_dim": 0}]})");
  const auto plan = [&](const std::string& bucket, const std::vector<std::string>& more = {}) {
    std::vector<std::string> args = {"plan",    "--model",  model,       "--mesh",
                                     "a=8,b=2", "--from",   "S(2),S(0)", "--to",
                                     "R,S(0)",  "--bucket", bucket};
    args.insert(args.end(), more.begin(), more.end());
    return Meshift(args);
  };
  EXPECT_EQ(Line(plan("1 MiB").out, "rounds"), "rounds: 1, largest workspace 528 KiB");
  EXPECT_EQ(Line(plan("300 KiB").out, "rounds"), "rounds: 2, largest workspace 288 KiB");
  const Outcome together = plan("300 KiB", {"--together"});
  EXPECT_EQ(Line(together.out, "rounds").substr(0, 45),
            "rounds: 2, largest workspace 288 KiB, busiest")
      << together;
  EXPECT_EQ(Line(together.out, "2 ").substr(0, 54),
            "2        f32[64,48,40]  S(2),S(0)  R,S(0)  all_gather{");
  // 240 KiB are too many.
  const Outcome tight = plan("100 KiB", {"--together"});
  EXPECT_EQ(Line(tight.out, "rounds").substr(0, 45),
            "rounds: 3, largest workspace 56.2 KiB, busies")
      << tight;
  EXPECT_EQ(Line(tight.out, "2 ").substr(0, 54),
            "2        f32[64,48,40]  S(2),S(0)  R,S(0)  all_to_all{")
      << tight;
  EXPECT_EQ(tight.out.find("max_memory"), std::string::npos) << tight;
  const Outcome refused = plan("57599");
  EXPECT_EQ(refused, (Outcome{1, "",
                              "meshift: parameter 'v': the least workspace of a plan has "
                              "57600 bytes; a bucket has 57599\n"}));
}

// One order for all parameters: the weights' saving counts for more than the bias.
TEST(PlanModel, RelabelledRanksServeAllParameters) {
  const std::string model = WriteFile("two.json", R"({"model": "tiny", "dtype": "bf16",
    "parameters": [{"name": "a.b", "shape": [64], "tp_dim": 0},
                   {"name": "a.w", "shape": [64, 32], "tp_dim": 1}]})");
  const std::string rules = WriteFile("two_rules.json", R"_({"rules": [
      {"match": "a.b", "from": "S(0)", "to": "TP"},
      {"match": "a.w", "from": "S(1)", "to": "TP"}]})_");
  std::vector<std::string> args = {"plan",     "--model",    model,     "--rules",
                                   rules,      "--mesh",     "a=2@0,1", "--to-mesh",
                                   "tp=2@1,0", "--topology", "nvlink=4"};
  EXPECT_EQ(Line(Meshift(args).out, "over nvlink"),
            "over nvlink: 4.1 KiB in all, 2.1 KiB by the busiest, rank 0");
  args.push_back("--relabel-ranks");
  const Outcome outcome = Meshift(args);
  EXPECT_EQ(outcome.code, 0) << outcome;
  EXPECT_EQ(Line(outcome.out, "over nvlink"), "over nvlink: 0 B in all");
}

TEST(PlanModel, AParameterWithoutARuleIsAnError) {
  const std::string model = WriteFile("experts.json", kExperts);
  const std::string rules =
      WriteFile("some.json", R"_({"rules": [{"match": "e.*", "from": "EP,S(0)", "to": "R,TP"}]})_");
  std::vector<std::string> args = {"plan", "--model", model,      "--rules",
                                   rules,  "--mesh",  "ep=2,tp=4"};
  const Outcome outcome = Meshift(args);
  EXPECT_NE(outcome.code, 0);
  EXPECT_EQ(outcome.err, "meshift: parameter 'a.w': none of the 1 rules matches 'a.w'\n");
  args.insert(args.end(), {"--from", "R,R"});
  EXPECT_EQ(Meshift(args).err, "meshift: --from and --rules exclude each other\n");
  // Errors of a rule name its keys, not options.
  for (const char* key : {"from", "to"}) {
    const std::string other = key == std::string("to") ? "from" : "to";
    const std::string wrong = WriteFile(std::string(key) + ".json",
                                        std::string(R"_({"rules": [{"match": "*", ")_") + key +
                                            R"_(": "S(7),R", ")_" + other + R"_(": "R,R"}]})_");
    const Outcome named =
        Meshift({"plan", "--model", model, "--rules", wrong, "--mesh", "a=2,b=2"});
    EXPECT_NE(named.err.find("': " + std::string(key) + ": Shard(7) is out of range"),
              std::string::npos)
        << named;
  }
  const Outcome alone = Meshift({"plan", "--rules", rules, "--mesh", "a=2", "--tensor", "f32[2]",
                                 "--from", "R", "--to", "R"});
  EXPECT_EQ(alone.err, "meshift: --rules needs --model\n");
}

TEST(PlanModel, ParametersOfOneShapeAndPlanShareARow) {
  const std::string model = WriteFile("model.json", R"({"model": "tiny", "dtype": "bf16",
    "parameters": [{"name": "a.w", "shape": [64, 32], "tp_dim": 0},
                   {"name": "a.b", "shape": [64], "tp_dim": null},
                   {"name": "b.w", "shape": [64, 32], "tp_dim": 0},
                   {"name": "b.v", "shape": [64, 32], "tp_dim": 1}]})");
  const std::vector<std::string> args = {"plan",   "--model", model,  "--mesh", "fsdp=2,tp=2",
                                         "--from", "S(0),TP", "--to", "R,TP"};
  const Outcome all = Meshift(args);
  EXPECT_EQ(all.code, 0) << all;
  EXPECT_EQ(Line(all.out, "2 ").substr(0, 63),
            "2        bf16[64,32]  S(0)[1],S(0)[0]  R,S(0)  all_gather{fsdp}");
  EXPECT_EQ(Line(all.out, "total").substr(0, 37), "total: 4 parameters, 3 distinct plans");
  std::vector<std::string> filtered = args;
  filtered.insert(filtered.end(), {"--filter", "b.*", "--format", "json"});
  const Outcome json = Meshift(filtered);
  EXPECT_EQ(json.code, 0) << json;
  EXPECT_NE(json.out.find("\"parameters\": 2,"), std::string::npos) << json;
  EXPECT_NE(json.out.find("\"first\": \"b.w\""), std::string::npos) << json;
}

// The budget holds for each parameter's plan; the total includes the set-up of the groups.
TEST(PlanModel, KeepsToABudgetOfGroups) {
  const std::string model = WriteFile("summed.json", R"({"model": "tiny", "dtype": "bf16",
    "parameters": [{"name": "a.w", "shape": [2048, 2048], "tp_dim": 0},
                   {"name": "a.b", "shape": [64], "tp_dim": null}]})");
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> args = {"plan",   "--model", model,  "--mesh", "ddp=4,fsdp=2,tp=2",
                                     "--from", "P,P,TP",  "--to", "R,R,TP"};
    args.insert(args.end(), more.begin(), more.end());
    return Meshift(args);
  };
  const std::string together =
      "1        bf16[2048,2048]  P,P,S(0)  R,R,S(0)  all_reduce{ddp,fsdp} ";
  const std::string apart =
      "1        bf16[2048,2048]  P,P,S(0)  R,R,S(0)  reduce_scatter{ddp}; all_reduce{fsdp}; "
      "all_gather{ddp} ";
  const auto has = [](const Outcome& outcome, const std::string& text) {
    return outcome.out.find(text) != std::string::npos;
  };
  EXPECT_TRUE(has(with({}), together));

  const Outcome existing = with({"--no-new-groups"});
  EXPECT_EQ(existing.code, 0) << existing;
  EXPECT_TRUE(has(existing, apart)) << existing;
  EXPECT_TRUE(has(existing, ", new_groups off, existing_groups ddp;fsdp;tp;ddp,fsdp,tp\n"))
      << existing;
  EXPECT_TRUE(has(with({"--no-new-groups", "--existing-groups", "ddp,fsdp"}), together));
  EXPECT_EQ(with({"--no-new-groups", "--existing-groups", "-", "--promise", "ordered"}).err,
            "meshift: parameter 'a.w': no plan over the existing groups (ddp,fsdp,tp) keeps "
            "'ordered'; the cheapest one needs the new group ddp,fsdp, and allow_new_groups is "
            "off\n");

  EXPECT_TRUE(has(with({"--max-communicators", "1"}), together));
  const Outcome none = with({"--max-communicators", "0"});
  EXPECT_EQ(none.code, 1) << none;
  EXPECT_EQ(
      none.err,
      "meshift: parameter 'a.w': max_communicators is 0; the smallest sufficient value is 1\n");

  const Outcome once = with({"--expected-uses", "1"});
  EXPECT_TRUE(has(once, apart)) << once;
  EXPECT_EQ(Line(once.out, "total").find("setup"), std::string::npos) << once;
  const Outcome often = with({"--expected-uses", "1000000000"});
  EXPECT_TRUE(has(often, together)) << often;
  EXPECT_NE(Line(often.out, "total").find(", setup 1 ns"), std::string::npos) << often;
}

}  // namespace
}  // namespace meshift::cli
