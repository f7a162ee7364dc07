// `meshift plan`: makes and prints plans for one tensor, for all parameters of a model, or for each
// line of a batch.
//
//   meshift plan --mesh ddp=8,fsdp=5,tp=1 --tensor 'bf16[4096,512]' --from P,P,R --to R,R,R
//
// It runs no plan. Data goes to io.out, an error on one line to io.err. But errors in lines of a
// batch go to io.out, and its unknown keys to io.err (cli/batch.h). Exit codes: cli/io.h.
#ifndef MESHIFT_CLI_PLAN_COMMAND_H_
#define MESHIFT_CLI_PLAN_COMMAND_H_

#include <optional>
#include <string>

#include "cli/io.h"
#include "cli/problem.h"
#include "meshift/plan.h"

namespace meshift::cli {

struct PlanFlags {
  ProblemFlags problem;
  std::string format = "text";        // or "json"; a batch always prints JSON
  bool messages = false;              // also list the messages; for one tensor only
  bool together = false;              // plan all parameters of a model, or all lines, together
  std::optional<std::string> bucket;  // cut them into rounds of this much workspace
  std::optional<std::string> batch;   // a file, "-": stdin; excludes a problem (cli/batch.h)
  bool allow_files = false;           // a line of the batch may name a topology file
};

// Returns exit code 0 if a plan is found, even one that does not keep the promise; the output says
// whether it does. For a batch, 0 if the options are valid and the file could be read, even if
// lines of it are wrong.
int PlanCommand(const PlanFlags& flags, Io& io);

// The plan as JSON with a key "messages": a list of {step, source, target, box, contribution}. The
// list has the messages of MessagesOf(), so none of reductions.
// REQUIRES: CheckMessages(plan) is OK (cli/messages.h), since the text has a line per message.
std::string PlanWithMessagesToJson(const Plan& plan);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_PLAN_COMMAND_H_
