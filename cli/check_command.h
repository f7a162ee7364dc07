// `meshift check`: proves that plan files are right (meshift/verifier.h), and documents of many
// plans (cli/plans_json.h).
//
//   meshift check plan.json            # "ok 3f0c..." or "wrong: step 1: after: ..."; with several
//                                      # files, each line begins with the file's name
//   meshift check --batch plans.jsonl  # {"id", "ok", "step", "rule", "message"} per line
//
// Files are untrusted. A proof that needs more work than max_work counts as wrong, by the rule
// "scale". Plans are not run.
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
  std::optional<int64_t> max_work;   // of the proof of a file, or of a batch's line; none: 2^29
};

// Exit code 0: all files are right; 1: one is wrong; 2: the flags are wrong; 3: a file cannot be
// read or holds no plans. The highest counts. A batch returns 1 if any answer has "ok":
// false, also for a line that holds no plan; 0 if it has no lines.
int CheckCommand(const CheckFlags& flags, Io& io);

// "step 1: after: MESSAGE"; without the step if the rule is about the whole plan. Printable, with
// the message cut short (cli/text.h).
std::string FaultText(const PlanFault& fault);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_CHECK_COMMAND_H_
