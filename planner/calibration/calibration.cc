// Builds the probes (redistributions of one step), and pairs their measured times with the terms of
// the cost model. planner/calibration/fit.h fits the topology. Runs no probe.
#include "meshift/calibration.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/sharding.h"
#include "meshift/status.h"
#include "planner/calibration/fit.h"
#include "planner/cost/cost.h"
#include "planner/graph/state.h"

namespace meshift {
namespace {

using Kind = Probe::Kind;

constexpr int64_t kItem = 4;              // bytes of an f32
constexpr int64_t kSmallest = 256;        // bytes of a member's block in the smallest probe
constexpr int64_t kSizeStep = 16;         // the factor from one size to the next
constexpr int64_t kSmall = 32 << 10;      // up to these bytes, latency is most of the time
constexpr int64_t kMaxRanks = INT32_MAX;  // DeviceMesh's limit

std::vector<TopologyLevel> LevelsOf(const Topology& topology) {
  std::vector<TopologyLevel> levels;
  for (int i = 0; i < topology.NumLevels(); ++i) levels.push_back(topology.level(i));
  return levels;
}

// Sets the number and the bytes of the copies that the probe's step makes in local memory.
absl::Status CountCopies(const Probe& probe, const Topology& topology, Observation* observation) {
  constexpr int64_t kUnit = 1'000'000;    // a latency per copy, to count the copies by
  constexpr int64_t kFast = 1'000 << 20;  // a bandwidth at which a byte takes almost no time
  const auto time = [&](int64_t latency_ns, int64_t bytes_per_us) -> absl::StatusOr<int64_t> {
    TopologyConstants constants = topology.constants();
    constants.copy_latency_ns = latency_ns;
    constants.copy_bandwidth_bytes_per_us = bytes_per_us;
    MESHIFT_ASSIGN_OR_RETURN(const Topology changed,
                             Topology::Create(LevelsOf(topology), constants));
    return ProbeNs(probe, changed);
  };
  MESHIFT_ASSIGN_OR_RETURN(const int64_t none, time(0, kFast));
  MESHIFT_ASSIGN_OR_RETURN(const int64_t starts, time(kUnit, kFast));
  MESHIFT_ASSIGN_OR_RETURN(const int64_t bytes, time(0, 1000));  // 1 ns each
  observation->copies = (starts - none) / kUnit;
  observation->copied_bytes = bytes - none;
  return absl::OkStatus();
}

// A probe over the middle dim of a mesh out x members x in (`sizes`). `ranks`: of the mesh, in
// row-major order; empty: 0, 1, 2, ... `bytes`: of a group's part of the tensor, rounded down.
absl::StatusOr<Probe> MakeProbe(Kind kind, int level, const std::vector<int64_t>& sizes,
                                const std::vector<int64_t>& ranks, int64_t bytes,
                                const Topology& topology) {
  MESHIFT_ASSIGN_OR_RETURN(
      const DeviceMesh mesh,
      DeviceMesh::Create({{"out", sizes[0]}, {"members", sizes[1]}, {"in", sizes[2]}}, ranks));
  const int64_t n = sizes[1];
  const int64_t block = std::max<int64_t>(bytes / kItem / n, 1);
  // Elements of a message.
  const int64_t item = std::max<int64_t>(block / n, 1);
  // The other mesh dims cut a third tensor dim: without replicas, the step is the best plan.
  const int64_t others = sizes[0] * sizes[2];
  const Shape shape =
      kind == Kind::kMessages ? Shape{n, n * item, others} : Shape{n * block, 1, others};
  MESHIFT_ASSIGN_OR_RETURN(TensorType tensor, TensorType::Create(DType::kF32, shape));
  const char* from = "S(2),S(0),S(2)";
  const char* to = "S(2),R,S(2)";
  StepOp op = StepOp::kAllGather;
  int64_t moved = (n - 1) * block;
  Observation::Kind observed = Observation::Kind::kBlocks;
  switch (kind) {
    case Kind::kCopy:
      from = "S(2),R,S(2)";
      to = "S(2),S(0),S(2)";
      op = StepOp::kSlice;
      moved = block;
      observed = Observation::Kind::kCopy;
      break;
    case Kind::kReduce:
      from = "S(2),P,S(2)";
      op = StepOp::kAllReduce;
      moved = n * block;
      observed = Observation::Kind::kAllReduce;
      break;
    case Kind::kMessages:
      to = "S(2),S(1),S(2)";
      op = StepOp::kAllToAll;
      moved = (n - 1) * item;
      observed = Observation::Kind::kToAll;
      break;
    case Kind::kGather:
    case Kind::kPair:
      break;
  }
  MESHIFT_ASSIGN_OR_RETURN(Sharding source, Sharding::Parse(tensor, mesh, from));
  MESHIFT_ASSIGN_OR_RETURN(Sharding target, Sharding::Parse(tensor, mesh, to));
  Observation observation{
      .kind = observed, .num_ranks = sizes[0] * n * sizes[2], .bytes = moved * kItem};
  if (ranks.empty()) {
    observation.groups = {.size = n, .modes = {{n, sizes[2]}}};
  } else {
    observation.groups = {.size = n, .ranks = {{ranks.begin(), ranks.begin() + n}}};
  }
  Probe probe{kind, op, level, moved * kItem, std::move(source), std::move(target), nullptr};
  MESHIFT_RETURN_IF_ERROR(CountCopies(probe, topology, &observation));
  probe.observation = std::make_shared<const Observation>(std::move(observation));
  return probe;
}

// The least max_bytes for probes among n members: those of kCopy and kGather need two sizes.
int64_t LeastBytes(Kind kind, int64_t n) {
  if (kind != Kind::kCopy && kind != Kind::kGather) return kSmallest * n;
  // A bandwidth needs a size beyond kSmall, and one more size.
  const int64_t blocks = kind == Kind::kCopy ? 1 : n - 1;
  int64_t block = kSmallest * kSizeStep;
  while (blocks * block <= kSmall) block *= kSizeStep;
  return n * block;
}

}  // namespace

Topology ProbeTopology(const Topology& structure) {
  std::vector<TopologyLevel> levels;
  int64_t bandwidth = 100'000;
  for (const TopologyLevel& level : LevelsOf(structure)) {
    levels.push_back({.name = level.name,
                      .domain_size = level.domain_size,
                      .bandwidth_bytes_per_us = bandwidth,
                      .latency_ns = 1000});
    bandwidth = std::max<int64_t>(bandwidth / 8, 1);
  }
  return *Topology::Create(std::move(levels));
}

absl::StatusOr<std::vector<Probe>> CalibrationProbes(const Topology& structure, int64_t num_ranks,
                                                     int64_t max_bytes) {
  if (num_ranks < 2) {
    return InvalidArgument("{} ranks; a measurement of links needs at least 2", num_ranks);
  }
  if (num_ranks > kMaxRanks) {
    return InvalidArgument("{} ranks: a mesh has at most {}", num_ranks, kMaxRanks);
  }
  std::vector<Probe> probes;
  const Topology topology = ProbeTopology(structure);
  const auto add = [&](Kind kind, int level, const std::vector<int64_t>& sizes,
                       const std::vector<int64_t>& ranks) -> absl::Status {
    const int64_t least = LeastBytes(kind, sizes[1]);
    if (max_bytes < least) {
      return InvalidArgument(
          "{} bytes are too few to measure bandwidth among {} ranks; expected at least {}",
          max_bytes, sizes[1], least);
    }
    for (int64_t bytes = kSmallest * sizes[1];; bytes *= kSizeStep) {
      MESHIFT_ASSIGN_OR_RETURN(Probe probe, MakeProbe(kind, level, sizes, ranks, bytes, topology));
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
    MESHIFT_RETURN_IF_ERROR(add(Kind::kReduce, level, sizes, {}));
    MESHIFT_RETURN_IF_ERROR(add(Kind::kMessages, level, sizes, {}));
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
    return InvalidArgument("{} times for {} probes; expected one for each", ns.size(),
                           probes.size());
  }
  for (size_t i = 0; i < ns.size(); ++i) {
    if (ns[i] < 1) return InvalidArgument("probe {} takes {} ns", i, ns[i]);
    if (probes[i].observation == nullptr) {
      return InvalidArgument("probe {} was not made by CalibrationProbes", i);
    }
  }
  std::vector<Observation> observations;
  for (size_t i = 0; i < ns.size(); ++i) {
    observations.push_back(*probes[i].observation);
    observations.back().ns = ns[i];
  }
  return FitObservations(structure, observations);
}

}  // namespace meshift
