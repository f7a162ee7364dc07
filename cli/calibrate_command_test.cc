#include "cli/calibrate_command.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "meshift/topology.h"
#include "testing/internal/command.h"

namespace meshift::cli {
namespace {

// Times vary by machine, so only the form of the output is checked: a topology of the given
// structure.
TEST(Calibrate, PrintsATopologyThatPlansTake) {
  const std::vector<std::string> args = {"calibrate", "--ranks",     "8",    "--topology",
                                         "nvlink=4",  "--max-bytes", "1MiB", "--repeat",
                                         "2",         "--format",    "json"};
  const Outcome outcome = Meshift(args);
  ASSERT_EQ(outcome.code, 0) << outcome;
  EXPECT_EQ(outcome.err, "");
  const auto topology = Topology::FromJson(outcome.out);
  ASSERT_TRUE(topology.ok()) << topology.status();
  ASSERT_EQ(topology->NumLevels(), 2);
  EXPECT_EQ(topology->level(0).domain_size, 4);
  EXPECT_EQ(topology->level(0).name, "nvlink");
  const Outcome plan = Meshift({"plan", "--mesh", "a=8", "--tensor", "f32[64]", "--from", "S(0)",
                                "--to", "R", "--topology", WriteFile("t.json", outcome.out)});
  EXPECT_EQ(plan.code, 0) << plan;
}

TEST(Calibrate, ShowsEveryProbe) {
  const Outcome outcome = Meshift({"calibrate", "--ranks", "4", "--max-bytes", "256KiB"});
  ASSERT_EQ(outcome.code, 0) << outcome;
  EXPECT_EQ(outcome.out.substr(0, outcome.out.find('\n')),
            "# meshift calibrate: engine local, 4 ranks, the fastest of 20 runs");
  for (const char* const word : {"copy", "gather", "reduce", "pair", "messages"}) {
    EXPECT_NE(outcome.out.find(std::string("\n") + word + " "), std::string::npos) << outcome;
  }
  EXPECT_NE(outcome.out.find("\n# error of "), std::string::npos) << outcome;
  EXPECT_TRUE(Topology::FromJson(outcome.out.substr(outcome.out.find('{'))).ok()) << outcome;
}

TEST(Calibrate, BadInputIsNamed) {
  const auto error = [](std::vector<std::string> args) {
    args.insert(args.begin(), "calibrate");
    const Outcome outcome = Meshift(args);
    EXPECT_EQ(outcome.code, 2) << outcome;
    EXPECT_EQ(outcome.out, "");
    return outcome.err;
  };
  for (const char* const ranks : {"1", "-8", "1048577", "99999999999", "9223372036854775808"}) {
    EXPECT_EQ(error({"--ranks", ranks}), std::string("meshift: --ranks: '") + ranks +
                                             "' is not a number in 2..1048576; --help lists the "
                                             "options\n");
  }
  EXPECT_EQ(error({"--max-bytes", "1KiB"}),
            "meshift: 1024 bytes are too few to measure bandwidth among 8 ranks; expected at least "
            "524288\n");
  EXPECT_NE(error({"--max-bytes", "many"}).find("--max-bytes: "), std::string::npos);
  EXPECT_EQ(error({"--repeat", "0"}),
            "meshift: --repeat: '0' is not a number in 1..1000000000; --help lists the options\n");
  EXPECT_EQ(error({"--format", "xml"}),
            "meshift: --format: unknown format 'xml'; expected text or json\n");
  EXPECT_NE(error({"--engine", "smoke"}).find("smoke"), std::string::npos);
  EXPECT_NE(error({"--topology", "nvlink=x"}).find("--topology: "), std::string::npos);
}

}  // namespace
}  // namespace meshift::cli
