#include "cli/engines.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "base/status.h"
#include "cli/problem.h"
#include "meshift/mpi_engine.h"
#include "meshift/nccl_engine.h"
#include "meshift/plan.h"
#include "meshift/planner.h"
#include "planner/plan/plan_text.h"
#include "testing/internal/command.h"

namespace meshift::cli {
namespace {

TEST(Engines, AreThoseOfTheBuild) {
  EXPECT_TRUE(CheckEngine("local").ok());
  EXPECT_EQ(CheckEngine("abacus").code(), absl::StatusCode::kInvalidArgument);
  const std::pair<std::string, std::string> engines[] = {{"mpi", MpiAbsence()},
                                                         {"nccl", NcclAbsence()}};
  for (const auto& [name, absence] : engines) {
    const bool named = (" " + EngineNames() + " ").find(" " + name + " ") != std::string::npos;
    EXPECT_EQ(named, absence.empty()) << name;
    if (absence.empty()) {
      EXPECT_TRUE(CheckEngine(name).ok());
      continue;
    }
    // The reason is that of the command: an option left the engine out, or something is missing.
    EXPECT_TRUE(absence.find("left out by --config=no") != std::string::npos ||
                absence.find("there is no ") != std::string::npos ||
                absence.find("is not installed") != std::string::npos)
        << absence;
    const Outcome outcome = Meshift({"run", "--engine", name, "--conformance"});
    EXPECT_EQ(outcome.code, 2) << outcome;
    EXPECT_EQ(outcome.err, fmt::format("meshift: --engine: {} is not in this build: {} (available: "
                                       "{})\n",
                                       name, absence, EngineNames()));
  }
}

// The option, else the variable, else ten minutes.
TEST(Engines, WaitForTenMinutesUnlessToldOtherwise) {
  unsetenv("MESHIFT_TIMEOUT_S");
  EXPECT_EQ(*JobTimeout(std::nullopt), std::chrono::minutes(10));
  setenv("MESHIFT_TIMEOUT_S", "7", 1);
  EXPECT_EQ(*JobTimeout(std::nullopt), std::chrono::seconds(7));
  EXPECT_EQ(*JobTimeout(3), std::chrono::seconds(3));
  unsetenv("MESHIFT_TIMEOUT_S");
}

// A plan names its engine. This project's engines have the same capabilities, so the plans are
// equal.
TEST(Engines, AreNamedByTheirPlans) {
  ProblemFlags flags;
  flags.mesh = "a=2,b=2";
  flags.tensor = "f32[8,6]";
  flags.from = "P,S(0)";
  flags.to = "R,R";
  std::set<std::string> fingerprints;
  for (const std::string name : {"local", "mpi", "nccl"}) {
    flags.engine = name;
    const absl::StatusOr<Problem> problem = ParseProblem(flags);
    ASSERT_TRUE(problem.ok()) << problem.status();
    const absl::StatusOr<Plan> plan = MakePlan(problem->from, problem->to, problem->options);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->options().engine.name(), name);
    EXPECT_EQ(PlanInputsLine(*plan),
              "# topology flat, engine " + name + ", planner best, reproducibility replicas\n");
    fingerprints.insert(plan->fingerprint().ToString());
  }
  EXPECT_EQ(fingerprints.size(), 1);
}

TEST(Engines, AnUnknownOneIsNamed) {
  const Outcome outcome = Meshift({"run", "--engine", "abacus", "--conformance"});
  EXPECT_EQ(outcome.code, 2) << outcome;
  EXPECT_EQ(outcome.err,
            fmt::format("meshift: --engine: unknown engine 'abacus'; expected one of: {}\n",
                        EngineNames()));
}

// Ranks are threads of this process.
TEST(Engines, TheLocalOnePassesItsConformance) {
  const Outcome outcome = Meshift({"run", "--conformance", "--cases", "80", "--ranks", "3"});
  EXPECT_EQ(outcome.code, 0) << outcome;
  EXPECT_NE(outcome.out.find("# meshift run --conformance: engine local, 3 ranks\n"),
            std::string::npos)
      << outcome;
  EXPECT_NE(outcome.out.find("   240"), std::string::npos) << outcome;
}

TEST(Engines, TheLocalOnePassesItsConformanceFromOneMeshToAnother) {
  const Outcome outcome = Meshift({"run", "--conformance", "--cross", "--cases", "60"});
  EXPECT_EQ(outcome.code, 0) << outcome;
  EXPECT_NE(outcome.out.find("# meshift run --conformance --cross: engine local, 12 ranks\n"),
            std::string::npos)
      << outcome;
  EXPECT_NE(outcome.out.find("   180"), std::string::npos) << outcome;
}

}  // namespace
}  // namespace meshift::cli
