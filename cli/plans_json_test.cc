// Documents of many plans: `plan` writes them, `check` proves them, or names the fault.
#include "cli/plans_json.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "testing/internal/command.h"

namespace meshift::cli {
namespace {

using Json = nlohmann::ordered_json;
using Args = std::vector<std::string>;

// Three rows, whose plans have a workspace.
Args PlanArgs(const Args& more = {}, const std::string& to_mesh = "dp=4,tp=2") {
  const std::string model = WriteFile("plans.json", R"({"model": "m", "dtype": "bf16",
      "parameters": [{"name": "w0", "shape": [512, 64], "tp_dim": 0},
                     {"name": "w1", "shape": [512, 64], "tp_dim": 0},
                     {"name": "b", "shape": [512, 8], "tp_dim": 0},
                     {"name": "e", "shape": [64, 64], "tp_dim": 0}]})");
  Args args = {"plan",      "--model", model,        "--mesh",   "dp=4,tp=2",
               "--to-mesh", to_mesh,   "--topology", "nvlink=4", "--from",
               "S(1),TP",   "--to",    "R,TP",       "--format", "json"};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

std::string Document(const Args& more = {}) {
  const Outcome outcome = Meshift(PlanArgs(more));
  EXPECT_EQ(outcome.code, 0) << outcome;
  return outcome.out;
}

Outcome Check(const std::string& document) { return Meshift({"check", "-"}, document); }

TEST(PlansJson, WhatIsPrintedIsRight) {
  for (const char* to_mesh : {"dp=4,tp=2", "dp=4,tp=2@8-15", "dp=4,tp=2@4-11"}) {
    for (const Args& more : std::vector<Args>{{},
                                              {"--together"},
                                              {"--bucket", "40000"},
                                              {"--together", "--bucket", "40000"},
                                              {"--together", "--expected-uses", "10"},
                                              {"--relabel-ranks", "--expected-uses", "3"}}) {
      const Outcome made = Meshift(PlanArgs(more, to_mesh));
      ASSERT_EQ(made.code, 0) << made;
      EXPECT_EQ(Check(made.out), (Outcome{0, "ok 3 plans of 4 tensors\n", ""})) << made.out;
      const bool together = !more.empty() && more[0] == "--together";
      EXPECT_EQ(Json::parse(made.out)["format"], together ? "meshift.plans" : "meshift.model_plan");
    }
  }
  const std::string path = WriteFile("document.json", Document());
  EXPECT_EQ(Meshift({"check", path, path}).out,
            path + ": ok 3 plans of 4 tensors\n" + path + ": ok 3 plans of 4 tensors\n");
}

TEST(PlansJson, SaysWhatIsWrong) {
  const Json right = Json::parse(Document({"--together", "--bucket", "20000"}));
  const std::string bound = right["together"]["bound_ns"].dump();
  const std::string ns = right["together"]["busiest"]["ns"].dump();
  ASSERT_GE(right["rounds"].size(), 2) << right["rounds"];
  struct Case {
    std::function<void(Json&)> damage;
    std::string verdict;  // its start
  };
  const auto with = [](const Json& value) { return value.dump(); };
  for (const auto& [damage, verdict] : std::vector<Case>{
           {[](Json& d) { d["rows"][1]["plan"]["steps"][0]["bytes_sent"] = 3; },
            "row 1: step 0: bytes: "},
           {[](Json& d) { d["rows"][2]["plan"]["fingerprint"] = std::string(32, '0'); },
            "row 2: fingerprint: fingerprint is 0000"},
           {[](Json& d) { d["rows"][0]["plan"]["steps"][0]["after"] = "S(9)"; },
            "row 0: step 0: after: "},
           {[](Json& d) { d["rows"][0]["count"] = 3; }, "total: parameters is 4; the plans give 5"},
           {[](Json& d) { d["rows"].erase(2); }, "total: parameters is 4; the plans give 3"},
           {[](Json& d) { d["total"]["collectives"] = 0; }, "total: collectives is 0; the plans"},
           {[](Json& d) { d["total"]["bytes_sent"] = 7; },
            "total: bytes_sent is 7; the plans give"},
           {[](Json& d) { d["total"]["est_ns"] = -1; }, "total: est_ns is -1; the plans give"},
           {[](Json& d) { d["total"]["setup_ns"] = 5; }, "total: setup_ns is 5; the plans give 0"},
           {[](Json& d) { d["lower_bound"]["est_ns"] = 1; }, "lower_bound: est_ns is 1; the plans"},
           {[](Json& d) { d["lower_bound"]["bytes_sent"] = 1; }, "lower_bound: bytes_sent is 1;"},
           {[](Json& d) { d["together"]["busiest"]["rank"] = 14; },
            "together: busiest: rank is 14; the plans give " +
                with(right["together"]["busiest"]["rank"])},
           {[](Json& d) { d["together"]["busiest"]["level"] = "x"; },
            "together: busiest: level is \"x\"; the plans give \"net\""},
           {[](Json& d) { d["together"]["busiest"]["direction"] = "up"; },
            "together: busiest: direction is \"up\"; the plans give "},
           {[](Json& d) { d["together"]["busiest"]["ns"] = 1; },
            "together: busiest: ns is 1; the plans give " + ns},
           {[](Json& d) { d["together"]["starts_ns"] = -1; },
            "together: starts_ns is -1; the plans give "},
           {[](Json& d) { d["together"]["copies_ns"] = 1; },
            "together: copies_ns is 1; the plans give "},
           {[](Json& d) { d["together"]["bound_ns"] = 1 << 30; },
            "together: bound_ns is 1073741824; it must be in 0.." + ns},
           {[](Json& d) { d["together"]["bound_ns"] = -1; }, "together: bound_ns is -1; "},
           {[](Json& d) { d["traffic"]["ranks"] = 9; }, "traffic: ranks is 9; the plans give 8"},
           {[](Json& d) { d["traffic"]["busiest"]["bytes_sent"] = 8; },
            "traffic: busiest: bytes_sent is 8; the plans give"},
           {[](Json& d) { d["traffic"]["levels"].erase(1); },
            "traffic: levels has 1 items; the plans give 2"},
           {[](Json& d) { d["traffic"]["levels"][1]["busiest"]["rank"] = 100; },
            "traffic: levels: item 1: busiest: rank is 100; the plans give"},
           {[](Json& d) { d["bucket_bytes"] = 100; }, "round 0: workspace_bytes is "},
           {[](Json& d) { d["rounds"][1]["workspace_bytes"] = 100; },
            "round 1: workspace_bytes is 100; the plans give "},
           {[](Json& d) { d["rounds"][1]["busiest_ns"] = 1; },
            "round 1: busiest_ns is 1; the plans give "},
           {[](Json& d) { d["rounds"][0]["repeat"] = 9; }, "round 0: row 0 has 2 tensors, and "},
           {[](Json& d) { d["rounds"][0]["rows"][0][1] = INT64_MAX; }, "round 0: row 0 has 2"},
           {[](Json& d) { d["rounds"].erase(0); }, "rounds: "},
           {[](Json& d) { d["rounds"] = Json::array(); }, "rounds: 2 tensors of row 0 are in none"},
           {[](Json& d) {
              d["rows"][2]["plan"] =
                  Json::parse(Meshift({"plan", "--mesh", "a=2", "--tensor", "f32[8]", "--from",
                                       "S(0)", "--to", "R", "--format", "json"})
                                  .out);
            },
            "row 2: topology is \"flat\"; that of row 0 is \"nvlink=4\""},
           // Sums saturate.
           {[](Json& d) {
              for (Json& row : d["rows"]) row["count"] = INT64_MAX;
            },
            "total: parameters is 4; the plans give 9223372036854775807"},
       }) {
    Json damaged = right;
    damage(damaged);
    const Outcome outcome = Check(damaged.dump());
    EXPECT_EQ(outcome.code, 1) << verdict << outcome;
    EXPECT_EQ(outcome.err, "");
    EXPECT_EQ(outcome.out.substr(0, 7 + verdict.size()), "wrong: " + verdict) << outcome;
    EXPECT_EQ(outcome.out.find('\n'), outcome.out.size() - 1) << outcome;
  }
}

TEST(PlansJson, RefusesWhatIsNoDocument) {
  const Json right = Json::parse(Document({"--together", "--bucket", "20000"}));
  struct Case {
    std::function<void(Json&)> damage;
    std::string message;
  };
  for (const auto& [damage, message] : std::vector<Case>{
           {[](Json& d) { d["version"] = 2; }, "version 2 is newer than 1, the newest known"},
           {[](Json& d) { d["version"] = 0; }, "version is 0; it must be 1 or more"},
           {[](Json& d) { d.erase("version"); }, "key 'version' is missing"},
           {[](Json& d) { d.erase("rows"); }, "key 'rows' is missing"},
           {[](Json& d) { d["rows"] = Json::array(); },
            "rows is []; it must be a list of at least one row"},
           {[](Json& d) { d["rows"] = 7; }, "rows is 7; it must be a list of at least one row"},
           {[](Json& d) { d["rows"][1] = 7; }, "row 1: 7 is not an object"},
           {[](Json& d) { d["rows"][1].erase("count"); }, "row 1: key 'count' is missing"},
           {[](Json& d) { d["rows"][1]["count"] = 0; }, "row 1: count is 0; it must be 1 or more"},
           {[](Json& d) { d["rows"][1]["count"] = 1.5; },
            "row 1: count is 1.5; it must be an integer below 2^63"},
           {[](Json& d) { d["rows"][1]["count"] = UINT64_MAX; },
            "row 1: count is 18446744073709551615; it must be an integer below 2^63"},
           {[](Json& d) { d["rows"][1].erase("plan"); }, "row 1: key 'plan' is missing"},
           {[](Json& d) { d["rows"][1]["plan"] = "x"; },
            "row 1: plan: the text is not one JSON object"},
           {[](Json& d) { d["rows"][1]["plan"].erase("to"); }, "row 1: plan: key 'to' is missing"},
           {[](Json& d) { d.erase("total"); }, "key 'total' is missing"},
           {[](Json& d) { d["total"] = 7; }, "total: 7 is not an object"},
           {[](Json& d) { d["total"].erase("est_ns"); }, "total: key 'est_ns' is missing"},
           {[](Json& d) { d["total"]["est_ns"] = "7"; },
            "total: est_ns is \"7\"; it must be an integer below 2^63"},
           {[](Json& d) { d.erase("lower_bound"); }, "key 'lower_bound' is missing"},
           {[](Json& d) { d.erase("together"); }, "key 'together' is missing"},
           {[](Json& d) { d["together"] = 7; }, "together: 7 is not an object"},
           {[](Json& d) { d["together"].erase("bound_ns"); },
            "together: key 'bound_ns' is missing"},
           {[](Json& d) { d["together"]["busiest"] = 7; }, "together: busiest: 7 is not an object"},
           {[](Json& d) { d["together"]["busiest"]["level"] = 7; },
            "together: busiest: level is 7; it must be a string"},
           {[](Json& d) { d["traffic"] = 7; }, "traffic: 7 is not an object"},
           {[](Json& d) { d["traffic"]["levels"] = 7; }, "traffic: levels is 7; it must be a list"},
           {[](Json& d) { d.erase("bucket_bytes"); }, "key 'bucket_bytes' is missing"},
           {[](Json& d) { d["bucket_bytes"] = 0; }, "bucket_bytes is 0; it must be 1 or more"},
           {[](Json& d) { d.erase("rounds"); }, "key 'rounds' is missing"},
           {[](Json& d) { d["rounds"] = 7; }, "rounds is 7; it must be a list"},
           {[](Json& d) { d["rounds"][0] = 7; }, "round 0: 7 is not an object"},
           {[](Json& d) { d["rounds"][0]["repeat"] = 0; },
            "round 0: repeat is 0; it must be 1 or more"},
           {[](Json& d) { d["rounds"][0]["rows"] = Json::array(); },
            "round 0: rows is []; it must be a list of at least one [row, count]"},
           {[](Json& d) { d["rounds"][0]["rows"][0] = 7; }, "round 0: 7 is not [row, count]"},
           {[](Json& d) { d["rounds"][0]["rows"][0][0] = 3; }, "round 0: row 3 is not in 0..2"},
           {[](Json& d) { d["rounds"][0]["rows"][0][0] = -1; }, "round 0: row -1 is not in 0..2"},
           {[](Json& d) { d["rounds"][0]["rows"][0][1] = 0; },
            "round 0: a count is 0; it must be 1 or more"},
           {[](Json& d) { d["rounds"][0].erase("busiest_ns"); },
            "round 0: key 'busiest_ns' is missing"},
       }) {
    Json damaged = right;
    damage(damaged);
    EXPECT_EQ(Check(damaged.dump()), (Outcome{3, "", "meshift: stdin: " + message + "\n"}));
  }
  // Another format, or no JSON: the message is that for one plan.
  Json other = right;
  other["format"] = "meshift.plan_set";
  EXPECT_EQ(Check(other.dump()).err,
            "meshift: stdin: format 'meshift.plan_set' is not 'meshift.plan'\n");
  const std::string text = right.dump();
  EXPECT_EQ(Check(text.substr(0, text.size() / 2)).err,
            "meshift: stdin: the text is not JSON, or is cut short\n");
}

// More keys, an order of rounds, and keys that need no busiest link are free.
TEST(PlansJson, AcceptsOtherRounds) {
  Json document = Json::parse(Document({"--together", "--bucket", "20000"}));
  document["note"] = {{"by", "hand"}};
  std::reverse(document["rounds"].begin(), document["rounds"].end());
  document.erase("traffic");
  EXPECT_EQ(Check(document.dump()).out, "ok 3 plans of 4 tensors\n");
}

// The limit on work holds for all plans together.
TEST(PlansJson, LimitsTheWork) {
  const std::string document = Document({"--together"});
  const auto check = [&](const std::string& work) {
    return Meshift({"check", "--max-work", work, "-"}, document);
  };
  EXPECT_EQ(check("1000000").code, 0) << check("1000000");
  for (const char* work : {"1", "20000", "50000"}) {
    EXPECT_EQ(check(work).code, 1);
    EXPECT_NE(check(work).out.find("scale: the proof takes more work than max_work = "),
              std::string::npos)
        << check(work);
  }
}

}  // namespace
}  // namespace meshift::cli
