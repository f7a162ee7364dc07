#include "cli/explain_collective.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "base/checked_math.h"
#include "base/status.h"
#include "base/text_table.h"
#include "base/work_budget.h"
#include "cli/json.h"
#include "cli/nccl_tests_op.h"
#include "cli/text.h"
#include "cli/time_text.h"
#include "meshift/device_mesh.h"
#include "meshift/status.h"
#include "meshift/topology.h"
#include "planner/cost/collective_time.h"
#include "planner/cost/group_shape.h"
#include "planner/plan/quantity.h"

namespace meshift::cli {
namespace {

constexpr std::array<NcclTestsOp, 4> kCollectives = {
    NcclTestsOp::kAllReduce, NcclTestsOp::kAllGather, NcclTestsOp::kReduceScatter,
    NcclTestsOp::kAllToAll};

constexpr int64_t kRankWork = 32;  // units of WorkBudget to list a rank of the mesh

absl::StatusOr<NcclTestsOp> ParseCollective(const std::string& text) {
  const std::optional<NcclTestsOp> op = ParseNcclTestsOp(text);
  if (!op || std::find(kCollectives.begin(), kCollectives.end(), *op) == kCollectives.end()) {
    std::vector<std::string_view> names;
    for (const NcclTestsOp known : kCollectives) names.push_back(Name(known));
    return InvalidArgument("--collective: unknown collective {}; expected one of {}", Quoted(text),
                           fmt::join(names, ", "));
  }
  return *op;
}

// Indices of the mesh dims that the groups are over, ascending.
absl::StatusOr<std::vector<int>> ParseDims(const std::optional<std::string>& text,
                                           const DeviceMesh& mesh) {
  std::vector<int> dims;
  if (!text) {
    for (int d = 0; d < mesh.NumDims(); ++d) dims.push_back(d);
    return dims;
  }
  for (const std::string& name : std::vector<std::string>(absl::StrSplit(*text, ','))) {
    const std::optional<int> dim = mesh.FindDim(name);
    if (!dim) {
      return InvalidArgument("--dims: mesh {} has no dim {}", Shown(mesh.ToString()), Quoted(name));
    }
    if (std::find(dims.begin(), dims.end(), *dim) != dims.end()) {
      return InvalidArgument("--dims: {} is named twice", Quoted(name));
    }
    dims.push_back(*dim);
  }
  std::sort(dims.begin(), dims.end());
  return dims;
}

// Groups as CostModel sees them: in closed form if the mesh's ranks are in order, else listed.
absl::StatusOr<GroupShape> ShapeOver(const std::vector<int>& dims, const DeviceMesh& mesh,
                                     const Topology& topology, int64_t max_work) {
  WorkBudget budget(max_work);
  RankGroups groups;
  for (const int d : dims) groups.size *= mesh.dim(d).size;
  if (groups.size < 2) {
    return InvalidArgument("the group has 1 rank; a collective needs 2 or more");
  }
  if (topology.NumLevels() > 1 && mesh.IsRowMajor()) {
    int64_t stride = 1;
    for (int d = mesh.NumDims() - 1; d >= 0; --d) {
      const int64_t size = mesh.dim(d).size;
      if (size > 1 && std::binary_search(dims.begin(), dims.end(), d)) {
        groups.modes.push_back({size, stride});
      }
      stride *= size;
    }
  } else if (topology.NumLevels() > 1) {
    if (!budget.Charge(kRankWork, mesh.NumRanks())) return budget.Refusal("listing the groups");
    groups.ranks = mesh.Groups(dims);
  }
  GroupShape shape = ShapeOf(topology, mesh.NumRanks(), groups, &budget);
  if (budget.exhausted()) return budget.Refusal("placing the groups");
  return shape;
}

// The time of a collective, and the latency of its messages if it consists of single ones.
struct Estimate {
  CollectiveTime time;
  int64_t messages_ns = 0;

  int64_t Ns() const { return SaturatingAdd(time.Ns(), messages_ns); }
  bool IsSameWay(const Estimate& other) const {
    return time.algorithm == other.time.algorithm && time.protocol == other.time.protocol;
  }
};

// The times of one collective in one group, by its size.
class Collective {
 public:
  Collective(NcclTestsOp op, const Topology& topology, const GroupShape& shape)
      : op_(op), topology_(topology), times_(topology, shape) {}

