// Ragged shards on the command line: the output of plan is checked and run, as text and as JSON.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "testing/internal/command.h"

namespace meshift::cli {
namespace {

using Args = std::vector<std::string>;

Args Problem(const std::string& verb, const std::string& from, const std::string& to,
             const Args& more = {}) {
  Args args = {verb, "--mesh", "ep=4,tp=2", "--tensor", "bf16[20,64]", "--from", from, "--to", to};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

TEST(Ragged, PlansAreCheckedAndRun) {
  const struct {
    const char* from;
    const char* to;
  } cases[] = {
      {"S(0){11,0,7,2},R", "R,R"},
      {"S(0){11,0,7,2},S(0)", "R,S(0)"},
      {"P,S(1)", "S(0){0,20,0,0},S(1)"},
      {"S(0){11,0,7,2},R", "S(0){1,9,9,1},R"},
      {"R,S(1){10,54}", "S(0){1,9,9,1},S(1){62,2}"},
      {"S(0){5,5,5,5},R", "S(0),R"},
  };
  for (const auto& [from, to] : cases) {
    for (const char* sizes : {"cost", "max", "sum"}) {
      for (const char* format : {"text", "json"}) {
        const Outcome plan =
            Meshift(Problem("plan", from, to, {"--ragged-sizes", sizes, "--format", format}));
        ASSERT_EQ(plan.code, 0) << plan;
        EXPECT_EQ(Meshift({"check", "-"}, plan.out).code, 0) << plan.out;
        const Outcome run = Meshift({"run", "--plan", "-"}, plan.out);
        EXPECT_EQ(run.code, 0) << run;
        EXPECT_NE(run.out.find("\nwrong 0\n"), std::string::npos) << run;
      }
    }
  }
}

TEST(Ragged, TheChoiceOfSizesIsSeen) {
  const auto plan = [](const char* sizes) {
    return Meshift(Problem("plan", "S(0){11,0,7,2},R", "R,R", {"--ragged-sizes", sizes})).out;
  };
  EXPECT_NE(plan("max").find("bf16 padded dims=0"), std::string::npos) << plan("max");
  EXPECT_NE(plan("sum").find("bf16 exact dims=0"), std::string::npos) << plan("sum");
  EXPECT_NE(plan("sum").find("ragged_sizes sum"), std::string::npos) << plan("sum");
}

TEST(Ragged, BadSizesAreNamed) {
  const struct {
    const char* from;
    const char* message;
  } cases[] = {
      {"S(0){11,0,7},R", "--from: S(0){11,0,7} has 3 sizes for the 4 coordinates of mesh dim ep"},
      {"S(0){11,0,7,3},R",
       "--from: S(0){11,0,7,3}: the sizes add up to 21, but tensor dim 0 has size 20"},
      {"S(0){5,5,5,5},S(0){12,8}", "--from: tensor dim 0 has two ragged cuts"},
      {"S(0)[1],S(0){12,8}[0]", ""},
      {"S(0)[0],S(0){12,8}[1]", "--from: S(0){12,8} is not the outermost cut of tensor dim 0"},
  };
  for (const auto& [from, message] : cases) {
    const Outcome outcome = Meshift(Problem("plan", from, "R,R"));
    EXPECT_EQ(outcome.code, *message == '\0' ? 0 : 2) << outcome;
    EXPECT_NE(outcome.err.find(message), std::string::npos) << outcome;
  }
  const Outcome outcome = Meshift(Problem("plan", "R,R", "R,R", {"--ragged-sizes", "least"}));
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("--ragged-sizes: unknown ragged_sizes 'least'; expected cost, max, "
                             "sum"),
            std::string::npos)
      << outcome;
}

}  // namespace
}  // namespace meshift::cli
