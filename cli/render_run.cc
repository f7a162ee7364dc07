#include "cli/render_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/checked_math.h"
#include "base/ranges_text.h"
#include "base/text_table.h"
#include "cli/execute.h"
#include "cli/model_plan.h"
#include "cli/problem.h"
#include "cli/render_text.h"
#include "cli/text.h"
#include "comm/local/reduction_order.h"
#include "meshift/plan.h"
#include "planner/plan/plan_text.h"

namespace meshift::cli {
namespace {

constexpr auto kLeft = TextTable::Align::kLeft;
constexpr auto kRight = TextTable::Align::kRight;

std::string OrderText(const Plan& plan, ReductionOrder order) {
  switch (order) {
    case ReductionOrder::kRanks:
      return "ranks";
    case ReductionOrder::kTopology:
      return fmt::format("topology (domains of {})", CountText(DomainSize(plan), "rank"));
    case ReductionOrder::kAdversarial:
      return "adversarial";
  }
  return "";
}

// "# reduction order ranks, repeat 1, seed 1", or "..., sources of FOLDER"; in a job "# engine mpi,
// a job of 8 ranks, ...".
std::string OptionsText(const Plan& plan, const ExecuteOptions& options,
                        const std::optional<std::string>& loaded = std::nullopt) {
  return fmt::format(
      "# {}, repeat {}, {}\n",
      options.engine == "local" ? "reduction order " + OrderText(plan, options.reduction_order)
                                : fmt::format("engine {}, a job of {}", options.engine,
                                              CountText(options.job_ranks, "rank")),
      options.repeat,
      loaded ? "sources of " + Shown(*loaded) : fmt::format("seed {}", options.seed));
}

StepRun TotalOf(const RunReport& report) {
  StepRun total;
  for (const StepRun& step : report.steps) {
    total.bytes_sent = SaturatingAdd(total.bytes_sent, step.bytes_sent);
    total.time_ns = SaturatingAdd(total.time_ns, step.time_ns);
  }
  return total;
}

// "wrong 3", and on another line the first place.
std::string CountedText(const char* what, int64_t count, const std::string& first) {
  std::string text = fmt::format("{} {}\n", what, count);
  if (count > 0) text += fmt::format("first {}: {}\n", what, first);
  return text;
}

// The bytes are those of the rank that takes most.
std::string MemoryText(int64_t planned, int64_t counted) {
  return fmt::format("peak: planned {} bytes, counted {} bytes\n", planned, counted);
}

// Empty if no more memory was taken than planned.
std::string ExcessText(const Plan& plan, const RunReport& report) {
  const int64_t excess = report.peak_bytes - plan.total().peak_bytes;
  if (excess <= 0) return "";
  return fmt::format("peak exceeds the plan by {}\n", CountText(excess, "byte"));
}

// Text that may come from a plan file, with each line made printable and cut short.
std::string ShownLines(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size() - 1);
    shown += ShownMessage(text.substr(0, end)) + "\n";
    text.remove_prefix(end + 1);
  }
  return shown;
}

// A line per hash, with the ranks whose targets have it, ordered by first rank; then whether
// repeats and replicas had equal bits.
std::string HashesText(const Plan& plan, const RunReport& report, int64_t repeat) {
  if (report.hashes.empty()) return "";
  std::vector<std::pair<Fingerprint, std::vector<int64_t>>> holders;
  std::vector<std::pair<int64_t, Fingerprint>> ranks;
  for (size_t p = 0; p < report.hashes.size(); ++p) {
    ranks.emplace_back(plan.to().mesh().RankAt(static_cast<int64_t>(p)), report.hashes[p]);
  }
  std::sort(ranks.begin(), ranks.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [rank, hash] : ranks) {
    const auto it = std::find_if(holders.begin(), holders.end(),
                                 [h = hash](const auto& holder) { return holder.first == h; });
    if (it != holders.end()) {
      it->second.push_back(rank);
    } else {
      holders.push_back({hash, {rank}});
    }
  }
  std::string text;
  for (const auto& [hash, list] : holders) {
    text += fmt::format("hash {} {} {}\n", hash.ToString(), list.size() == 1 ? "rank" : "ranks",
                        RangesText(list));
  }
  text += fmt::format(
      "bits over {} repeats: {}\n", repeat,
      report.repeats_differ == 0
          ? "equal"
          : fmt::format("{} differ, first {}", report.repeats_differ, report.first_repeat));
  return text + fmt::format("bits over replicas: {}\n",
                            report.replicas_differ == 0 ? "equal" : "different");
}

// Empty for the local engine if all bytes are right.
std::string MiscountedText(const RunReport& report, const ExecuteOptions& options) {
  if (options.engine == "local" && report.miscounted == 0) return "";
  return fmt::format("bytes not as planned {}\n", report.miscounted);
}

std::string PromiseText(const Plan& plan, const RunReport& report) {
  const bool as_planned = plan.kept() >= plan.asked();
  const bool kept = KeepsPromise(plan, report);
  return RenderPromise(plan.asked(), kept,
                       kept || !as_planned          ? Shown(plan.why())
                       : report.replicas_differ > 0 ? "replicas differ in this run"
                                                    : "repeated runs differ");
}

}  // namespace

bool KeepsPromise(const Plan& plan, const RunReport& report) {
  const bool wants_replicas = plan.asked() >= Reproducibility::kReplicas;
  const bool wants_repeats = plan.asked() > Reproducibility::kReplicas;
  return plan.kept() >= plan.asked() && !(wants_replicas && report.replicas_differ > 0) &&
         !(wants_repeats && report.repeats_differ > 0);
}

