#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>

#include "meshift/testing.h"
#include "meshift/verifier.h"

namespace meshift {
namespace {

// "all_reduce{ddp,fsdp}"
std::string StepName(const Step& step) {
  const std::string text = step.ToString();
  return text.substr(0, text.find(" -> "));
}

std::string FaultText(const PlanFault& fault) {
  const std::string step = fault.step.has_value() ? fmt::format("step {}: ", *fault.step) : "";
  return fmt::format("{}{}: {}", step, fault.rule, fault.message);
}

}  // namespace

void PrintTo(const Plan& plan, std::ostream* os) {
  *os << fmt::format("{} -> {}, keeps {}", plan.from().ToString(), plan.to().PlacementsText(),
                     Name(plan.kept()));
  if (plan.steps().empty()) *os << "\n    no steps";
  for (const Step& step : plan.steps()) {
    *os << fmt::format("\n    {}, sends {} bytes", step.ToString(), step.bytes_sent);
  }
  *os << fmt::format("\n    in all {} bytes sent, {} at the peak", plan.total().bytes_sent,
                     plan.total().peak_bytes);
}

void PrintTo(const absl::StatusOr<Plan>& plan, std::ostream* os) {
  if (plan.ok()) {
    PrintTo(*plan, os);
  } else {
    *os << plan.status().ToString();
  }
}

namespace testkit {

PlanMatcher::PlanMatcher(std::string text, std::string negation,
                         std::function<Answer(const Plan&)> judge)
    : rep_(std::make_shared<const Rep>(
          Rep{std::move(text), std::move(negation), std::move(judge)})) {}

bool PlanMatcher::MatchAndExplain(const Plan& plan,
                                  ::testing::MatchResultListener* listener) const {
  const Answer answer = rep_->judge(plan);
  *listener << answer.why;
  return answer.matches;
}

bool PlanMatcher::MatchAndExplain(const absl::StatusOr<Plan>& plan,
                                  ::testing::MatchResultListener* listener) const {
  if (plan.ok()) return MatchAndExplain(*plan, listener);
  *listener << "which is not a plan";
  return false;
}

void PlanMatcher::DescribeTo(std::ostream* os) const { *os << "the plan " << rep_->text; }
void PlanMatcher::DescribeNegationTo(std::ostream* os) const {
  *os << "the plan " << rep_->negation;
}

PlanMatcher Takes(std::vector<std::string> steps) {
  const std::string list =
      steps.empty() ? "no steps" : fmt::format("the steps {}", fmt::join(steps, ", "));
  return PlanMatcher(
      "takes " + list, "does not take exactly " + list,
      [steps = std::move(steps)](const Plan& plan) -> PlanMatcher::Answer {
        std::vector<std::string> taken;
        for (const Step& step : plan.steps()) taken.push_back(StepName(step));
        const size_t common = std::min(steps.size(), taken.size());
        for (size_t i = 0; i < common; ++i) {
          if (taken[i] == steps[i]) continue;
          return {false, fmt::format("whose step {} is {}, not {}", i, taken[i], steps[i])};
        }
        if (taken.size() < steps.size()) {
          return {false, fmt::format("which ends after {} steps: {} is missing", taken.size(),
                                     steps[common])};
        }
        if (taken.size() > steps.size()) {
          return {false, fmt::format("which continues after {} steps with {}", steps.size(),
                                     taken[common])};
        }
        return {true, ""};
      });
}

PlanMatcher KeepsReplicasEqual() {
  return PlanMatcher("keeps replicas equal, bit for bit", "does not keep replicas equal",
                     [](const Plan& plan) -> PlanMatcher::Answer {
                       if (plan.kept() == Reproducibility::kNone) {
                         return {false, fmt::format("which promises nothing: {}", plan.why())};
                       }
                       const Verdict verdict = Verify(plan);
                       if (verdict.ok()) return {true, ""};
                       return {false, fmt::format("which promises {}, but the verifier says: {}",
                                                  Name(plan.kept()), FaultText(*verdict.fault))};
                     });
}

PlanMatcher MovesAtMost(int64_t bytes) {
  return PlanMatcher(
      fmt::format("moves at most {} bytes", bytes), fmt::format("moves more than {} bytes", bytes),
      [bytes](const Plan& plan) -> PlanMatcher::Answer {
        const int64_t sent = plan.total().bytes_sent;
        std::vector<std::string> parts;
        for (const Step& step : plan.steps()) {
          if (step.bytes_sent == 0) continue;
          parts.push_back(fmt::format("{} by {}", step.bytes_sent, StepName(step)));
        }
        const char* const sep = parts.empty() ? "" : ": ";
        return {sent <= bytes,
                fmt::format("whose worst rank sends {}{}{}", sent, sep, fmt::join(parts, ", "))};
      });
}

PlanMatcher StaysBelow(int64_t bytes) {
  return PlanMatcher(fmt::format("stays below {} bytes of memory", bytes),
                     fmt::format("needs {} bytes of memory or more", bytes),
                     [bytes](const Plan& plan) -> PlanMatcher::Answer {
                       const PlanTotals& total = plan.total();
                       return {total.peak_bytes < bytes,
                               fmt::format("whose worst rank needs {}, {} of it workspace",
                                           total.peak_bytes, total.workspace_bytes)};
                     });
}

PlanMatcher IsProven() {
  return PlanMatcher(
      "is accepted by the verifier", "is refused by the verifier",
      [](const Plan& plan) -> PlanMatcher::Answer {
        const Verdict verdict = Verify(plan);
        if (verdict.ok()) return {true, ""};
        return {false, fmt::format("whose first broken rule is {}", FaultText(*verdict.fault))};
      });
}

}  // namespace testkit
}  // namespace meshift
