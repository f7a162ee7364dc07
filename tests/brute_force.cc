#include "tests/brute_force.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <utility>
#include <vector>

#include "absl/container/node_hash_map.h"
#include "base/checked_math.h"
#include "base/status.h"
#include "meshift/status.h"
#include "planner/cost/cost.h"
#include "planner/intra_mesh/reduction_choice.h"
#include "planner/plan/expanded_plan.h"
#include "planner/plan/rank_bytes.h"
#include "planner/search/heuristic.h"
#include "planner/search/layouts.h"
#include "planner/search/successors.h"

namespace meshift {
namespace {

struct Reached {
  PlanCost cost;
  State before;
  std::string text;  // the step from there
  bool settled = false;
};

}  // namespace

std::string PlanCost::ToString() const {
  return fmt::format("{} ns, {} B, {} B in all, {} steps", est_ns, bytes_sent, total_bytes, steps);
}

PlanCost CostOf(const Plan& plan) {
  PlanCost cost{plan.total().est_ns, plan.total().bytes_sent, 0,
                static_cast<int64_t>(plan.steps().size())};
  for (int i = 0; i < cost.steps; ++i) cost.total_bytes += TotalBytes(plan, i);
  return cost;
}

int64_t TotalBytes(const Plan& plan, int step_index) {
  const Step& step = plan.steps()[step_index];
  if (!IsCollective(step.op)) return 0;
  const Sharding& before = step_index == 0 ? plan.from() : plan.steps()[step_index - 1].after;
  const DeviceMesh& mesh = before.mesh();
  if (IsReduction(step.op) || OpOnCuts(step.op) == StepOp::kAllGather) {
    return step.bytes_sent * mesh.NumRanks();
  }
  int64_t bytes = 0;
  for (int64_t i = 0; i < mesh.NumRanks(); ++i) {
    bytes += BytesSent(plan, step_index, mesh.RankAt(i));
  }
  return bytes;
}

std::vector<std::string> StepTexts(const Plan& plan) {
  std::vector<std::string> texts;
  for (const Step& step : plan.steps()) {
    std::vector<std::string> names;
    for (const int d : step.mesh_dims) names.push_back(plan.from().mesh().dim(d).name);
    texts.push_back(fmt::format("{} {} {}", Name(OpOnCuts(step.op)), fmt::join(names, ","),
                                step.after.PlacementsText()));
  }
  return texts;
}

// A step out of a state, in one variant.
struct BruteForce::Edge {
  StepOp op;
  DimMask dims;
  State next;
  StepCost cost;
  int64_t workspace;
};

// The states and steps of a problem. A step has variants: padded or exact where both are possible
// (by cost), in stages or not.
struct BruteForce::Graph {
  static absl::StatusOr<std::unique_ptr<Graph>> Create(const Sharding& from, const Sharding& to,
                                                       const PlannerOptions& options) {
    MESHIFT_ASSIGN_OR_RETURN(Problem problem, Problem::Create(from, to, options.reduce_dtype));
    MESHIFT_ASSIGN_OR_RETURN(const ReductionChoice choice, ChooseReductions(problem, options));
    return std::make_unique<Graph>(std::move(problem), choice, options);
  }
  Graph(Problem p, const ReductionChoice& choice, const PlannerOptions& options)
      : buffers(options.buffers),
        problem(std::move(p)),
        model(ModelOf(choice, options)),
        successors(problem, model, choice.rules) {
    ways.push_back(model);
    if (options.ragged_sizes == RaggedSizes::kCost && problem.HasRagged()) {
      for (const RaggedSizes sizes : {RaggedSizes::kMax, RaggedSizes::kSum}) {
        PlannerOptions other = options;
        other.ragged_sizes = sizes;
        ways.push_back(ModelOf(choice, other));
      }
    }
    if (options.reduce_block > 0) {
      PlannerOptions other = options;
      other.reduce_block = 0;
      ways.push_back(ModelOf(choice, other));
    }
    // Ways that may cost more but need less memory: stages, exact blocks of owners.
    for (const int64_t scratch : {int64_t{0}, ScratchBytes()}) {
      if (options.reduce_block == 0 && !problem.HasRagged()) break;
      CostOptions least = CostOptionsOf(choice, options);
      least.max_workspace = 0;
      least.scratch_bytes = scratch;
      ways.push_back(CostModel(problem, options.topology, least));
    }
  }
  static CostOptions CostOptionsOf(const ReductionChoice& choice, const PlannerOptions& options) {
    CostOptions cost{.ordered = choice.ordered, .reduce_block = options.reduce_block};
    if (options.ragged_sizes == RaggedSizes::kMax) cost.ragged = StepSizes::kPadded;
    if (options.ragged_sizes == RaggedSizes::kSum) cost.ragged = StepSizes::kExact;
    return cost;
  }
  CostModel ModelOf(const ReductionChoice& choice, const PlannerOptions& options) const {
    return CostModel(problem, options.topology, CostOptionsOf(choice, options));
  }
  // Bytes of source and target.
  int64_t TensorBytes() const {
    const int64_t source = problem.MaxBytes(problem.source());
    const int64_t target = problem.MaxBytes(problem.target());
    return buffers == Buffers::kOne ? std::max(source, target) : source + target;
  }
  // The workspace of an intermediate value, a multiple of 16; none if it is not allowed.
  std::optional<int64_t> BytesBetween(const State& state) {
    const auto [known, is_new] = bytes_between.try_emplace(state);
    if (is_new && successors.value_rule().MayHold(state))
      known->second = RoundUp(problem.MaxBytes(state), 16);
    return known->second;
  }
  // The workspace of a step. REQUIRES: `before` and `after` are allowed.
  int64_t WorkspaceOf(StepOp op, const State& before, const State& after, int64_t send,
                      int64_t receive) {
    const bool first = before == problem.source();
    const bool last = after == problem.target();
    int64_t bytes = 0;
    if (!first) bytes += *BytesBetween(before);
    if (!last) bytes += *BytesBetween(after);
    int64_t scratch = first ? 0 : ScratchBytes();
    for (const int64_t piece : {send, receive}) {
      const bool fits = piece <= scratch;
      scratch -= fits ? piece : 0;
      bytes += fits ? 0 : piece;
    }
    const bool in_place = op == StepOp::kAllReduce;
    if (buffers == Buffers::kOne && first && last && !in_place) {
      bytes += RoundUp(std::min(problem.MaxBytes(before), problem.MaxBytes(after)), 16);
    }
    return bytes;
  }
  // For a consumed source: the bytes that all ranks have.
  int64_t ScratchBytes() const {
    if (buffers != Buffers::kConsumed) return 0;
    if (scratch_bytes < 0) {
      const Sharding& from = problem.from();
      int64_t least = INT64_MAX;
      for (const int64_t rank : from.mesh().Ranks()) {
        least = std::min(least, from.LocalBox(rank).NumElements());
      }
      // f4e2m1 has two elements per byte.
      scratch_bytes = least * BitWidth(from.dtype()) / 8 / 16 * 16;
    }
    return scratch_bytes;
  }
  const Buffers buffers;
  mutable int64_t scratch_bytes = -1;  // not known yet
  const Problem problem;
  const CostModel model;
  Successors successors;
  std::vector<CostModel> ways;
  // The bytes that all ranks send; for messages, whatever the model: rank by rank, the bytes that
  // it needs and does not have; for a permute all that it needs.
  int64_t MessageBytes(StepOp op, const State& state, const State& next) const {
    if (!IsCollective(op) || IsReduction(op) || op == StepOp::kAllGather) return 0;
    const DeviceMesh& mesh = problem.mesh();
    const Sharding before = problem.ToSharding(state);
    const Sharding after = problem.ToSharding(next);
    int64_t elements = 0;
    for (int64_t i = 0; i < mesh.NumRanks(); ++i) {
      const Coordinate at = *mesh.CoordinateOf(mesh.RankAt(i));
      const Box has = before.BoxAt(at);
      const Box wants = after.BoxAt(at);
      const int64_t kept = Intersect(has, wants).NumElements();
      const bool stays = has == wants || op != StepOp::kPermute;
      elements += wants.NumElements() - (stays ? kept : 0);
    }
    return Bytes(before.dtype(), elements);
  }
  std::string TextOf(StepOp op, DimMask dims, const State& next) {
    std::string& placements = placements_text[next];
    if (placements.empty()) placements = problem.ToSharding(next).PlacementsText();
    std::vector<std::string> names;
    for (int d = 0; d < problem.num_dims(); ++d) {
      if ((dims >> d & 1) != 0) names.push_back(problem.mesh().dim(problem.mesh_dim(d)).name);
    }
    return fmt::format("{} {} {}", Name(op), fmt::join(names, ","), placements);
  }
  absl::flat_hash_map<State, std::optional<int64_t>> bytes_between;
  absl::flat_hash_map<State, std::string> placements_text;
  absl::node_hash_map<State, std::vector<Edge>> edges_of;  // of the states asked for
};

PlanCost BruteForce::After(const PlanCost& cost, const Edge& edge) {
  return {SaturatingAdd(cost.est_ns, edge.cost.est_ns),
          SaturatingAdd(cost.bytes_sent, edge.cost.bytes_sent),
          SaturatingAdd(cost.total_bytes, edge.cost.total_bytes), cost.steps + 1};
}

// Chooses the known costs of this problem's steps. Forgets those of other meshes and shapes.
void BruteForce::Recall(const Graph& graph, const PlannerOptions& options) {
  const Problem& problem = graph.problem;
  std::string place =
      fmt::format("{} {}", problem.mesh().ToString(), fmt::join(problem.from().shape(), ","));
  if (place != known_for_) {
    known_.clear();
    known_for_ = std::move(place);
  }
  std::string key =
      fmt::format("{} {} {} {} {}", options.topology.ToString(), Name(options.reproducibility),
                  Name(options.ragged_sizes), options.reduce_block, graph.ScratchBytes());
  for (int i = 0; i < problem.num_stages(); ++i) key += fmt::format(" {}", Name(problem.dtype(i)));
  // The meaning of a state depends on the unit dims, and on the ragged cuts of source and target.
  key += fmt::format(" {}", fmt::join(problem.cut_to().shape(), ","));
  for (int d = 0; d < problem.num_dims() && problem.HasRagged(); ++d) {
    key += fmt::format(" {} {}", fmt::join(problem.begins(d, CutSizes::kSource), ","),
                       fmt::join(problem.begins(d, CutSizes::kTarget), ","));
  }
  measured_ = &known_[key];
}

const std::vector<BruteForce::Edge>& BruteForce::EdgesOf(Graph& graph, const State& state) {
  const auto [known, is_new] = graph.edges_of.try_emplace(state);
  std::vector<Edge>& edges = known->second;
  if (!is_new) return edges;
  graph.successors.ForEach(state, [&](const Successor& successor) {
    const auto& [op, next, dims, reducible, product] = successor;
    if (!graph.BytesBetween(next)) return;
    const auto [measured, is_first] = measured_->try_emplace(EdgeKey{op, state, next});
    if (is_first) {
      const bool by_worst = IsReduction(op) || op == StepOp::kAllGather;
      const int64_t messages = graph.MessageBytes(op, state, next);
      for (const CostModel& way : graph.ways) {
        const Traffic traffic = way.Measure(op, state, next);
        const StepCost cost = {
            traffic.est_ns, traffic.bytes_sent,
            by_worst ? traffic.bytes_sent * graph.problem.mesh().NumRanks() : messages,
            RoundUp(traffic.send_pack_bytes, 16), RoundUp(traffic.receive_pack_bytes, 16)};
        auto& costs = measured->second;
        if (std::find(costs.begin(), costs.end(), cost) == costs.end()) costs.push_back(cost);
      }
    }
    for (const StepCost& cost : measured->second) {
      edges.push_back({op, dims, next, cost,
                       graph.WorkspaceOf(op, state, next, cost.send_bytes, cost.receive_bytes)});
    }
  });
  return edges;
}

absl::StatusOr<BestPath> BruteForce::Find(const Sharding& from, const Sharding& to,
                                          const PlannerOptions& options) {
  MESHIFT_ASSIGN_OR_RETURN(const std::unique_ptr<Graph> graph, Graph::Create(from, to, options));
  const Problem& problem = graph->problem;
  Recall(*graph, options);
  const int64_t limit = options.max_memory ? *options.max_memory - graph->TensorBytes() : INT64_MAX;
  if (limit < 0) return absl::ResourceExhaustedError("source and target are over max_memory");

  absl::node_hash_map<State, Reached> reached;
  const auto texts_to = [&](State state) {
    std::vector<std::string> texts;
    for (; !(state == problem.source()); state = reached[state].before) {
      texts.push_back(reached[state].text);
    }
    std::reverse(texts.begin(), texts.end());
    return texts;
  };
  using Entry = std::pair<PlanCost, State>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> open;
  reached[problem.source()] = {};
  open.push({{}, problem.source()});
  while (!open.empty()) {
    const auto [cost, state] = open.top();
    open.pop();
    Reached& at = reached[state];
    if (at.settled) continue;
    at.settled = true;
    if (state == problem.target()) break;
    for (const Edge& edge : EdgesOf(*graph, state)) {
      if (edge.workspace > limit) continue;
      const PlanCost then = After(cost, edge);
      const auto [there, first] = reached.try_emplace(edge.next);
      if (!first && there->second.cost < then) continue;
      const std::string text = graph->TextOf(edge.op, edge.dims, edge.next);
      if (!first && there->second.cost == then) {
        std::vector<std::string> texts = texts_to(state);
        texts.push_back(text);
        if (texts >= texts_to(edge.next)) continue;
      }
      there->second = {then, state, text, false};
      open.push({then, edge.next});
    }
  }
  const auto found = reached.find(problem.target());
  if (found == reached.end() || !found->second.settled) {
    if (options.max_memory) return absl::ResourceExhaustedError("no path is within max_memory");
    return Internal("no path from {} to {}", from.ToString(), to.ToString());
  }
  return BestPath{found->second.cost, texts_to(problem.target()),
                  static_cast<int64_t>(reached.size())};
}

absl::StatusOr<int64_t> BruteForce::FindLeastMemory(const Sharding& from, const Sharding& to,
                                                    const PlannerOptions& options) {
  MESHIFT_ASSIGN_OR_RETURN(const std::unique_ptr<Graph> graph, Graph::Create(from, to, options));
  const Problem& problem = graph->problem;
  if (problem.source() == problem.target()) return graph->TensorBytes();
  Recall(*graph, options);
  struct Arrow {
    int to;
    int64_t workspace;
  };
  std::vector<std::vector<Arrow>> arrows = {{}};  // by state
  std::vector<State> states = {problem.source()};
  absl::flat_hash_map<State, int> numbers = {{problem.source(), 0}};
  std::vector<int64_t> limits;
  for (size_t i = 0; i < states.size(); ++i) {
    const State state = states[i];
    for (const Edge& edge : EdgesOf(*graph, state)) {
      const auto [at, is_new] = numbers.try_emplace(edge.next, static_cast<int>(states.size()));
      if (is_new) {
        states.push_back(edge.next);
        arrows.emplace_back();
      }
      arrows[i].push_back({at->second, edge.workspace});
      limits.push_back(edge.workspace);
    }
  }
  const auto target = numbers.find(problem.target());
  if (target == numbers.end()) {
    return Internal("no path from {} to {}", from.ToString(), to.ToString());
  }
  const auto reaches = [&](int64_t limit) {
    std::vector<bool> seen(states.size(), false);
    std::vector<int> open = {0};
    seen[0] = true;
    while (!open.empty()) {
      const int at = open.back();
      open.pop_back();
      for (const Arrow& arrow : arrows[at]) {
        if (arrow.workspace > limit || seen[arrow.to]) continue;
        seen[arrow.to] = true;
        open.push_back(arrow.to);
      }
    }
    return seen[target->second] == true;
  };
  std::sort(limits.begin(), limits.end());
  const auto least = std::partition_point(limits.begin(), limits.end(),
                                          [&](int64_t limit) { return !reaches(limit); });
  return graph->TensorBytes() + *least;
}

absl::StatusOr<BruteForce::HeuristicCheck> BruteForce::CheckHeuristic(
    const Sharding& from, const Sharding& to, const PlannerOptions& options) {
  MESHIFT_ASSIGN_OR_RETURN(const std::unique_ptr<Graph> graph, Graph::Create(from, to, options));
  const Problem& problem = graph->problem;
  Recall(*graph, options);
  struct Vertex {
    State state;
    int64_t bound_ns = 0;
    int64_t rest_ns = INT64_MAX;
    std::vector<std::pair<int, int64_t>> from;  // steps that lead here: origin and ns
  };
  std::vector<Vertex> vertices;
  absl::flat_hash_map<State, int> numbers;
  Heuristic heuristic(problem, graph->model, graph->successors);
  const auto number_of = [&](const State& state) {
    const auto [at, is_new] = numbers.try_emplace(state, static_cast<int>(vertices.size()));
    if (is_new) {
      const DecodedState view = graph->successors.layouts().Decode(state);
      vertices.push_back({state, heuristic.LeastNs(view), INT64_MAX, {}});
    }
    return at->second;
  };
  HeuristicCheck check;
  const auto text_of = [&](const Vertex& vertex) {
    return fmt::format("{} ({} ns)", problem.ToSharding(vertex.state).PlacementsText(),
                       vertex.bound_ns);
  };
  number_of(problem.source());
  const int target = number_of(problem.target());
  for (int i = 0; i < static_cast<int>(vertices.size()); ++i) {
    for (const Edge& edge : EdgesOf(*graph, vertices[i].state)) {
      const int next = number_of(edge.next);
      vertices[next].from.emplace_back(i, edge.cost.est_ns);
      ++check.steps;
      if (vertices[i].bound_ns <= edge.cost.est_ns + vertices[next].bound_ns) continue;
      if (++check.not_consistent > 1) continue;
      check.text = fmt::format("{} {} in {} ns to {}", text_of(vertices[i]), Name(edge.op),
                               edge.cost.est_ns, text_of(vertices[next]));
    }
  }
  check.states = static_cast<int64_t>(vertices.size());
  using Entry = std::pair<int64_t, int>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> open;
  vertices[target].rest_ns = 0;
  open.emplace(0, target);
  while (!open.empty()) {
    const auto [ns, i] = open.top();
    open.pop();
    if (ns > vertices[i].rest_ns) continue;
    if (vertices[i].bound_ns > ns && ++check.not_admissible == 1) {
      check.text = fmt::format("{}, {} ns from the target", text_of(vertices[i]), ns);
    }
    for (const auto& [before, step_ns] : vertices[i].from) {
      if (ns + step_ns >= vertices[before].rest_ns) continue;
      vertices[before].rest_ns = ns + step_ns;
      open.emplace(ns + step_ns, before);
    }
  }
  return check;
}

absl::StatusOr<BruteForce::ByGroups> BruteForce::FindByGroups(const Sharding& from,
                                                              const Sharding& to,
                                                              const PlannerOptions& options) {
  MESHIFT_ASSIGN_OR_RETURN(const std::unique_ptr<Graph> graph, Graph::Create(from, to, options));
  const Problem& problem = graph->problem;
  Recall(*graph, options);
  using Label = std::pair<State, uint32_t>;  // a state, and the groups of the path to it
  ByGroups result;
  // Used twice: with the sum of costs, and with the largest workspace.
  const auto search = [&]<typename Value>(const auto& then, const auto& take) {
    absl::flat_hash_map<Label, Value> least = {{{problem.source(), 0}, Value{}}};
    using Entry = std::pair<Value, Label>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> open;
    open.push({Value{}, {problem.source(), 0}});
    while (!open.empty()) {
      const auto [value, label] = open.top();
      open.pop();
      if (least[label] != value) continue;
      if (label.first == problem.target()) {
        take(&result[label.second], value);
        continue;
      }
      for (const Edge& edge : EdgesOf(*graph, label.first)) {
        const uint32_t group = IsCollective(edge.op) ? uint32_t{1} << edge.dims : 0;
        const Label to{edge.next, label.second | group};
        const Value reached = then(value, edge);
        const auto [at, is_new] = least.try_emplace(to, reached);
        if (!is_new && at->second <= reached) continue;
        at->second = reached;
        open.push({reached, to});
      }
    }
  };
  search.template operator()<PlanCost>(
      [](const PlanCost& cost, const Edge& edge) { return After(cost, edge); },
      [](OverGroups* over, const PlanCost& cost) { over->cost = cost; });
  search.template operator()<int64_t>(
      [](int64_t most, const Edge& edge) { return std::max(most, edge.workspace); },
      [&](OverGroups* over, int64_t workspace) {
        over->least_memory = graph->TensorBytes() + workspace;
      });
  return result;
}

}  // namespace meshift
