#include "cli/check_command.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "testing/internal/command.h"

namespace meshift::cli {
namespace {

// The JSON of a plan with three steps: slice, all_reduce, all_gather.
std::string PlanJson(std::vector<std::string> more = {}) {
  std::vector<std::string> args = {"plan",          "--mesh",   "dp=4,tp=2", "--tensor",
                                   "f32[64000,40]", "--from",   "P,R",       "--to",
                                   "R,R",           "--format", "json"};
  args.insert(args.end(), more.begin(), more.end());
  return Meshift(args).out;
}

std::string Replace(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from << " is not in\n" << text;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

// The refusal of `plan` by `meshift check`, with exit code 1: "step 1: rule".
std::string Refusal(const std::string& plan) {
  const Outcome outcome = Meshift({"check", "-"}, plan);
  EXPECT_EQ(outcome.code, 1) << outcome;
  EXPECT_EQ(outcome.err, "");
  EXPECT_EQ(outcome.out.substr(0, 7), "wrong: ");
  const size_t step_end = outcome.out.find("step ") == 7 ? outcome.out.find(": ", 8) + 2 : 7;
  return outcome.out.substr(7, outcome.out.find(':', step_end) - 7);
}

TEST(Check, AcceptsWhatPlanPrints) {
  for (const char* planner : {"best", "per-dim"}) {
    for (const char* promise : {"none", "replicas"}) {
      const std::string plan = PlanJson({"--planner", planner, "--reproducibility", promise});
      const Outcome outcome = Meshift({"check", "-"}, plan);
      EXPECT_EQ(outcome.code, 0) << outcome << plan;
      EXPECT_EQ(outcome.out.substr(0, 3), "ok ");
    }
  }
}

TEST(Check, TakesTheTextFormToo) {
  const std::vector<std::string> args = {
      "plan", "--mesh", "dp=4,tp=2", "--tensor", "f32[64000,40]", "--from", "P,R", "--to", "R,R"};
  const std::string plan = Meshift(args).out;
  const Outcome outcome = Meshift({"check", "-"}, plan);
  EXPECT_EQ(outcome.code, 0) << outcome << plan;
  EXPECT_EQ(outcome.out, "ok " + plan.substr(plan.find("fingerprint ") + 12));
  EXPECT_EQ(Refusal(Replace(plan, "all_gather", "all_to_all")).substr(0, 8), "step 2: ");
  EXPECT_EQ(Meshift({"check", "-"}, plan.substr(0, plan.size() / 2)).code, 3);
}

TEST(Check, NamesTheStepAndTheRule) {
  const std::string plan = PlanJson();
  EXPECT_EQ(Refusal(Replace(plan, "\"all_gather\"", "\"all_to_all\"")).substr(0, 8), "step 2: ");
  EXPECT_EQ(Refusal(Replace(plan, "\"R,S(0)\"", "\"R,S(1)\"")).substr(0, 8), "step 1: ");
  // Edit the per-dim plan so that it claims a promise that it does not keep.
  const std::string per_dim =
      Meshift({"plan", "--mesh", "a=2,b=3", "--tensor", "f32[64]", "--from", "P,P", "--to", "R,R",
               "--planner", "per-dim", "--format", "json"})
          .out;
  const std::string refusal =
      Refusal(Replace(per_dim, "\"kept\": \"none\"", "\"kept\": \"replicas\""));
  EXPECT_EQ(refusal.substr(0, 8), "step 1: ") << refusal;
}

TEST(Check, JudgesTheFingerprintLast) {
  const std::string plan = PlanJson();
  const size_t digit = plan.find("\"fingerprint\": \"") + 16;
  std::string other = plan;
  other[digit] = other[digit] == '0' ? '1' : '0';
  EXPECT_EQ(Refusal(other), "fingerprint");
}

TEST(Check, TakesAPlanOnOneLineAndPlansThatCarryMore) {
  std::string plan = PlanJson();
  for (size_t at = plan.find('\n'); at != std::string::npos; at = plan.find('\n', at)) {
    plan[at] = ' ';
  }
  EXPECT_EQ(Meshift({"check", "-"}, plan).code, 0);
  EXPECT_EQ(Meshift({"check", "-"}, Replace(plan, "{", "{\"id\": 1, \"note\": [{}],")).code, 0);
}

TEST(Check, TheWorstOfSeveralFilesDecides) {
  const std::string good = WriteFile("good.json", PlanJson());
  const std::string wrong =
      WriteFile("wrong.json", Replace(PlanJson(), "\"all_gather\"", "\"all_to_all\""));
  EXPECT_EQ(Meshift({"check", good, wrong}).code, 1);
  EXPECT_EQ(Meshift({"check", wrong, good, good + ".gone"}).code, 3);
}

}  // namespace
}  // namespace meshift::cli
