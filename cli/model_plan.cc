#include "cli/model_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "base/checked_math.h"
#include "base/status.h"
#include "base/text_table.h"
#include "base/work_budget.h"
#include "cli/io.h"
#include "cli/model.h"
#include "cli/model_traffic.h"
#include "cli/problem.h"
#include "cli/render_text.h"
#include "cli/rules.h"
#include "cli/text.h"
#include "meshift/device_mesh.h"
#include "meshift/plan.h"
#include "meshift/planner.h"
#include "meshift/planner_cache.h"
#include "meshift/sharding.h"
#include "meshift/status.h"
#include "meshift/topology.h"
#include "meshift/union_mesh.h"
#include "planner/bucket.h"
#include "planner/groups/plan_groups.h"
#include "planner/intra_mesh/assemble.h"
#include "planner/plan/partition.h"
#include "planner/plan/plan_text.h"
#include "planner/together/rounds.h"

namespace meshift::cli {
namespace {

// The inputs that all parameters share.
struct SharedInputs {
  DeviceMesh mesh;
  DeviceMesh to_mesh;
  std::vector<Rule> rules;  // without a file, one rule that matches everything
  PlannerOptions options;
};

absl::StatusOr<std::vector<Rule>> RulesOf(const ProblemFlags& flags, Io& io) {
  if (flags.rules) {
    MESHIFT_RETURN_IF_ERROR(Exclude(flags.from, "--from", "--rules"));
    MESHIFT_RETURN_IF_ERROR(Exclude(flags.to, "--to", "--rules"));
    return ReadRules(*flags.rules, io);
  }
  MESHIFT_ASSIGN_OR_RETURN(const std::string from, Require(flags.from, "--from"));
  MESHIFT_ASSIGN_OR_RETURN(const std::string to, Require(flags.to, "--to"));
  return std::vector<Rule>{{"*", from, to}};
}

// `text` with the words TP and EP replaced for a parameter.
absl::StatusOr<std::string> Placed(const std::string& text, const Parameter& parameter,
                                   const DeviceMesh& mesh, const ExpertOwners& owners,
                                   const char* option) {
  absl::StatusOr<std::string> placed = PlacementsFor(text, parameter, mesh, owners);
  if (!placed.ok()) return Annotate(placed.status(), option);
  return placed;
}

// Parameters with the same problem.
struct Task {
  int64_t count = 0;
  Parameter first;
  size_t rule = 0;  // of the first
  Sharding from;
  Sharding to;
};

absl::StatusOr<Task> MakeTask(const Parameter& parameter, size_t rule, const std::string& from_text,
                              const std::string& to_text, const ProblemFlags& flags,
                              const SharedInputs& shared) {
  absl::StatusOr<Sharding> from = Sharding::Parse(parameter.type, shared.mesh, from_text);
  if (!from.ok()) return Annotate(from.status(), flags.rules ? "from" : "--from");
  MESHIFT_ASSIGN_OR_RETURN(Sharding to, ParseTarget(*from, shared.to_mesh, to_text, flags));
  return Task{1, parameter, rule, *std::move(from), std::move(to)};
}

// The work, in units of WorkBudget, of a byte of placements, which may list sizes, and of a row.
// Most of it stands for memory.
constexpr int64_t kSizeWork = 4;
constexpr int64_t kRowWork = 8192;

// Adds a parameter to the tasks. `task_of_inputs` maps a parameter's inputs to the index of its
// task, `task_of_problem` its type and placements.
absl::Status AddParameter(const Parameter& parameter, const ProblemFlags& flags,
                          const SharedInputs& shared, WorkBudget& budget,
                          std::map<std::string, size_t>* task_of_inputs,
                          std::map<std::string, size_t>* task_of_problem,
                          std::vector<Task>* tasks) {
  int64_t steps = 0;
  const absl::StatusOr<size_t> found = FindRule(shared.rules, parameter.name, &steps);
  if (!budget.Charge(steps)) return budget.Refusal("planning");
  MESHIFT_ASSIGN_OR_RETURN(const size_t index, found);
  const Rule& rule = shared.rules[index];
  const bool by_expert = HasExpertWord(rule.from) || HasExpertWord(rule.to);
  const std::string key =
      fmt::format("{}|{}|{}|{}", parameter.type.ToString(), index, parameter.tp_dim.value_or(-1),
                  by_expert ? parameter.expert.value_or(-1) : -1);
  if (const auto same = task_of_inputs->find(key); same != task_of_inputs->end()) {
    ++(*tasks)[same->second].count;
    return absl::OkStatus();
  }
  MESHIFT_ASSIGN_OR_RETURN(
      const std::string from,
      Placed(rule.from, parameter, shared.mesh, rule.from_owners, flags.rules ? "from" : "--from"));
  MESHIFT_ASSIGN_OR_RETURN(
      const std::string to,
      Placed(rule.to, parameter, shared.to_mesh, rule.to_owners, flags.rules ? "to" : "--to"));
  if (!budget.Charge(kSizeWork, std::ssize(from) + std::ssize(to))) {
    return budget.Refusal("planning");
  }
  const std::string problem = fmt::format("{}|{}|{}", parameter.type.ToString(), from, to);
  const auto [same, is_new] = task_of_problem->emplace(problem, tasks->size());
  task_of_inputs->emplace(key, same->second);
  if (!is_new) {
    ++(*tasks)[same->second].count;
    return absl::OkStatus();
  }
  MESHIFT_ASSIGN_OR_RETURN(Task task, MakeTask(parameter, index, from, to, flags, shared));
  tasks->push_back(std::move(task));
  return absl::OkStatus();
}

// Finds one order of the target's ranks for all tasks.
absl::Status Relabel(std::vector<Task>* tasks, WorkBudget& budget) {
  std::vector<RelabelledTensor> tensors;
  for (const Task& task : *tasks) tensors.push_back({task.from, task.to, task.count});
  const absl::StatusOr<DeviceMesh> mesh = RelabelRanks(tensors, &budget);
  if (!mesh.ok()) return Annotate(mesh.status(), "--relabel-ranks");
  for (Task& task : *tasks) {
    MESHIFT_ASSIGN_OR_RETURN(task.to, task.to.OnMesh(*mesh));
  }
  return absl::OkStatus();
}

ModelRow RowOf(const Task& task, const SharedInputs& shared, Plan plan) {
  const Rule& rule = shared.rules[task.rule];
  const auto shown = [&](const std::string& text, const Sharding& sharding) {
    if (!task.first.expert || !HasExpertWord(text)) return sharding.PlacementsText();
    return PlacementsFor(text, task.first);
  };
  std::string from_shown = shown(rule.from, plan.from());
  std::string to_shown = shown(rule.to, plan.to());
  return {task.count, task.first.name, std::move(plan), std::move(from_shown), std::move(to_shown)};
}

std::string NameOf(const Task& task) { return fmt::format("parameter '{}'", task.first.name); }

// The rows of plans that are made one by one.
absl::Status PlanAlone(const std::vector<Task>& tasks, const SharedInputs& shared,
                       std::optional<int64_t> bucket_bytes, WorkBudget& budget, ModelPlan* result) {
  PlannerCache planner(shared.options);
  std::vector<Plan> plans;
  std::vector<int64_t> counts;
  for (const Task& task : tasks) {
    if (!budget.Charge(kRowWork)) return Annotate(budget.Refusal("planning"), NameOf(task));
    absl::StatusOr<Plan> plan =
        planner.Find(task.from, task.to, /*reduce_dtype=*/std::nullopt, budget);
    if (plan.ok() && bucket_bytes) {
      plan = FitBucket(*std::move(plan), shared.options, *bucket_bytes, budget);
    }
    if (!plan.ok()) return Annotate(plan.status(), NameOf(task));
    result->rows.push_back(RowOf(task, shared, *plan));
    plans.push_back(*std::move(plan));
    counts.push_back(task.count);
  }
  MESHIFT_ASSIGN_OR_RETURN(result->setup_ns, SetupNs(result->rows, budget));
  if (!bucket_bytes) return absl::OkStatus();
  MESHIFT_ASSIGN_OR_RETURN(result->rounds, CutIntoRounds(plans, counts, *bucket_bytes));
  return absl::OkStatus();
}

// The rows of plans that are made together.
absl::Status PlanAllTogether(const std::vector<Task>& tasks, const SharedInputs& shared,
                             std::optional<int64_t> bucket_bytes, WorkBudget& budget,
                             ModelPlan* result) {
  std::vector<TensorMove> moves;
  for (const Task& task : tasks) moves.push_back({task.from, task.to, task.count});
  if (!budget.Charge(kRowWork, std::ssize(moves))) return budget.Refusal("planning");
  return PlanRowsTogether(
      moves, shared.options, bucket_bytes, budget, [&](size_t i) { return NameOf(tasks[i]); },
      [&](size_t i, Plan plan) { return RowOf(tasks[i], shared, std::move(plan)); }, result);
}

}  // namespace

absl::Status PlanRowsTogether(absl::Span<const TensorMove> moves, const PlannerOptions& options,
                              std::optional<int64_t> bucket_bytes, WorkBudget& budget,
                              absl::FunctionRef<std::string(size_t)> name,
                              absl::FunctionRef<ModelRow(size_t, Plan)> row, ModelPlan* result) {
  absl::StatusOr<PlanSet> set = MakePlans(moves, options, budget, bucket_bytes);
  if (!set.ok()) {
    const std::string message = Message(set.status());
    for (size_t i = 0; i < moves.size(); ++i) {
      const std::string move = fmt::format("move {}: ", i);
      if (message.rfind(move, 0) != 0) continue;
      return Annotate(absl::Status(set.status().code(), message.substr(move.size())), name(i));
    }
    return set.status();
  }
  for (size_t i = 0; i < moves.size(); ++i) result->rows.push_back(row(i, set->plans[i]));
  result->together = {set->busiest, set->busiest_ns, set->starts_ns, set->copies_ns, set->bound_ns};
  result->bucket_bytes = bucket_bytes;
  result->rounds = std::move(set->rounds);
  MESHIFT_ASSIGN_OR_RETURN(result->setup_ns, SetupNs(result->rows, budget));
  return absl::OkStatus();
}

absl::StatusOr<int64_t> SetupNs(const std::vector<ModelRow>& rows, WorkBudget& budget) {
  struct Used {
    PlanGroups groups;
    GroupSet set;
  };
  std::vector<Used> uses;
  absl::flat_hash_map<std::vector<DeviceMesh>, size_t> use_on;
  for (const ModelRow& row : rows) {
    // Without a price groups have no set-up time.
    if (!row.plan.options().groups.expected_uses) continue;
    const auto [known, is_new] = use_on.emplace(row.plan.meshes(), uses.size());
    if (is_new) {
      MESHIFT_ASSIGN_OR_RETURN(PlanGroups groups,
                               GroupsOf(row.plan.meshes(), row.plan.options(), budget));
      GroupSet none(groups.size(), false);
      uses.push_back({std::move(groups), std::move(none)});
    }
    Used& used = uses[known->second];
    const GroupSet more = used.groups.UsedBy(row.plan.steps());
    for (size_t i = 0; i < more.size(); ++i) used.set[i] = used.set[i] || more[i];
  }
  int64_t setup_ns = 0;
  absl::flat_hash_set<std::string> counted;  // groups of several meshes may be the same
  for (const Used& used : uses) {
    for (size_t i = 0; i < used.set.size(); ++i) {
      if (!used.set[i] || used.groups.existing()[i]) continue;
      GroupSet one(used.set.size(), false);
      one[i] = true;
      const MeshGroups groups = used.groups.List(one)[0];
      if (!counted.insert(PartitionKey(groups.mesh, groups.mesh_dims)).second) continue;
      setup_ns = SaturatingAdd(setup_ns, used.groups.each_setup_ns());
    }
  }
  return setup_ns;
}

bool ShowsTraffic(const ProblemFlags& flags) {
  return flags.rules || flags.to_mesh || flags.relabel_ranks;
}

int64_t ModelPlan::NumParameters() const {
  int64_t count = 0;
  for (const ModelRow& row : rows) count = SaturatingAdd(count, row.count);
  return count;
}

PlanTotals ModelPlan::Total() const {
  PlanTotals sum;
  sum.setup_ns = setup_ns;
  for (const ModelRow& row : rows) {
    const PlanTotals& total = row.plan.total();
    sum.collectives = SaturatingAdd(sum.collectives, SaturatingMul(row.count, total.collectives));
    sum.bytes_sent = SaturatingAdd(sum.bytes_sent, SaturatingMul(row.count, total.bytes_sent));
    sum.est_ns = SaturatingAdd(sum.est_ns, SaturatingMul(row.count, total.est_ns));
    sum.peak_bytes = std::max(sum.peak_bytes, total.peak_bytes);
    sum.workspace_bytes = std::max(sum.workspace_bytes, total.workspace_bytes);
  }
  return sum;
}

LowerBound ModelPlan::Bound() const {
  LowerBound sum;
  for (const ModelRow& row : rows) {
    const LowerBound& bound = row.plan.lower_bound();
    sum.bytes_sent = SaturatingAdd(sum.bytes_sent, SaturatingMul(row.count, bound.bytes_sent));
    sum.est_ns = SaturatingAdd(sum.est_ns, SaturatingMul(row.count, bound.est_ns));
  }
  return sum;
}

absl::StatusOr<ModelPlan> PlanModel(const ProblemFlags& flags, Io& io, const PlanningMode& mode) {
  MESHIFT_RETURN_IF_ERROR(Exclude(flags.tensor, "--tensor", "--model"));
  MESHIFT_ASSIGN_OR_RETURN(const std::string path, Require(flags.model, "--model"));
  MESHIFT_ASSIGN_OR_RETURN(const std::string mesh_text, Require(flags.mesh, "--mesh"));
  MESHIFT_ASSIGN_OR_RETURN(std::vector<Rule> rules, RulesOf(flags, io));
  MESHIFT_ASSIGN_OR_RETURN(PlannerOptions options, ParsePlannerOptions(flags));
  const absl::StatusOr<DeviceMesh> mesh = DeviceMesh::Parse(mesh_text);
  if (!mesh.ok()) return Annotate(mesh.status(), "--mesh");
  MESHIFT_ASSIGN_OR_RETURN(DeviceMesh to_mesh, ParseTargetMesh(*mesh, flags));
  SharedInputs shared{*mesh, std::move(to_mesh), std::move(rules), std::move(options)};
  MESHIFT_ASSIGN_OR_RETURN(Model model, ReadModel(path, io));
  if (flags.filter) {
    absl::StatusOr<Model> kept = Filter(std::move(model), *flags.filter);
    if (!kept.ok()) return Annotate(kept.status(), "--filter");
    model = *std::move(kept);
  }

  if (flags.dtype) {
    const absl::StatusOr<DType> dtype = ParseDType(*flags.dtype);
    if (!dtype.ok()) return Annotate(dtype.status(), "--dtype");
    for (Parameter& parameter : model.parameters) {
      absl::StatusOr<TensorType> type = TensorType::Create(*dtype, parameter.type.shape);
      if (!type.ok()) {
        return Annotate(type.status(), fmt::format("parameter '{}'", parameter.name));
      }
      parameter.type = *std::move(type);
    }
  }

  WorkBudget budget(shared.options.max_work);  // of all plans together
  std::vector<Task> tasks;
  std::map<std::string, size_t> task_of_inputs;
  std::map<std::string, size_t> task_of_problem;
  for (const Parameter& parameter : model.parameters) {
    const absl::Status added =
        AddParameter(parameter, flags, shared, budget, &task_of_inputs, &task_of_problem, &tasks);
    if (!added.ok()) return Annotate(added, fmt::format("parameter '{}'", parameter.name));
  }
  if (flags.relabel_ranks) MESHIFT_RETURN_IF_ERROR(Relabel(&tasks, budget));
  if (!tasks.empty()) {
    MESHIFT_RETURN_IF_ERROR(ParseExistingGroups(flags, tasks[0].from.mesh(), tasks[0].to.mesh(),
                                                &shared.options.groups));
  }
  ModelPlan result{.name = model.name, .bucket_bytes = mode.bucket_bytes};
  const auto plan_rows = mode.together ? PlanAllTogether : PlanAlone;
  MESHIFT_RETURN_IF_ERROR(plan_rows(tasks, shared, mode.bucket_bytes, budget, &result));
  return result;
}

std::string StepsText(const Plan& plan) {
  std::string text;
  for (const Step& step : plan.steps()) {
    text += (text.empty() ? "" : "; ") + step.Label();
  }
  return text.empty() ? "nothing to do" : text;
}

std::string RenderModelPreamble(const ModelPlan& model, const ProblemFlags& flags,
                                const std::string& verb) {
  // Plans that are made to fit a bucket have a limit that was not asked for.
  const Plan& first = std::max_element(model.rows.begin(), model.rows.end(),
                                       [](const ModelRow& a, const ModelRow& b) {
                                         constexpr int64_t kNone =
                                             std::numeric_limits<int64_t>::max();
                                         return a.plan.options().max_memory.value_or(kNone) <
                                                b.plan.options().max_memory.value_or(kNone);
                                       })
                          ->plan;
  const std::string what =
      flags.rules ? fmt::format("by {}", Shown(*flags.rules))
                  : fmt::format("{} -> {}", flags.from.value_or(""), flags.to.value_or(""));
  std::string text = fmt::format("# meshift {}: {} parameters of {}, {}\n", verb,
                                 model.NumParameters(), Shown(model.name.value_or("")), what);
  for (const DeviceMesh& mesh : first.meshes()) {
    text += fmt::format("# mesh {} ({})\n", mesh.ToString(), CountText(mesh.NumRanks(), "rank"));
  }
  return text + PlanInputsLine(first);
}

namespace {

// Rows whose plans differ only in the expert's place, merged into one.
struct ShownRow {
  int64_t count = 0;
  std::array<std::string, 4> cells;  // tensor, from, to, steps
  int64_t bytes_sent = 0;            // of the worst
  int64_t est_ns = 0;
  const std::string* first = nullptr;
};

std::vector<ShownRow> ShownRows(const ModelPlan& model) {
  std::vector<ShownRow> shown;
  std::map<std::array<std::string, 4>, size_t> row_of;
  for (const ModelRow& row : model.rows) {
    const Plan& plan = row.plan;
    std::array<std::string, 4> cells = {plan.from().tensor().ToString(), row.from, row.to,
                                        StepsText(plan)};
    const auto [known, is_new] = row_of.emplace(cells, shown.size());
    if (is_new) shown.push_back({0, std::move(cells), 0, 0, &row.first});
    ShownRow& merged = shown[known->second];
    merged.count += row.count;
    merged.bytes_sent = std::max(merged.bytes_sent, plan.total().bytes_sent);
    merged.est_ns = std::max(merged.est_ns, plan.total().est_ns);
  }
  return shown;
}

std::string RenderTogether(const ModelPlan& model) {
  const TogetherTotals& together = *model.together;
  const BusiestLink& busiest = together.busiest;
  const Topology& topology = model.rows[0].plan.options().topology;
  return fmt::format(
      "together: busiest link {} of rank {} ({}) {}, bound {}; starts {}, copies {}\n",
      topology.level(busiest.level).name, busiest.rank, busiest.received ? "received" : "sent",
      TimeText(together.busiest_ns), TimeText(together.bound_ns), TimeText(together.starts_ns),
      TimeText(together.copies_ns));
}

std::string RenderRounds(const ModelPlan& model) {
  int64_t count = 0;
  int64_t workspace = 0;
  int64_t ns = 0;
  for (const Round& round : model.rounds) {
    count = SaturatingAdd(count, round.repeat);
    workspace = std::max(workspace, round.workspace_bytes);
    ns = SaturatingAdd(ns, SaturatingMul(round.repeat, round.busiest_ns));
  }
  return fmt::format("rounds: {}, largest workspace {}{}\n", count, BytesText(workspace),
                     model.together ? fmt::format(", busiest links {}", TimeText(ns)) : "");
}

}  // namespace

std::string RenderModelPlan(const ModelPlan& model, const ProblemFlags& flags) {
  constexpr auto kLeft = TextTable::Align::kLeft;
  constexpr auto kRight = TextTable::Align::kRight;
  TextTable table({{"count", kLeft},
                   {"tensor", kLeft},
                   {"from", kLeft},
                   {"to", kLeft},
                   {"plan", kLeft},
                   {"sent", kRight},
                   {"est", kRight},
                   {"first parameter", kLeft}});
  for (const ShownRow& row : ShownRows(model)) {
    table.AddRow({fmt::format("{}", row.count), row.cells[0], row.cells[1], row.cells[2],
                  row.cells[3], BytesText(row.bytes_sent), TimeText(row.est_ns),
                  Shown(*row.first)});
  }
  const PlanTotals total = model.Total();
  const LowerBound bound = model.Bound();
  std::string text = RenderModelPreamble(model, flags, "plan") + table.ToString();
  text += fmt::format(
      "total: {}, {}, {}, sent {}, est {}{}\n", CountText(model.NumParameters(), "parameter"),
      CountText(static_cast<int64_t>(model.rows.size()), "distinct plan"),
      CountText(total.collectives, "collective"), BytesText(total.bytes_sent),
      TimeText(total.est_ns),
      total.setup_ns == 0 ? "" : fmt::format(", setup {}", TimeText(total.setup_ns)));
  text += fmt::format("lower bound: sent {}, est {}\n", BytesText(bound.bytes_sent),
                      TimeText(bound.est_ns));
  if (model.together) text += RenderTogether(model);
  if (model.bucket_bytes) text += RenderRounds(model);
  if (ShowsTraffic(flags)) text += RenderTraffic(TrafficOf(model));
  return text + RenderModelPromise(model);
}

std::string RenderModelPromise(const ModelPlan& model) {
  for (const ModelRow& row : model.rows) {
    if (row.plan.kept() >= row.plan.asked()) continue;
    return RenderPromise(row.plan.asked(), false,
                         fmt::format("{}: {}", Shown(row.first), Shown(row.plan.why())));
  }
  const int64_t count = model.NumParameters();
  return RenderPromise(model.rows[0].plan.asked(), true,
                       fmt::format("by the plans of all {}", CountText(count, "parameter")));
}

}  // namespace meshift::cli
