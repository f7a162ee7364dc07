// `meshift check`: is a plan what it says?
//
//   meshift check plan.json            # "ok 3f0c..." or "wrong: step 1: after: ..."
//   meshift check --batch plans.jsonl  # {"id", "ok", "step", "rule", "message"} per line
#ifndef MESHIFT_CLI_CHECK_COMMAND_H_
#define MESHIFT_CLI_CHECK_COMMAND_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/io.h"
#include "meshift/plan_io.h"

namespace meshift::cli {

struct CheckFlags {
  std::vector<std::string> files;    // "-": stdin
  std::optional<std::string> batch;  // excludes files
  std::optional<int64_t> max_work;   // VerifyOptions::max_work
};

// Exit code 0: all plans are right; 1: one is wrong; 3: a file cannot be read or holds no plan. For
// a batch: 1 where a line is answered with "ok": false.
int CheckCommand(const CheckFlags& flags, Io& io);

// "step 1: after: MESSAGE", without the step for a rule about the whole plan; printable, the
// message cut short (cli/text.h).
std::string FaultText(const PlanFault& fault);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_CHECK_COMMAND_H_