bool IsRight(const Plan& plan, const RunReport& report) {
  return report.wrong == 0 && report.miscounted == 0 &&
         report.peak_bytes <= plan.total().peak_bytes && KeepsPromise(plan, report);
}

std::string RenderRun(const Plan& plan, const RunReport& report, const ExecuteOptions& options,
                      const std::optional<std::string>& loaded) {
  TextTable table({{"step", kLeft},
                   {"op", kLeft},
                   {"mesh dims", kLeft},
                   {"groups", kRight},
                   {"after", kLeft},
                   {"planned bytes", kRight},
                   {"counted bytes", kRight},
                   {"time", kRight}});
  for (size_t i = 0; i < plan.steps().size(); ++i) {
    const Step& step = plan.steps()[i];
    const StepRun& run = report.steps[i];
    const std::string mesh = plan.meshes().size() == 1 ? "" : fmt::format(" on mesh {}", step.mesh);
    table.AddRow({fmt::format("{}", i), std::string(Name(step.op)), MeshDimsText(step),
                  GroupText(step), Shown(step.after.PlacementsText()) + mesh,
                  fmt::format("{}", step.bytes_sent), fmt::format("{}", run.bytes_sent),
                  TimeText(run.time_ns)});
  }
  const StepRun total = TotalOf(report);
  std::string text =
      ShownLines(PlanPreamble(plan, "run")) + OptionsText(plan, options, loaded) + table.ToString();
  text += fmt::format("total: {}, planned {} bytes, counted {} bytes, time {}\n",
                      CountText(plan.total().collectives, "collective"), plan.total().bytes_sent,
                      total.bytes_sent, TimeText(total.time_ns));
  text += MemoryText(plan.total().peak_bytes, report.peak_bytes) + ExcessText(plan, report);
  text += CountedText("wrong", report.wrong, report.first_wrong);
  text += CountedText("replicas differ", report.replicas_differ, report.first_difference);
  text += HashesText(plan, report, options.repeat);
  text += MiscountedText(report, options);
  text += fmt::format("groups created {}, reused {} (per rank)\n", report.groups_created,
                      report.groups_reused);
  text += PromiseText(plan, report);
  return text + fmt::format("fingerprint {}\n", plan.fingerprint().ToString());
}

std::string RenderModelRun(const ModelPlan& model, const std::vector<RunReport>& reports,
                           const ProblemFlags& flags, const ExecuteOptions& options) {
  TextTable table({{"count", kLeft},
                   {"tensor", kLeft},
                   {"plan", kLeft},
                   {"planned bytes", kRight},
                   {"counted bytes", kRight},
                   {"time", kRight},
                   {"wrong", kRight},
                   {"replicas differ", kRight},
                   {"first parameter", kLeft}});
  RunReport all;
  StepRun sum;
  int64_t planned_peak = 0;
  std::string excess;
  std::string promise;
  for (size_t i = 0; i < reports.size(); ++i) {
    const ModelRow& row = model.rows[i];
    const RunReport& report = reports[i];
    const StepRun total = TotalOf(report);
    table.AddRow({fmt::format("{}", row.count), row.plan.from().tensor().ToString(),
                  StepsText(row.plan), fmt::format("{}", row.plan.total().bytes_sent),
                  fmt::format("{}", total.bytes_sent), TimeText(total.time_ns),
                  fmt::format("{}", report.wrong), fmt::format("{}", report.replicas_differ),
                  Shown(row.first)});
    sum.bytes_sent = SaturatingAdd(sum.bytes_sent, SaturatingMul(row.count, total.bytes_sent));
    sum.time_ns = SaturatingAdd(sum.time_ns, SaturatingMul(row.count, total.time_ns));
    all.wrong += report.wrong;
    all.replicas_differ += report.replicas_differ;
    all.miscounted += report.miscounted;
    all.peak_bytes = std::max(all.peak_bytes, report.peak_bytes);
    planned_peak = std::max(planned_peak, row.plan.total().peak_bytes);
    if (all.first_wrong.empty()) all.first_wrong = report.first_wrong;
    if (all.first_difference.empty()) all.first_difference = report.first_difference;
    all.groups_created += report.groups_created;
    all.groups_reused += report.groups_reused;
    if (excess.empty()) excess = ExcessText(row.plan, report);
    if (promise.empty() && !KeepsPromise(row.plan, report)) promise = PromiseText(row.plan, report);
  }
  const Plan& first = model.rows[0].plan;
  std::string text = RenderModelPreamble(model, flags, "run") + OptionsText(first, options);
  text += "# one run per distinct (shape, plan); totals are over all parameters\n";
  text += table.ToString();
  text += fmt::format("total: {}, {}, planned {} bytes, counted {} bytes, time {}\n",
                      CountText(model.NumParameters(), "parameter"),
                      CountText(static_cast<int64_t>(model.rows.size()), "distinct plan"),
                      model.Total().bytes_sent, sum.bytes_sent, TimeText(sum.time_ns));
  text += MemoryText(planned_peak, all.peak_bytes) + excess;
  text += CountedText("wrong", all.wrong, all.first_wrong);
  text += CountedText("replicas differ", all.replicas_differ, all.first_difference);
  text += MiscountedText(all, options);
  text += fmt::format("groups created {}, reused {} (per rank)\n", all.groups_created,
                      all.groups_reused);
  return text + (promise.empty() ? RenderModelPromise(model) : promise);
}

}  // namespace meshift::cli
