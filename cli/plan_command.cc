#include "cli/plan_command.h"

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "cli/batch.h"
#include "cli/io.h"
#include "cli/json.h"
#include "cli/messages.h"
#include "cli/model_plan.h"
#include "cli/plans_json.h"
#include "cli/problem.h"
#include "cli/render_text.h"
#include "meshift/plan.h"
#include "meshift/plan_io.h"
#include "meshift/status.h"
#include "planner/plan/plan_text.h"
#include "planner/plan/quantity.h"
#include "planner/together/rounds.h"

namespace meshift::cli {
namespace {

// --bucket in bytes.
absl::StatusOr<std::optional<int64_t>> BucketOf(const PlanFlags& flags) {
  if (!flags.bucket) return std::optional<int64_t>();
  absl::StatusOr<int64_t> bytes = ParseBytes(*flags.bucket);
  const absl::Status status = bytes.ok() ? CheckBucket(*bytes) : bytes.status();
  if (!status.ok()) return Annotate(status, "--bucket");
  return std::optional<int64_t>(*bytes);
}

absl::Status RunBatch(const PlanFlags& flags, Io& io) {
  MESHIFT_RETURN_IF_ERROR(ExcludeProblem(flags.problem, "--batch"));
  if (flags.messages) return InvalidArgument("--messages and --batch exclude each other");
  BatchDefaults defaults{.allow_files = flags.allow_files};
  MESHIFT_ASSIGN_OR_RETURN(defaults.options, ParsePlannerOptions(flags.problem));
  const OptionTexts& options = flags.problem.options;
  if (const auto groups = options.find("existing_groups"); groups != options.end()) {
    defaults.existing_groups = groups->second;
  }
  if (!flags.together) return PlanBatch(*flags.batch, defaults, io);
  MESHIFT_ASSIGN_OR_RETURN(const std::optional<int64_t> bucket, BucketOf(flags));
  MESHIFT_ASSIGN_OR_RETURN(const ModelPlan lines,
                           PlanBatchTogether(*flags.batch, defaults, bucket, io));
  io.out << PlansToJson(lines, /*with_traffic=*/true) << "\n";
  return absl::OkStatus();
}

absl::Status RunModel(const PlanFlags& flags, Io& io) {
  if (flags.messages) return InvalidArgument("--messages and --model exclude each other");
  PlanningMode mode{.together = flags.together};
  MESHIFT_ASSIGN_OR_RETURN(mode.bucket_bytes, BucketOf(flags));
  MESHIFT_ASSIGN_OR_RETURN(const ModelPlan model, PlanModel(flags.problem, io, mode));
  if (flags.format == "json") {
    io.out << PlansToJson(model, ShowsTraffic(flags.problem)) << "\n";
  } else {
    io.out << RenderModelPlan(model, flags.problem);
  }
  return absl::OkStatus();
}

absl::Status RunOne(const PlanFlags& flags, Io& io) {
  if (flags.problem.filter) return InvalidArgument("--filter needs --model");
  MESHIFT_ASSIGN_OR_RETURN(const Problem problem, ParseProblem(flags.problem));
  MESHIFT_ASSIGN_OR_RETURN(const Plan plan, PlanOf(problem));
  if (flags.messages) {
    if (absl::Status many = CheckMessages(plan); !many.ok()) return Annotate(many, "--messages");
  }
  if (flags.format == "json") {
    io.out << (flags.messages ? PlanWithMessagesToJson(plan) : PlanToJson(plan)) << "\n";
    return absl::OkStatus();
  }
  io.out << PlanToText(plan);
  if (flags.messages) io.out << RenderMessages(plan);
  return absl::OkStatus();
}

}  // namespace

std::string PlanWithMessagesToJson(const Plan& plan) {
  std::string messages;  // one line each, since there may be many
  for (int step = 0; step < static_cast<int>(plan.steps().size()); ++step) {
    for (const RankMessage& message : MessagesOf(plan, step)) {
      Json contribution = Json::object();
      for (const auto& [name, index] : message.contribution) contribution[name] = index;
      const Json json = {{"step", step},
                         {"source", message.source},
                         {"target", message.target},
                         {"box", {{"offset", message.box.offset}, {"size", message.box.size}}},
                         {"contribution", std::move(contribution)}};
      messages += (messages.empty() ? "\n    " : ",\n    ") + JsonText(json);
    }
  }
  // The plan's text ends in "\n}"; insert the key before that.
  const std::string text = PlanToJson(plan, /*indent=*/2);
  return text.substr(0, text.rfind('\n')) + ",\n  \"messages\": [" + messages + "\n  ]\n}";
}

int PlanCommand(const PlanFlags& flags, Io& io) {
  if (flags.format != "text" && flags.format != "json") {
    return Fail(
        io, InvalidArgument("--format: unknown format '{}'; expected text or json", flags.format));
  }
  if (flags.allow_files && !flags.batch) {
    return Fail(io, InvalidArgument("--allow-files needs --batch"));
  }
  if (flags.together && !flags.problem.model && !flags.batch) {
    return Fail(io, InvalidArgument("--together needs --model or --batch"));
  }
  if (flags.bucket && !flags.problem.model && !(flags.batch && flags.together)) {
    return Fail(io, InvalidArgument("--bucket needs --model, or --batch and --together"));
  }
  const absl::Status status = flags.batch           ? RunBatch(flags, io)
                              : flags.problem.model ? RunModel(flags, io)
                                                    : RunOne(flags, io);
  return status.ok() ? kExitOk : Fail(io, status);
}

}  // namespace meshift::cli