  int64_t size() const { return times_.shape().size; }
  Estimate At(int64_t bytes) const {
    if (op_ == NcclTestsOp::kAllReduce) return {times_.AllReduce(bytes)};
    return op_ == NcclTestsOp::kAllToAll ? Messages(bytes) : Blocks(bytes);
  }
  // As a gather or a scatter, and as messages of the same size to all other ranks.
  Estimate Blocks(int64_t bytes) const { return {times_.Blocks(SentOf(bytes))}; }
  Estimate Messages(int64_t bytes) const {
    return {times_.Direct(SentOf(bytes), size() - 1), MessagesNs()};
  }
  // All variants, the fastest first.
  std::vector<Estimate> Variants(int64_t bytes) const {
    using Kind = GroupTimes::Kind;
    const bool reduces = op_ == NcclTestsOp::kAllReduce;
    const bool sends = op_ == NcclTestsOp::kAllToAll;
    std::vector<Estimate> all;
    for (const CollectiveTime& time : GroupTimes::Variants(topology_, times_.shape(),
                                                           reduces ? Kind::kAllReduce
                                                           : sends ? Kind::kToAll
                                                                   : Kind::kBlocks,
                                                           reduces ? bytes : SentOf(bytes))) {
      all.push_back({time, sends ? MessagesNs() : 0});
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const Estimate& a, const Estimate& b) { return a.Ns() < b.Ns(); });
    return all;
  }
  // The smallest size above `bytes` at which another variant is faster; none if there is none. The
  // least time is concave in the size, so each variant is the fastest on one range of sizes, and
  // bisection finds the range's end.
  std::optional<int64_t> ChangeAbove(int64_t bytes) const {
    const Estimate here = At(bytes);
    int64_t same = bytes;
    int64_t other = kMostBytes;
    if (bytes >= kMostBytes || At(other).IsSameWay(here)) return std::nullopt;
    while (other - same > 1) {
      const int64_t middle = same + (other - same) / 2;
      (At(middle).IsSameWay(here) ? same : other) = middle;
    }
    return other;
  }
  // The largest size below `bytes` at which another variant is faster; none if there is none.
  std::optional<int64_t> ChangeBelow(int64_t bytes) const {
    const Estimate here = At(bytes);
    int64_t other = 0;
    int64_t same = bytes;
    if (At(other).IsSameWay(here)) return std::nullopt;
    while (same - other > 1) {
      const int64_t middle = other + (same - other) / 2;
      (At(middle).IsSameWay(here) ? same : other) = middle;
    }
    return other;
  }
  // The ratio of busbw to algbw.
  double BusFactor() const {
    const double part = static_cast<double>(size() - 1) / static_cast<double>(size());
    return op_ == NcclTestsOp::kAllReduce ? 2 * part : part;
  }

 private:
  static constexpr int64_t kMostBytes = int64_t{1} << 62;

  // The bytes of all blocks but a rank's own, if all blocks together have `bytes`.
  int64_t SentOf(int64_t bytes) const {
    return SaturatingMul(size() - 1, MulDivCeil(bytes, 1, size()));
  }
  int64_t MessagesNs() const {
    return SaturatingMul(topology_.constants().message_latency_ns, size() - 1);
  }

  const NcclTestsOp op_;
  const Topology& topology_;
  const GroupTimes times_;
};

struct Answer {
  std::string name;
  int64_t bytes = 0;
  std::string mesh;
  int64_t ranks = 0;
  int64_t group_size = 0;
  Topology topology = Topology::Flat();
  std::vector<Estimate> variants;  // the first is the answer
  double algbw = 0;                // GB/s, of 10^9 bytes
  double busbw = 0;
  // Other calls with the same result.
  struct Instead {
    std::string calls;
    int64_t ns = 0;
  };
  std::optional<Instead> instead;
  struct Change {
    int64_t bytes = 0;
    Estimate to;
  };
  // The nearest sizes at which another variant is faster.
  std::optional<Change> below;
  std::optional<Change> above;

