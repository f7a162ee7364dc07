#include "base/work_budget.h"

#include <fmt/format.h>

namespace meshift {

absl::Status WorkBudget::Refusal(std::string_view what) const {
  return absl::ResourceExhaustedError(fmt::format(
      "{} takes more work than max_work = {} allows; raise max_work (--max-work)", what, limit_));
}

}  // namespace meshift
