#include "cli/check_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "base/work_budget.h"
#include "cli/batch.h"
#include "cli/io.h"
#include "cli/plans_json.h"
#include "cli/text.h"
#include "meshift/plan.h"
#include "meshift/plan_io.h"
#include "meshift/status.h"
#include "meshift/verifier.h"
#include "planner/plan/plan_text.h"

namespace meshift::cli {
namespace {

// Checks one file and prints the verdict. Returns its exit code; an error: the file has no plan.
absl::StatusOr<int> CheckFile(const std::string& path, bool name_file, int64_t max_work, Io& io) {
  MESHIFT_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, io));
  PlanFault unread;
  const absl::StatusOr<Plan> plan = ReadPlan(text, &unread);
  const std::string prefix = name_file ? Printable(path) + ": " : "";
  if (!plan.ok() && unread.rule == "format") {
    // It may be a document of many plans.
    const absl::StatusOr<std::optional<PlansVerdict>> verdict = CheckPlans(text, max_work);
    if (!verdict.ok()) return BadFile(path, verdict.status());
    if (!*verdict) return BadFile(path, plan.status());
    io.out << prefix << (*verdict)->text << "\n";
    return (*verdict)->ok ? kExitOk : kExitCheckFailed;
  }
  const auto fault = plan.ok() ? Verify(*plan, {.max_work = max_work}).fault : unread;
  if (fault) {
    io.out << prefix << "wrong: " << FaultText(*fault) << "\n";
    return kExitCheckFailed;
  }
  io.out << prefix << "ok " << plan->fingerprint().ToString() << "\n";
  return kExitOk;
}

}  // namespace

std::string FaultText(const PlanFault& fault) {
  const std::string step = fault.step ? fmt::format("step {}: ", *fault.step) : "";
  return fmt::format("{}{}: {}", step, Shown(fault.rule), Shown(fault.message));
}

int CheckCommand(const CheckFlags& flags, Io& io) {
  const int64_t max_work = flags.max_work.value_or(kDefaultMaxWork);
  if (flags.batch) {
    if (!flags.files.empty()) {
      return Fail(io, InvalidArgument("{} and --batch exclude each other", flags.files[0]));
    }
    bool ok = false;
    const absl::Status status = CheckBatch(*flags.batch, max_work, io, &ok);
    if (!status.ok()) return Fail(io, status);
    return ok ? kExitOk : kExitCheckFailed;
  }
  if (flags.files.empty()) return Fail(io, InvalidArgument("the plan file is missing"));
  int worst = kExitOk;
  for (const std::string& file : flags.files) {
    const absl::StatusOr<int> code = CheckFile(file, flags.files.size() > 1, max_work, io);
    worst = std::max(worst, code.ok() ? *code : Fail(io, code.status()));
  }
  return worst;
}

}  // namespace meshift::cli