  const Estimate& best() const { return variants[0]; }
  int64_t BeforeBytesNs() const { return best().Ns() - best().time.links_ns; }
  bool WaitsForLinks() const { return best().time.links_ns > BeforeBytesNs(); }
};

std::string AlgorithmText(const Estimate& one, const Topology& topology) {
  return cli::AlgorithmText(one.time.algorithm, one.time.protocol, topology);
}

std::string LinksText(const Estimate& one, const Topology& topology) {
  return cli::LinksText(one.time.level, one.time.sharing, topology);
}

std::string VariantsTable(const Answer& answer) {
  const auto right = TextTable::Align::kRight;
  TextTable table({{"by"},
                   {"est", right},
                   {"starts", right},
                   {"hops", right},
                   {"messages", right},
                   {"links", right},
                   {"the slowest links"}});
  for (const Estimate& one : answer.variants) {
    table.AddRow({AlgorithmText(one, answer.topology), ExactTimeText(one.Ns()),
                  ExactTimeText(one.time.start_ns), ExactTimeText(one.time.hops_ns),
                  ExactTimeText(one.messages_ns), ExactTimeText(one.time.links_ns),
                  LinksText(one, answer.topology)});
  }
  return table.ToString();
}

std::string Render(const Answer& answer) {
  const Estimate& best = answer.best();
  std::string text = fmt::format(
      "# meshift explain: {} of {}\n# mesh {} ({} ranks), groups {} x {}\n# topology {}\n",
      answer.name, ExactBytesText(answer.bytes), answer.mesh, answer.ranks,
      answer.ranks / answer.group_size, answer.group_size, answer.topology.ToString());
  text +=
      fmt::format("est {} by {}: algbw {:.2f} GB/s, busbw {:.2f} GB/s\n", ExactTimeText(best.Ns()),
                  AlgorithmText(best, answer.topology), answer.algbw, answer.busbw);
  const std::string limit = answer.WaitsForLinks() ? LinksText(best, answer.topology)
                            : best.messages_ns > 0 ? "start, hops and messages"
                                                   : "start and hops";
  text += fmt::format(
      "limited by {}: {} of {}\n", limit,
      ExactTimeText(answer.WaitsForLinks() ? best.time.links_ns : answer.BeforeBytesNs()),
      ExactTimeText(best.Ns()));
  text += VariantsTable(answer);
  if (answer.instead) {
    const int64_t more = answer.instead->ns - best.Ns();
    text += fmt::format("{} instead: est {}, {}\n", answer.instead->calls,
                        ExactTimeText(answer.instead->ns),
                        more == 0 ? "the same"
                                  : fmt::format("{} {}", ExactTimeText(more < 0 ? -more : more),
                                                more < 0 ? "less" : "more"));
  }
  if (answer.below) {
    text += fmt::format("up to {}: {}\n", BytesText(answer.below->bytes),
                        AlgorithmText(answer.below->to, answer.topology));
  }
  if (answer.above) {
    text += fmt::format("from {} on: {}\n", BytesText(answer.above->bytes),
                        AlgorithmText(answer.above->to, answer.topology));
  }
  if (!answer.below && !answer.above) text += "the same way for all sizes\n";
  return text;
}

Json ProtocolJson(const Estimate& one, const Topology& topology) {
  if (one.time.protocol < 0) return nullptr;
  return topology.protocols()[one.time.protocol].name;
}

Json ToJson(const Estimate& one, const Topology& topology) {
  Json json = {{"algorithm", Name(one.time.algorithm)},
               {"protocol", ProtocolJson(one, topology)},
               {"est_ns", one.Ns()},
               {"starts_ns", one.time.start_ns},
               {"hops_ns", one.time.hops_ns},
               {"messages_ns", one.messages_ns},
               {"links_ns", one.time.links_ns},
               {"slowest_links", topology.level(one.time.level).name}};
  json["links_per_domain"] = one.time.sharing == 0 ? Json() : Json(one.time.sharing);
  return json;
}

Json ToJson(const std::optional<Answer::Change>& change, const Topology& topology) {
  if (!change) return nullptr;
  return {{"bytes", change->bytes},
          {"algorithm", Name(change->to.time.algorithm)},
          {"protocol", ProtocolJson(change->to, topology)}};
}

std::string RenderJson(const Answer& answer) {
  Json json = {{"format", "meshift.collective"},
               {"version", 1},
               {"collective", answer.name},
               {"bytes", answer.bytes},
               {"mesh", answer.mesh},
               {"group_size", answer.group_size},
               {"groups", answer.ranks / answer.group_size},
               {"topology", answer.topology.ToString()}};
  json.update(ToJson(answer.best(), answer.topology));
  json["limited_by"] = answer.WaitsForLinks() ? "links" : "start";
  json["algbw_gb_per_s"] = answer.algbw;
  json["busbw_gb_per_s"] = answer.busbw;
  Json& variants = json["variants"] = Json::array();
  for (const Estimate& one : answer.variants) variants.push_back(ToJson(one, answer.topology));
  json["instead"] = answer.instead
                        ? Json{{"calls", answer.instead->calls}, {"est_ns", answer.instead->ns}}
                        : Json();
  json["below"] = ToJson(answer.below, answer.topology);
  json["above"] = ToJson(answer.above, answer.topology);
  return JsonText(json) + "\n";
}

Answer AnswerOf(NcclTestsOp op, const Collective& collective, int64_t bytes) {
  Answer answer;
  answer.name = Name(op);
  answer.bytes = bytes;
  answer.group_size = collective.size();
  answer.variants = collective.Variants(bytes);
  // If several are equally fast, the variant that plans assume comes first.
  const auto best = std::find_if(
      answer.variants.begin(), answer.variants.end(),
      [here = collective.At(bytes)](const Estimate& one) { return one.IsSameWay(here); });
  std::rotate(answer.variants.begin(), best, best + 1);
  const auto ns = static_cast<double>(std::max<int64_t>(answer.best().Ns(), 1));
  answer.algbw = static_cast<double>(bytes) / ns;
  answer.busbw = answer.algbw * collective.BusFactor();
  if (op == NcclTestsOp::kAllReduce) {
    answer.instead = {"reduce_scatter + all_gather",
                      SaturatingMul(2, collective.Blocks(bytes).Ns())};
  } else if (op == NcclTestsOp::kAllGather) {
    answer.instead = {"messages to all others", collective.Messages(bytes).Ns()};
  }
  if (const std::optional<int64_t> below = collective.ChangeBelow(bytes)) {
    answer.below = {*below, collective.At(*below)};
  }
  if (const std::optional<int64_t> above = collective.ChangeAbove(bytes)) {
    answer.above = {*above, collective.At(*above)};
  }
  return answer;
}

}  // namespace

