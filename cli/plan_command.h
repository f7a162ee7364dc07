// `meshift plan`: the cheapest plan for one tensor, for all parameters of a model, or for a batch.
//
//   meshift plan --mesh ddp=8,fsdp=5,tp=1 --tensor 'bf16[4096,512]' --from P,P,R --to R,R,R
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
  std::string format = "text";       // or "json"
  bool messages = false;             // also list the messages
  std::optional<std::string> batch;  // excludes a problem; the other flags are its defaults
  bool allow_files = false;          // a line of the batch may name a topology file
};

// Returns exit code 0 if a plan is found, whether or not it keeps the promise; the output says
// that. For a batch, 0 if the file could be read.
int PlanCommand(const PlanFlags& flags, Io& io);

// The plan as JSON with a key "messages": a list of {step, source, target, box, contribution}.
std::string PlanWithMessagesToJson(const Plan& plan);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_PLAN_COMMAND_H_
