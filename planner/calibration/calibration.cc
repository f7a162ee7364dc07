#include "planner/cost/calibration.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/checked_math.h"
#include "base/status.h"
#include "base/status_macros.h"
#include "mesh/device_mesh.h"
#include "placement/dtype.h"
#include "placement/tensor_type.h"
#include "planner/cost/cost.h"
#include "planner/graph/state.h"

namespace meshift {
namespace {

using Kind = Probe::Kind;

constexpr int64_t kItem = 4;              // bytes of an f32
constexpr int64_t kSmallest = 256;        // bytes of the smallest tensor, or a member's item
constexpr int64_t kSizeStep = 16;         // from one size to the next
constexpr int64_t kSmall = 32 << 10;      // up to so many bytes, latencies are most of a time
constexpr int64_t kUnit = 1'000'000;      // by which a constant is moved to see what it does
constexpr int64_t kMaxRanks = INT32_MAX;  // of a mesh

// A probe over the middle dim of out x members x in; `ranks` empty: 0 .. n-1.
absl::StatusOr<Probe> MakeProbe(Kind kind, int level, const std::vector<int64_t>& sizes,
                                std::vector<int64_t> ranks, int64_t bytes) {
  MESHIFT_ASSIGN_OR_RETURN(
      const DeviceMesh mesh,
      DeviceMesh::Create({{"out", sizes[0]}, {"members", sizes[1]}, {"in", sizes[2]}},
                         std::move(ranks)));
  const int64_t n = sizes[1];
  const int64_t block = std::max<int64_t>(bytes / kItem / n, 1);
  const bool messages = kind == Kind::kMessages;
  // All other dims cut too, so that nothing is anywhere twice and the step is the best plan.
  const int64_t others = sizes[0] * sizes[2];
  MESHIFT_ASSIGN_OR_RETURN(
      TensorType tensor,
      TensorType::Create(DType::kF32, messages
                                          ? Shape{n, n * std::max<int64_t>(block / n, 1), others}
                                          : Shape{n * block, 1, others}));
  const char* const from = kind == Kind::kCopy ? "S(2),R,S(2)" : "S(2),S(0),S(2)";
  const char* const to = kind == Kind::kCopy ? "S(2),S(0),S(2)"
                         : messages          ? "S(2),S(1),S(2)"
                                             : "S(2),R,S(2)";
  const StepOp op = kind == Kind::kCopy ? StepOp::kSlice
                    : messages          ? StepOp::kAllToAll
                                        : StepOp::kAllGather;
  MESHIFT_ASSIGN_OR_RETURN(Sharding source, Sharding::Parse(tensor, mesh, from));
  MESHIFT_ASSIGN_OR_RETURN(Sharding target, Sharding::Parse(tensor, mesh, to));
  const int64_t moved = kind == Kind::kCopy ? block
                        : messages          ? (n - 1) * std::max<int64_t>(block / n, 1)
                                            : (n - 1) * block;
  return Probe{kind, op, level, moved * kItem, std::move(source), std::move(target)};
}

// Bytes of the smallest tensor of a probe among n members that tells what is to be known by it.
int64_t LeastBytes(Kind kind, int64_t n) {
  if (kind != Kind::kCopy && kind != Kind::kGather) return kSmallest * n;
  // A bandwidth: see Measured::Bandwidth.
  const int64_t blocks = kind == Kind::kCopy ? 1 : n - 1;
  int64_t block = kSmallest * kSizeStep;
  while (blocks * block <= kSmall) block *= kSizeStep;
  return n * block;
}

// The middle of the values, the lower of two.
int64_t Median(std::vector<int64_t> values) {
  const auto middle = values.begin() + (static_cast<int64_t>(values.size()) - 1) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// The probes of one kind and level, with their times.
class Measured {
 public:
  Measured(absl::Span<const Probe> probes, absl::Span<const int64_t> ns, Kind kind, int level) {
    for (size_t i = 0; i < probes.size(); ++i) {
      if (probes[i].kind == kind && probes[i].level == level) {
        probes_.push_back(&probes[i]);
        ns_.push_back(ns[i]);
      }
    }
  }
  bool empty() const { return probes_.empty(); }
  int64_t Members() const { return probes_.front()->from.mesh().dim(1).size; }

  // Bytes per us; none where larger tensors take no longer.
  std::optional<int64_t> Bandwidth() const {
    std::vector<int64_t> slopes;
    for (size_t i = 0; i < probes_.size(); ++i) {
      for (size_t j = 0; j < probes_.size(); ++j) {
        // Between sizes near each other noise is most of the difference.
        const int64_t bytes = probes_[j]->bytes - probes_[i]->bytes;
        if (probes_[j]->bytes <= kSmall || probes_[j]->bytes < 8 * probes_[i]->bytes) continue;
        if (ns_[j] <= ns_[i]) continue;
        slopes.push_back(std::max<int64_t>(
            static_cast<int64_t>(static_cast<__int128>(bytes) * 1000 / (ns_[j] - ns_[i])), 1));
      }
    }
    if (slopes.empty()) return std::nullopt;
    return Median(std::move(slopes));
  }

  // The median over small tensors of (time - the model's) / what a ns of the constant adds; at
  // least 0. `set` sets the constant of a topology.
  template <typename Set>
  absl::StatusOr<int64_t> Latency(const Topology& topology, const Set& set) const {
    MESHIFT_ASSIGN_OR_RETURN(const Topology without, set(topology, 0));
    MESHIFT_ASSIGN_OR_RETURN(const Topology with, set(topology, kUnit));
    std::vector<int64_t> found;
    for (size_t i = 0; i < probes_.size(); ++i) {
      if (probes_[i]->bytes > kSmall && !found.empty()) continue;
      MESHIFT_ASSIGN_OR_RETURN(const int64_t base, ProbeNs(*probes_[i], without));
      MESHIFT_ASSIGN_OR_RETURN(const int64_t moved, ProbeNs(*probes_[i], with));
      const int64_t factor = (moved - base + kUnit / 2) / kUnit;
      found.push_back(std::max<int64_t>((ns_[i] - base) / std::max<int64_t>(factor, 1), 0));
    }
    return Median(std::move(found));
  }

 private:
  std::vector<const Probe*> probes_;
  std::vector<int64_t> ns_;
};

absl::StatusOr<Topology> With(const Topology& topology, std::vector<TopologyLevel> levels) {
  return Topology::Create(std::move(levels), topology.constants());
}

std::vector<TopologyLevel> LevelsOf(const Topology& topology) {
  std::vector<TopologyLevel> levels;
  for (int i = 0; i < topology.NumLevels(); ++i) levels.push_back(topology.level(i));
  return levels;
}

// Setters of one constant, for Measured::Latency.
auto Constant(int64_t TopologyConstants::*member) {
  return [member](const Topology& topology, int64_t value) {
    TopologyConstants constants = topology.constants();
    constants.*member = value;
    return Topology::Create(LevelsOf(topology), constants);
  };
}

auto LatencyOf(int level) {
  return [level](const Topology& topology, int64_t value) {
    std::vector<TopologyLevel> levels = LevelsOf(topology);
    levels[level].latency_ns = value;
    return With(topology, std::move(levels));
  };
}

absl::StatusOr<Topology> WithBandwidth(const Topology& topology, int level,
                                       std::optional<int64_t> bytes_per_us) {
  std::vector<TopologyLevel> levels = LevelsOf(topology);
  if (bytes_per_us) levels[level].bandwidth_bytes_per_us = *bytes_per_us;
  return With(topology, std::move(levels));
}

// The start of a collective and a hop inside the innermost domain. Two members take one hop, more
// of them more; where all are two, the hop stays as it is.
absl::StatusOr<Topology> FitStart(Topology topology, int level, const Measured& all,
                                  const Measured& pairs) {
  const auto start = Constant(&TopologyConstants::collective_latency_ns);
  if (!pairs.empty()) {
    MESHIFT_ASSIGN_OR_RETURN(const Topology no_hop, LatencyOf(level)(topology, 0));
    MESHIFT_ASSIGN_OR_RETURN(const int64_t of_all, all.Latency(no_hop, start));
    MESHIFT_ASSIGN_OR_RETURN(const int64_t of_pairs, pairs.Latency(no_hop, start));
    const int64_t more_hops = Log2Ceil(all.Members()) - Log2Ceil(pairs.Members());
    const int64_t hop = std::clamp<int64_t>((of_all - of_pairs) / more_hops, 0, of_pairs);
    MESHIFT_ASSIGN_OR_RETURN(topology, LatencyOf(level)(topology, hop));
    MESHIFT_ASSIGN_OR_RETURN(const int64_t rest, pairs.Latency(topology, start));
    return start(topology, rest);
  }
  MESHIFT_ASSIGN_OR_RETURN(const int64_t rest, all.Latency(topology, start));
  return start(topology, rest);
}

}  // namespace

absl::StatusOr<std::vector<Probe>> CalibrationProbes(const Topology& structure, int64_t num_ranks,
                                                     int64_t max_bytes) {
  if (num_ranks < 2) {
    return InvalidArgument("{} ranks: links are between two or more", num_ranks);
  }
  if (num_ranks > kMaxRanks) {
    return InvalidArgument("{} ranks: a mesh has at most {}", num_ranks, kMaxRanks);
  }
  std::vector<Probe> probes;
  const auto add = [&](Kind kind, int level, const std::vector<int64_t>& sizes,
                       const std::vector<int64_t>& ranks) -> absl::Status {
    const int64_t least = LeastBytes(kind, sizes[1]);
    if (max_bytes < least) {
      return InvalidArgument("{} bytes tell nothing about bandwidth among {} ranks: at least {} do",
                             max_bytes, sizes[1], least);
    }
    for (int64_t bytes = kSmallest * sizes[1];; bytes *= kSizeStep) {
      MESHIFT_ASSIGN_OR_RETURN(Probe probe, MakeProbe(kind, level, sizes, ranks, bytes));
      probes.push_back(std::move(probe));
      if (bytes > max_bytes / kSizeStep) return absl::OkStatus();
    }
  };
  int64_t inside = 1;  // ranks of a domain of the level below
  for (int level = 0; level < structure.NumLevels(); ++level) {
    const int64_t size = structure.level(level).domain_size;
    const int64_t domain = size == 0 ? num_ranks / inside * inside : std::min(size, num_ranks);
    const int64_t members = domain / inside;
    if (members < 2) continue;
    const std::vector<int64_t> sizes = {num_ranks / domain, members, inside};
    const bool innermost = probes.empty();
    MESHIFT_RETURN_IF_ERROR(add(Kind::kGather, level, sizes, {}));
    if (innermost) {
      MESHIFT_RETURN_IF_ERROR(add(Kind::kCopy, level, sizes, {}));
      if (members > 2) {
        std::vector<int64_t> pairs;
        for (int64_t d = 0; d < sizes[0]; ++d) {
          pairs.push_back(d * domain);
          pairs.push_back(d * domain + 1);
        }
        MESHIFT_RETURN_IF_ERROR(add(Kind::kPair, level, {sizes[0], 2, 1}, pairs));
      }
      MESHIFT_RETURN_IF_ERROR(add(Kind::kMessages, level, sizes, {}));
    }
    inside = domain;
  }
  return probes;
}

absl::StatusOr<int64_t> ProbeNs(const Probe& probe, const Topology& topology) {
  MESHIFT_ASSIGN_OR_RETURN(const Problem problem, Problem::Create(probe.from, probe.to));
  const CostModel model(problem, topology);
  return model.Measure(probe.op, problem.source(), problem.target()).est_ns;
}

absl::StatusOr<Topology> FitTopology(const Topology& structure, absl::Span<const Probe> probes,
                                     absl::Span<const int64_t> ns) {
  if (ns.size() != probes.size() || probes.empty()) {
    return InvalidArgument("{} times of {} probes", ns.size(), probes.size());
  }
  for (size_t i = 0; i < ns.size(); ++i) {
    if (ns[i] < 1) return InvalidArgument("probe {} takes {} ns", i, ns[i]);
  }
  Topology topology = structure;
  int first = structure.NumLevels();
  for (const Probe& probe : probes) first = std::min(first, probe.level);
  const Measured copies(probes, ns, Kind::kCopy, first);
  if (!copies.empty()) {
    TopologyConstants constants = topology.constants();
    constants.copy_bandwidth_bytes_per_us =
        copies.Bandwidth().value_or(constants.copy_bandwidth_bytes_per_us);
    MESHIFT_ASSIGN_OR_RETURN(topology, Topology::Create(LevelsOf(topology), constants));
    const auto latency = Constant(&TopologyConstants::copy_latency_ns);
    MESHIFT_ASSIGN_OR_RETURN(const int64_t found, copies.Latency(topology, latency));
    MESHIFT_ASSIGN_OR_RETURN(topology, latency(topology, found));
  }
  for (int level = first; level < structure.NumLevels(); ++level) {
    const Measured all(probes, ns, Kind::kGather, level);
    if (all.empty()) continue;
    MESHIFT_ASSIGN_OR_RETURN(topology, WithBandwidth(topology, level, all.Bandwidth()));
    if (level == first) {
      const Measured pairs(probes, ns, Kind::kPair, level);
      MESHIFT_ASSIGN_OR_RETURN(topology, FitStart(std::move(topology), level, all, pairs));
      const Measured messages(probes, ns, Kind::kMessages, level);
      if (messages.empty()) continue;
      const auto latency = Constant(&TopologyConstants::message_latency_ns);
      MESHIFT_ASSIGN_OR_RETURN(const int64_t found, messages.Latency(topology, latency));
      MESHIFT_ASSIGN_OR_RETURN(topology, latency(topology, found));
    } else {
      MESHIFT_ASSIGN_OR_RETURN(const int64_t found, all.Latency(topology, LatencyOf(level)));
      MESHIFT_ASSIGN_OR_RETURN(topology, LatencyOf(level)(topology, found));
    }
  }
  return topology;
}

}  // namespace meshift
