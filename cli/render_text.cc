#include "cli/render_text.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "base/text_table.h"
#include "cli/messages.h"
#include "meshift/dtype.h"
#include "meshift/plan.h"

namespace meshift::cli {
namespace {

constexpr auto kLeft = TextTable::Align::kLeft;
constexpr auto kRight = TextTable::Align::kRight;

}  // namespace

std::string RenderPromise(Reproducibility asked, bool kept, const std::string& why) {
  return fmt::format("promise {}: {}kept ({})\n", Name(asked), kept ? "" : "NOT ", why);
}

std::string RenderMessages(const Plan& plan) {
  TextTable table({{"step", kLeft},
                   {"source", kRight},
                   {"target", kRight},
                   {"box", kLeft},
                   {"contribution", kLeft},
                   {"bytes", kRight}});
  for (int i = 0; i < static_cast<int>(plan.steps().size()); ++i) {
    const DType dtype = plan.steps()[i].after.dtype();  // messages do not change it
    for (const RankMessage& message : MessagesOf(plan, i)) {
      table.AddRow({fmt::format("{}", i), fmt::format("{}", message.source),
                    fmt::format("{}", message.target), message.box.ToString(),
                    message.ContributionText(),
                    fmt::format("{}", Bytes(dtype, message.box.NumElements()))});
    }
  }
  return table.ToString();
}

}  // namespace meshift::cli