absl::Status ExplainCollective(const ProblemFlags& flags, const CollectiveFlags& collective,
                               bool as_json, Io& io) {
  ProblemFlags others = flags;
  others.mesh.reset();
  others.topology.reset();
  MESHIFT_RETURN_IF_ERROR(ExcludeProblem(others, "--collective"));
  MESHIFT_RETURN_IF_ERROR(ExcludeOptions(others, "--collective"));
  MESHIFT_ASSIGN_OR_RETURN(const NcclTestsOp op, ParseCollective(*collective.name));
  MESHIFT_ASSIGN_OR_RETURN(const std::string bytes_text, Require(collective.bytes, "--bytes"));
  const absl::StatusOr<int64_t> bytes = ParseBytes(bytes_text);
  if (!bytes.ok()) return Annotate(bytes.status(), "--bytes");
  if (*bytes < 1) return InvalidArgument("--bytes is {}; it must be 1 or more", *bytes);
  MESHIFT_ASSIGN_OR_RETURN(const std::string mesh_text, Require(flags.mesh, "--mesh"));
  MESHIFT_ASSIGN_OR_RETURN(const PlannerOptions options, ParsePlannerOptions(flags));
  const absl::StatusOr<DeviceMesh> mesh = DeviceMesh::Parse(mesh_text);
  if (!mesh.ok()) return Annotate(mesh.status(), "--mesh");
  MESHIFT_ASSIGN_OR_RETURN(const std::vector<int> dims, ParseDims(collective.dims, *mesh));
  MESHIFT_ASSIGN_OR_RETURN(const GroupShape shape,
                           ShapeOver(dims, *mesh, options.topology, options.max_work));
  Answer answer = AnswerOf(op, Collective(op, options.topology, shape), *bytes);
  answer.mesh = mesh->ToString();
  answer.ranks = mesh->NumRanks();
  answer.topology = options.topology;
  io.out << (as_json ? RenderJson(answer) : Render(answer));
  return absl::OkStatus();
}

}  // namespace meshift::cli
