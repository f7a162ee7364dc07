// Damaged files end with one line and the right exit code; those that happen to stay valid are
// accepted. The damage is the same in every run of this test.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "meshift/plan.h"
#include "planner/plan/plan_text.h"
#include "testing/internal/command.h"
#include "testing/random.h"

namespace meshift::cli {
namespace {

using testkit::Random;

constexpr int kFiles = 200;

int64_t Lines(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Flips one bit of a byte.
void Flip(size_t at, Random& random, std::string* bytes) {
  (*bytes)[at] = static_cast<char>((*bytes)[at] ^ (1 << random.Below(8)));
}

// Replaces the n-th `what` by `with`; returns false if there are fewer.
bool ReplaceNth(const std::string& what, const std::string& with, int64_t n, std::string* bytes) {
  size_t at = bytes->find(what);
  while (at != std::string::npos && n-- > 0) at = bytes->find(what, at + 1);
  if (at == std::string::npos) return false;
  bytes->replace(at, what.size(), with);
  return true;
}

TEST(DamagedFiles, Sources) {
  std::vector<std::string> args = {"run",    "--mesh", "a=2,b=2", "--tensor", "f32[5,3]",
                                   "--from", "P,S(0)", "--to",    "R,R"};
  const std::string folder = WriteFile("damaged", "") + "_sources";
  args.insert(args.end(), {"--save", folder});
  ASSERT_EQ(Meshift(args).code, 0);
  args[args.size() - 2] = "--load";
  const std::string edits[][2] = {
      {"'descr'", "'desc'"},
      {"<f4", "<f8"},
      {"<f4", "<i4"},
      {"<f4", "|O8"},
      {"False", "0"},
      {"(", "["},
      {"3)", "3,3)"},
      {"3)", "-3)"},
      {"3)", "9223372036854775807)"},
      {"3)", "3"},
      {", }", ""},
      {"{", "("},
      {"}", "},"},
      {"\n", "x"},
      {"NUMPY", "numpy"},
      {"'shape': (", "'shape': None, ("},
      {"3)", "3.0)"},
      {"'<f4'", "b'<f4'"},
      {"False", "not True"},
      {"3)", "3,,)"},
  };
  Random random(11);
  int64_t valid = 0;
  for (int i = 0; i < kFiles; ++i) {
    const std::string path = folder + "/source.rank0000" + std::to_string(random.Below(4)) + ".npy";
    const std::string good = ReadAll(path);
    ASSERT_GT(good.size(), 128U);
    std::string bad = good;
    bool stays_valid = false;
    switch (i % 5) {
      case 0:  // cut off
        bad.resize(random.Below(std::ssize(good)));
        break;
      case 1: {  // a bit of the header
        Flip(random.Below(128), random, &bad);
        // In one place a flip keeps the header valid: the numbers are then big-endian.
        stays_valid = bad.find("'>f4'") != std::string::npos;
        break;
      }
      case 2: {  // a bit of the data: another valid number
        Flip(128 + random.Below(std::ssize(good) - 128), random, &bad);
        stays_valid = true;
        break;
      }
      case 3: {  // an edited header
        const auto& [from, to] = edits[i / 5 % std::size(edits)];
        ASSERT_TRUE(ReplaceNth(from, to, 0, &bad)) << from;
        break;
      }
      default: {  // bytes put in or taken out
        const int64_t at = random.Below(std::ssize(good));
        if (i % 2 == 0) {
          bad.insert(at, 1 + random.Below(9), static_cast<char>(random.Below(256)));
        } else {
          bad.erase(at, 1 + random.Below(9));
        }
      }
    }
    std::ofstream(path, std::ios::binary) << bad;
    const Outcome outcome = Meshift(args);
    if (stays_valid) {
      EXPECT_EQ(outcome.code, 0) << i << " " << outcome;
      EXPECT_EQ(outcome.err, "");
      ++valid;
    } else {
      EXPECT_EQ(outcome.code, 3) << i << " " << outcome;
      EXPECT_EQ(outcome.out, "");
      EXPECT_EQ(outcome.err.find("meshift: " + path + ": "), 0U) << i << " " << outcome;
      EXPECT_EQ(Lines(outcome.err), 1) << i << " " << outcome;
    }
    std::ofstream(path, std::ios::binary) << good;
  }
  EXPECT_GE(valid, kFiles / 5);
  EXPECT_LT(valid, kFiles / 2);
}

// The i-th damage to plans.
std::string Damaged(const std::string& good, int i, Random& random) {
  const std::string edits[][2] = {
      {"\"steps\"", "\"stops\""},
      {": 2", ": -2"},
      {": 2", ": 2.5"},
      {": 2", ": \"2\""},
      {"{", "["},
      {"]", "}"},
      {",", ""},
      {"\"", "'"},
      {": ", ": null, "},
      {"a", "b"},
      {"R", "P"},
      {"f32", "f31"},
      {"S(0)", "S(1)"},
      {"5", "5000000000000000000000"},
      {"3", "1e300"},
      {"\"a\"", "\"\\u0000\""},
      {"all_", "any_"},
      {"false", "true"},
      {"null", "0"},
      {"meshift.plan", "x"},
  };
  std::string bad = good;
  switch (i % 4) {
    case 0:
      bad.resize(random.Below(std::ssize(bad) - 2));  // without the last brace, or digit
      break;
    case 1:
      Flip(random.Below(std::ssize(bad)), random, &bad);
      break;
    case 2: {
      const auto& [from, to] = edits[i / 4 % std::size(edits)];
      ReplaceNth(from, to, random.Below(4), &bad);
      break;
    }
    default: {
      const int64_t at = random.Below(std::ssize(bad));
      if (i % 8 == 3) {
        bad.insert(at, 1 + random.Below(3), static_cast<char>(random.Below(256)));
      } else {
        bad.erase(at, 1 + random.Below(3));
      }
    }
  }
  return bad;
}

class DamagedPlans : public ::testing::TestWithParam<const char*> {};

TEST_P(DamagedPlans, AreRefusedOrJudged) {
  const std::string format = GetParam();
  const Outcome made = Meshift({"plan", "--mesh", "a=2,b=2", "--tensor", "f32[5,3]", "--from",
                                "P,S(0)", "--to", "R,R", "--format", format});
  ASSERT_EQ(made.code, 0) << made;
  const Plan plan = ReadPlan(made.out).value();
  Random random(13);
  int64_t valid = 0;
  int64_t wrong = 0;
  for (int i = 0; i < kFiles; ++i) {
    const std::string bad = Damaged(made.out, i, random);
    const std::string path = WriteFile("damaged." + format, bad);
    for (const auto& args :
         std::vector<std::vector<std::string>>{{"check", path}, {"run", "--plan", path}}) {
      const Outcome outcome = Meshift(args);
      if (outcome.code == 3) {
        EXPECT_EQ(outcome.out, "");
        EXPECT_EQ(outcome.err.find("meshift: " + path + ": "), 0U) << i << " " << outcome;
        EXPECT_EQ(Lines(outcome.err), 1) << i << " " << outcome;
        continue;
      }
      // Half a JSON value is invalid; a text plan with half a fingerprint is a wrong plan.
      if (i % 4 == 0) {
        EXPECT_EQ(outcome.code, 1) << "was cut off at " << bad.size() << " " << outcome;
        EXPECT_EQ(format, "text");
      }
      EXPECT_EQ(outcome.err, "") << i << " " << outcome;
      if (outcome.code == 1) {
        // It can be read, and gets a verdict.
        EXPECT_NE(outcome.out.find("wrong: "), std::string::npos) << i << " " << outcome;
        EXPECT_EQ(Lines(outcome.out), 1) << i << " " << outcome;
        ++wrong;
        continue;
      }
      EXPECT_EQ(outcome.code, 0) << i << " " << outcome;
      // Then the fingerprint's inputs have not changed: the moves are the same.
      const absl::StatusOr<Plan> read = ReadPlan(bad);
      ASSERT_TRUE(read.ok()) << i << " " << read.status();
      EXPECT_EQ(read->fingerprint(), plan.fingerprint());
      ASSERT_EQ(read->steps().size(), plan.steps().size());
      for (size_t s = 0; s < plan.steps().size(); ++s) {
        EXPECT_EQ(read->steps()[s].op, plan.steps()[s].op);
        EXPECT_EQ(read->steps()[s].after, plan.steps()[s].after);
      }
      ++valid;
    }
  }
  EXPECT_GT(wrong, 0);
  EXPECT_GT(valid, 0);
  EXPECT_LT(valid, kFiles);  // two commands each
}

TEST(DamagedFiles, DocumentsOfManyPlans) {
  const std::string model = WriteFile("m.json", R"({"model": "m", "dtype": "f32", "parameters":
      [{"name": "w", "shape": [12, 8], "tp_dim": 0}, {"name": "b", "shape": [12, 2], "tp_dim": 0},
       {"name": "c", "shape": [12, 2], "tp_dim": 0}]})");
  const Outcome made = Meshift({"plan", "--model", model, "--mesh", "a=2,b=2", "--to-mesh",
                                "a=2,b=2@2-5", "--from", "S(1),S(0)", "--to", "R,S(0)",
                                "--together", "--bucket", "1000", "--format", "json"});
  ASSERT_EQ(made.code, 0) << made;
  Random random(17);
  std::array<int, 4> codes = {};
  for (int i = 0; i < 2 * kFiles; ++i) {
    const std::string path = WriteFile("damaged.plans.json", Damaged(made.out, i, random));
    const Outcome outcome = Meshift({"check", path});
    ASSERT_GE(outcome.code, 0);
    ASSERT_LE(outcome.code, 3);
    ++codes[outcome.code];
    EXPECT_EQ(Lines(outcome.out), outcome.code == 3 ? 0 : 1) << i << " " << outcome;
    EXPECT_EQ(Lines(outcome.err), outcome.code == 3 ? 1 : 0) << i << " " << outcome;
    const std::string start = outcome.code == 3   ? "meshift: " + path + ": "
                              : outcome.code == 1 ? "wrong: "
                                                  : "ok 2 plans of 3 tensors";
    EXPECT_EQ((outcome.code == 3 ? outcome.err : outcome.out).find(start), 0) << i << outcome;
  }
  EXPECT_GT(codes[0], 0);
  EXPECT_GT(codes[1], 0);
  EXPECT_GT(codes[3], kFiles / 2);
}

INSTANTIATE_TEST_SUITE_P(Forms, DamagedPlans, ::testing::Values("json", "text"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace meshift::cli
