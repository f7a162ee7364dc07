#include "cli/run_command.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "testing/internal/command.h"

namespace meshift::cli {
namespace {

using Args = std::vector<std::string>;

// The line of `text` that starts with `start`.
std::string Line(const std::string& text, const std::string& start) {
  const size_t at = ("\n" + text).find("\n" + start);
  if (at == std::string::npos) return "no line '" + start + "' in:\n" + text;
  return text.substr(at, text.find('\n', at) - at);
}

// The number after `start`, such as "wrong".
int64_t Number(const std::string& text, const std::string& start) {
  const std::string line = Line(text, start + " ");
  EXPECT_EQ(line.find("no line"), std::string::npos) << line;
  return std::atoll(line.c_str() + start.size());
}

Args Problem(const std::string& mesh, const std::string& tensor, const std::string& from,
             const std::string& to, const Args& more = {}) {
  Args args = {"run", "--mesh", mesh, "--tensor", tensor, "--from", from, "--to", to};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

// A gradient sum over 40 ranks in domains of 8, as a machine would add it.
Args Flattened(const Args& more = {}) {
  Args args = Problem("ddp=8,fsdp=5,tp=1", "bf16[256,64]", "P,P,R", "R,R,R",
                      {"--topology", "nvlink=8", "--reduction-order", "topology"});
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

TEST(Run, OneAllReduceOverTheFlattenedGroupLeavesEqualBits) {
  const Outcome outcome = Meshift(Flattened());
  EXPECT_EQ(outcome.code, 0) << outcome;
  EXPECT_EQ(outcome.err, "");
  EXPECT_EQ(Line(outcome.out, "0 ").substr(0, 46),
            "0       all_reduce  ddp,fsdp   1 x 40  R,R,R  ");
  EXPECT_EQ(Line(outcome.out, "# reduction"),
            "# reduction order topology (domains of 8 ranks), repeat 1, seed 1");
  EXPECT_EQ(Line(outcome.out, "wrong"), "wrong 0");
  EXPECT_EQ(Line(outcome.out, "replicas differ"), "replicas differ 0");
  EXPECT_EQ(Line(outcome.out, "groups"), "groups created 1, reused 0 (per rank)");
  EXPECT_EQ(Line(outcome.out, "promise").substr(0, 23), "promise replicas: kept ");
}

// Sums of f32 that are formed in bf16 are checked as such.
TEST(Run, TheDTypeOfReductionsIsTheDefinitions) {
  for (const Args& dtypes : {Args{"--reduce-dtype", "bf16"}, Args{"--to-dtype", "f8e4m3"},
                             Args{"--reduce-dtype", "f64", "--to-dtype", "f16"}}) {
    const Outcome outcome = Meshift(Problem("a=2,b=3", "f32[600]", "P,P", "R,S(0)", dtypes));
    EXPECT_EQ(outcome.code, 0) << outcome;
    EXPECT_EQ(Line(outcome.out, "wrong"), "wrong 0");
    EXPECT_NE(outcome.out.find(" cast "), std::string::npos) << outcome;
  }
}

TEST(Run, AGroupIsMadeOnceAndReused) {
  EXPECT_EQ(Line(Meshift(Flattened({"--repeat", "2"})).out, "groups"),
            "groups created 1, reused 1 (per rank)");
  EXPECT_EQ(
      Line(Meshift(Problem("dp=4,tp=2", "f32[64000,40]", "P,R", "R,R", {"--repeat", "3"})).out,
           "groups"),
      "groups created 2, reused 4 (per rank)");
}

// The same contributions on the same ranks give equal bits for every way to write the mesh, and for
// every order of the engine's own sums.
TEST(Run, HashesTellThatOrderedBitsAreEqualEverywhere) {
  std::vector<std::string> hashes;
  for (const auto& [mesh, from, to] : std::vector<std::array<std::string, 3>>{
           {"a=40", "P", "R"}, {"a=8,b=5", "P,P", "R,R"}, {"a=5,b=2,c=4", "P,P,P", "R,R,R"}}) {
    for (const char* order : {"topology", "adversarial"}) {
      const Outcome outcome =
          Meshift(Problem(mesh, "bf16[37,11]", from, to,
                          {"--promise", "ordered", "--repeat", "3", "--reduction-order", order}));
      EXPECT_EQ(outcome.code, 0) << outcome;
      EXPECT_EQ(Line(outcome.out, "bits over 3"), "bits over 3 repeats: equal");
      EXPECT_EQ(Line(outcome.out, "bits over replicas"), "bits over replicas: equal");
      EXPECT_EQ(Line(outcome.out, "promise").substr(0, 21), "promise ordered: kept");
      hashes.push_back(Line(outcome.out, "hash"));
    }
  }
  EXPECT_EQ(hashes[0].substr(hashes[0].size() - 11), " ranks 0-39") << hashes[0];
  for (const std::string& hash : hashes) EXPECT_EQ(hash, hashes[0]);
}

// The same for sums in blocks. Another block gives other bits; a block of all coordinates gives the
// bits of none.
TEST(Run, HashesTellThatBlocksOfCoordinatesAreAddedFirst) {
  const auto hash_of = [](const char* mesh, const char* from, const char* to,
                          std::vector<std::string> more) {
    more.insert(more.end(), {"--promise", "ordered", "--repeat", "2"});
    const Outcome outcome = Meshift(Problem(mesh, "f32[370,11]", from, to, more));
    EXPECT_EQ(outcome.code, 0) << outcome;
    return Line(outcome.out, "hash");
  };
  const std::string none = hash_of("a=12", "P", "R", {});
  const std::string four = hash_of("a=12", "P", "R", {"--reduce-block", "4"});
  EXPECT_NE(four, none);
  EXPECT_NE(four, hash_of("a=12", "P", "R", {"--reduce-block", "3"}));
  EXPECT_EQ(four, hash_of("a=3,b=4", "P,P", "R,R", {"--reduce-block", "4"}));
  EXPECT_EQ(four,
            hash_of("a=2,b=6", "P,P", "R,R", {"--reduce-block", "4", "--topology", "nvlink=4"}));
  EXPECT_EQ(none, hash_of("a=12", "P", "R", {"--reduce-block", "12"}));
  const Outcome both = Meshift({"run", "--plan", "-", "--reduce-block", "4"}, "{}");
  EXPECT_EQ(both.code, 2);
  EXPECT_EQ(both.err, "meshift: --reduce-block and --plan exclude each other\n");
}

// Without the promise replicas differ, and the hashes show it.
TEST(Run, HashesTellReplicasApart) {
  const Outcome outcome = Meshift(
      Problem("a=2,b=3", "f32[64]", "P,P", "R,R",
              {"--planner", "per-dim", "--reduction-order", "adversarial", "--repeat", "2"}));
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(Line(outcome.out, "bits over 2"), "bits over 2 repeats: equal");
  EXPECT_EQ(Line(outcome.out, "bits over replicas"), "bits over replicas: different");
  EXPECT_EQ(Line(outcome.out, "hash").substr(38), "ranks 0-2");
}

TEST(Run, ThePerDimPlanIsRightAndItsReplicasDiffer) {
  const Outcome outcome = Meshift(Flattened({"--planner", "per-dim"}));
  EXPECT_EQ(outcome.code, 1) << outcome;
  EXPECT_EQ(outcome.err, "");
  EXPECT_NE(Line(outcome.out, "0 ").find("all_reduce"), std::string::npos) << outcome;
  EXPECT_NE(Line(outcome.out, "1 ").find("all_reduce"), std::string::npos) << outcome;
  EXPECT_EQ(Number(outcome.out, "wrong"), 0);
  EXPECT_GT(Number(outcome.out, "replicas differ"), 0);
  EXPECT_EQ(Line(outcome.out, "promise").substr(0, 27), "promise replicas: NOT kept ");
}

TEST(Run, AnAdversarialEngineFindsWhatRankOrderHides) {
  const auto run = [](const std::string& order) {
    return Meshift(Problem("a=2,b=3", "f32[64]", "P,P", "R,R",
                           {"--planner", "per-dim", "--reduction-order", order}));
  };
  // A promise that the plan does not keep fails, even if no bits differ.
  EXPECT_EQ(Number(run("ranks").out, "replicas differ"), 0);
  EXPECT_EQ(run("ranks").code, 1);
  EXPECT_GT(Number(run("adversarial").out, "replicas differ"), 0);
  EXPECT_EQ(Number(run("adversarial").out, "wrong"), 0);
  // Without a promise the run is fine.
  const Outcome unasked = Meshift(Problem(
      "a=2,b=3", "f32[64]", "P,P", "R,R",
      {"--planner", "per-dim", "--reduction-order", "adversarial", "--reproducibility", "none"}));
  EXPECT_EQ(unasked.code, 0) << unasked;
  EXPECT_GT(Number(unasked.out, "replicas differ"), 0);
}

// Ten groups distort their sums differently; that is not an error of the plan.
TEST(Run, WhatAnAdversarialEngineDistortsIsNotWrong) {
  const Outcome outcome = Meshift(Problem("a=2,b=2,c=5", "bf16[24]", "S(0),P,S(0)", "S(0),R,S(0)",
                                          {"--reduction-order", "adversarial"}));
  EXPECT_EQ(outcome.code, 0) << outcome;
  EXPECT_EQ(Number(outcome.out, "wrong"), 0);
  EXPECT_EQ(Number(outcome.out, "replicas differ"), 0);
}

TEST(Run, BytesAreCountedAsTheyArePlanned) {
  for (const Args& args :
       std::vector<Args>{Problem("a=2,b=3", "f32[7,5]", "P,S(0)", "S(1),R"),
                         Problem("a=2,b=3", "bf16[7,5]", "S(0),S(0)", "S(1),S(0)"),
                         Problem("a=4", "f32[0,5]", "S(0)", "R"),
                         Problem("a=2,b=2@3,2,1,0", "i32[5,3]", "S(0),S(0)", "R,R"),
                         Problem("a=2@7,3", "f16[6]", "P(avg)", "S(0)"),
                         Problem("a=2,b=2", "f32[]", "P,R", "R,R")}) {
    const Outcome outcome = Meshift(args);
    EXPECT_EQ(outcome.code, 0) << outcome;
    const std::string total = Line(outcome.out, "total");
    const size_t planned = total.find("planned ") + 8;
    const size_t counted = total.find("counted ") + 8;
    EXPECT_EQ(total.substr(planned, total.find(' ', planned) - planned),
              total.substr(counted, total.find(' ', counted) - counted))
        << outcome;
  }
}

TEST(Run, TakesAPlanThatWasPrinted) {
  Args args = Flattened({"--format", "json"});
  args[0] = "plan";
  args.erase(args.begin() + 11, args.begin() + 13);  // --reduction-order
  const Outcome plan = Meshift(args);
  ASSERT_EQ(plan.code, 0) << plan;
  const Outcome from_stdin =
      Meshift({"run", "--plan", "-", "--reduction-order", "topology"}, plan.out);
  EXPECT_EQ(from_stdin.code, 0) << from_stdin;
  EXPECT_EQ(Line(from_stdin.out, "fingerprint"), Line(Meshift(Flattened()).out, "fingerprint"));
  EXPECT_EQ(Line(from_stdin.out, "# reduction"), Line(Meshift(Flattened()).out, "# reduction"));
  EXPECT_EQ(Meshift({"run", "--plan", WriteFile("plan.json", plan.out)}).code, 0);
  args.resize(args.size() - 2);  // --format: the text form
  EXPECT_EQ(Meshift({"run", "--plan", WriteFile("plan.txt", Meshift(args).out)}).code, 0);
}

// Rank 2 is in both meshes, rank 3 in the first only, ranks 5 and 9 in the second.
TEST(Run, FromOneMeshToAnother) {
  const Outcome outcome = Meshift(
      Problem("a=2,b=2", "f32[10,6]", "P,S0", "S1", {"--to-mesh", "c=3@2,5,9", "--repeat", "2"}));
  EXPECT_EQ(outcome.code, 0) << outcome;
  EXPECT_EQ(Line(outcome.out, "# mesh c"), "# mesh c=3@2,5,9 (3 ranks)");
  // The contributions are small enough to cross separately; the receivers add them.
  EXPECT_EQ(Line(outcome.out, "0 ").substr(0, 54),
            "0       exchange  -           1 x 6  S(1) on mesh 1   ");
  EXPECT_EQ(
      Line(outcome.out, "total").find("planned 120 bytes, counted 120 bytes") == std::string::npos,
      false)
      << outcome;
  EXPECT_EQ(Line(outcome.out, "wrong"), "wrong 0");
  EXPECT_EQ(Line(outcome.out, "bits over replicas"), "bits over replicas: equal");
  EXPECT_EQ(outcome.out.find("bytes not as planned"), std::string::npos) << outcome;
}

TEST(Run, TakesAPrintedPlanFromOneMeshToAnother) {
  Args plan = Problem("a=4", "bf16[7,5]", "S0", "R,S1",
                      {"--to-mesh", "x=2,y=2@1,0,4,6", "--format", "json"});
  plan[0] = "plan";
  const Outcome printed = Meshift(plan);
  ASSERT_EQ(printed.code, 0) << printed;
  const Outcome outcome = Meshift({"run", "--plan", "-"}, printed.out);
  EXPECT_EQ(outcome.code, 0) << outcome;
  EXPECT_EQ(Line(outcome.out, "wrong"), "wrong 0");
}

TEST(Run, AllParametersOfAModel) {
  const std::string model = WriteFile("model.json", R"({"model": "tiny", "dtype": "bf16",
    "parameters": [{"name": "a.w", "shape": [64, 32], "tp_dim": 0},
                   {"name": "a.b", "shape": [64], "tp_dim": null},
                   {"name": "b.w", "shape": [64, 32], "tp_dim": 0}]})");
  const Outcome outcome = Meshift(
      {"run", "--model", model, "--mesh", "fsdp=2,tp=2", "--from", "S(0),TP", "--to", "R,TP"});
  EXPECT_EQ(outcome.code, 0) << outcome;
  EXPECT_EQ(Line(outcome.out, "2 ").substr(0, 20), "2        bf16[64,32]");
  EXPECT_EQ(Line(outcome.out, "wrong"), "wrong 0");
  EXPECT_EQ(Line(outcome.out, "replicas differ"), "replicas differ 0");
  EXPECT_EQ(Line(outcome.out, "total").substr(0, 39), "total: 3 parameters, 2 distinct plans, ");
}

// A run gets its buffers as the plan says, and takes the planned memory. The tensors that check it
// stay untouched.
TEST(Run, TakesTheMemoryOfItsPlan) {
  const std::vector<Args> cases = {
      Problem("a=8", "f32[64,48]", "S(1)", "S(0)"),
      Problem("a=8,b=2", "f32[64,48,40]", "S(2),S(0)", "R,S(0)"),
      Problem("a=8,b=2", "f32[64,48,40]", "S(2),S(0)", "R,S(0)", {"--max-memory", "550KiB"}),
      Problem("a=4,b=2", "f32[512,40]", "P,R", "R,R"),
      Problem("a=2,b=3", "bf16[7,5]", "S(0),R", "R,S(1)", {"--to-dtype", "f64"}),
      Problem("a=2,b=2", "f32[8]", "R,R", "R,R"),
      Problem("a=4", "f32[9,6]", "S(0)", "R,S(1)", {"--to-mesh", "b=2,c=2@2-5"}),
      Problem("a=4", "f32[9,6]", "S(0)", "S(0)", {"--to-mesh", "b=4@3,1,2,0"})};
  std::vector<int64_t> exact(3);
  for (const Args& args : cases) {
    const std::vector<std::string> ways = {"two", "consumed", "one"};
    for (size_t i = 0; i < ways.size(); ++i) {
      Args with = args;
      with.insert(with.end(), {"--buffers", ways[i], "--repeat", "2"});
      const Outcome outcome = Meshift(with);
      EXPECT_EQ(outcome.code, 0) << outcome;
      EXPECT_EQ(Line(outcome.out, "wrong"), "wrong 0");
      const std::string peak = Line(outcome.out, "peak: planned ");
      const int64_t planned = std::atoll(peak.c_str() + 14);
      const int64_t counted = std::atoll(peak.c_str() + peak.find("counted") + 8);
      EXPECT_LE(counted, planned) << outcome;
      EXPECT_GT(counted, 0) << outcome;
      exact[i] += counted == planned ? 1 : 0;
    }
  }
  EXPECT_GE(exact[0], 6);
  EXPECT_GE(exact[1], 4);
  EXPECT_GE(exact[2], 6);
}

TEST(Run, WhatIsHandedOverIsACopyOfWhatIsKept) {
  const std::string folder = WriteFile("kept", "") + "_tensors";
  const Args problem = Problem("a=2,b=2", "f32[6,4]", "S(1),S(0)", "R,S(1)");
  Args save = problem;
  save.insert(save.end(), {"--save", folder});
  ASSERT_EQ(Meshift(save).code, 0);
  for (const char* buffers : {"one", "consumed"}) {
    Args load = problem;
    load.insert(load.end(), {"--buffers", buffers, "--load", folder, "--repeat", "3"});
    const Outcome loaded = Meshift(load);
    EXPECT_EQ(loaded.code, 0) << loaded;
    EXPECT_EQ(Line(loaded.out, "wrong"), "wrong 0");
    EXPECT_EQ(Line(loaded.out, "bits over 3"), "bits over 3 repeats: equal");
  }
}

// Nothing is sent, so no group is used, not even that of all ranks.
TEST(Run, ATensorWithoutElementsUsesNoGroup) {
  for (const char* mesh : {"a=4", "a=4,b=2"}) {
    const std::string more = std::string(mesh) == "a=4" ? "" : ",R";
    const Outcome outcome = Meshift(Problem(mesh, "f32[0,8]", "S(0)" + more, "S(1)" + more));
    EXPECT_EQ(outcome.code, 0) << outcome;
    EXPECT_EQ(Line(outcome.out, "groups"), "groups created 0, reused 0 (per rank)");
  }
}

TEST(Run, WhatDoesNotFitIsRefused) {
  const Outcome big = Meshift(Problem("a=1000000", "f32[1000000,1000000]", "S(0)", "R"));
  EXPECT_EQ(big.code, 1) << big;
  EXPECT_EQ(big.err.find("meshift: 1000000 ranks need "), 0) << big;
  const Outcome far = Meshift(Problem("a=2@0,2000000000", "f32[4]", "S(0)", "R"));
  EXPECT_EQ(far.err,
            "meshift: rank 2000000000 needs a world of 2000000001 ranks; the local engine takes at "
            "most 1048576\n");
  // Refused before the ranks are listed.
  const Outcome many = Meshift(Problem("a=2000000000@1-2000000000", "f32[4]", "R", "R"));
  EXPECT_EQ(many.err, far.err);
}

}  // namespace
}  // namespace meshift::cli
