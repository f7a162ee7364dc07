#include "tests/mutation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "meshift/dtype.h"
#include "placement/cast.h"

namespace meshift {
namespace {

int64_t Random(std::mt19937_64& rng, int64_t bound) {
  return static_cast<int64_t>(rng() % static_cast<uint64_t>(bound));
}

// Any placements of the same tensor on the same mesh.
Sharding RandomPlacements(std::mt19937_64& rng, const Sharding& like) {
  const int rank = static_cast<int>(like.shape().size());
  while (true) {
    std::vector<Placement> placements;
    std::vector<Cuts> cuts(rank);
    for (int d = 0; d < like.mesh().NumDims(); ++d) {
      const int64_t kind = Random(rng, 4);
      if (kind == 0) {
        placements.push_back(Placement::Partial(static_cast<ReduceOp>(Random(rng, 3))));
      } else if (kind == 1 || rank == 0) {
        placements.push_back(Placement::Replicate());
      } else {
        const int k = static_cast<int>(Random(rng, rank));
        placements.push_back(Placement::Shard(k));
        Cuts& list = cuts[k];
        list.insert(list.begin() + Random(rng, static_cast<int64_t>(list.size()) + 1), d);
      }
    }
    auto sharding = Sharding::Create(like.mesh(), like.tensor(), placements, cuts);
    if (sharding.ok()) return *std::move(sharding);
  }
}

void Toggle(DimSet* set, int dim) {
  const auto it = std::find(set->begin(), set->end(), dim);
  if (it != set->end()) {
    set->erase(it);
  } else {
    set->insert(std::upper_bound(set->begin(), set->end(), dim), dim);
  }
}

int64_t Nudge(std::mt19937_64& rng, int64_t value) {
  constexpr std::array<int64_t, 5> kSteps = {1, -1, 4, -16, 1024};
  return value + kSteps[Random(rng, kSteps.size())];
}

// Makes the dtypes of all steps follow from the casts: `after`, the wire, the sums and the bytes of
// boxes. The plan is then damaged in its computation, not in its bookkeeping.
void FollowCasts(PlanFields* fields) {
  DType dtype = fields->from.dtype();
  for (Step& step : fields->steps) {
    const DType after = step.op == StepOp::kCast ? step.after.dtype() : dtype;
    auto recast = step.after.WithDType(after);
    if (!recast.ok()) return;  // the dtype does not have the op: leave it
    step.after = *std::move(recast);
    const int64_t in = BitWidth(dtype);
    if (step.wire_dtype) {
      step.bytes_sent = step.bytes_sent * in / BitWidth(*step.wire_dtype);
      step.bytes_in = step.bytes_in * in / BitWidth(*step.wire_dtype);
      step.bytes_out = step.bytes_out * in / BitWidth(*step.wire_dtype);
      step.wire_dtype = dtype;
    }
    if (step.accumulate_dtype) step.accumulate_dtype = AccumulateDType(dtype);
    dtype = after;
  }
  fields->total.bytes_sent = 0;
  for (const Step& step : fields->steps) fields->total.bytes_sent += step.bytes_sent;
}

// The index of one of the casts; -1: no cast.
int64_t SomeCast(std::mt19937_64& rng, const std::vector<Step>& steps) {
  std::vector<int64_t> casts;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].op == StepOp::kCast) casts.push_back(static_cast<int64_t>(i));
  }
  return casts.empty() ? -1 : casts[Random(rng, static_cast<int64_t>(casts.size()))];
}

// A dtype similar to those of the tests.
DType RandomDType(std::mt19937_64& rng) {
  constexpr std::array<DType, 7> kDTypes = {DType::kF32,    DType::kBF16, DType::kF16, DType::kF64,
                                            DType::kF8E4M3, DType::kI32,  DType::kI8};
  return kDTypes[Random(rng, kDTypes.size())];
}

// A cast to `dtype` after a step with the placements of `like`.
std::optional<Step> MakeCast(const Sharding& like, DType from, DType dtype) {
  auto after = like.WithDType(dtype);
  if (!after.ok()) return std::nullopt;
  Step cast{.op = StepOp::kCast, .after = *std::move(after)};
  cast.bytes_in = Bytes(from, like.MaxLocalElements());
  cast.bytes_out = Bytes(dtype, like.MaxLocalElements());
  return cast;
}

// Removes mesh dims that the step's mesh does not have.
void DropUnknownDims(Step* step) {
  const int dims = step->after.mesh().NumDims();
  DimSet& set = step->mesh_dims;
  set.erase(std::remove_if(set.begin(), set.end(), [&](int d) { return d >= dims; }), set.end());
}

// `sharding` on another mesh with as many dims; nullopt if it is invalid there.
std::optional<Sharding> MovedTo(const DeviceMesh& mesh, const Sharding& sharding) {
  if (mesh.NumDims() != sharding.mesh().NumDims()) return std::nullopt;
  auto moved = Sharding::Parse(sharding.tensor(), mesh, sharding.PlacementsText());
  if (!moved.ok()) return std::nullopt;
  return *std::move(moved);
}

// Replaces mesh `m` of the plan by `mesh`, which has as many dims of the same sizes.
bool ReplaceMesh(int m, const DeviceMesh& mesh, PlanFields* fields) {
  const DeviceMesh old = fields->meshes[m];
  std::vector<Sharding*> shardings = {&fields->from, &fields->to};
  for (Step& step : fields->steps) shardings.push_back(&step.after);
  for (Sharding* sharding : shardings) {
    if (!(sharding->mesh() == old)) continue;
    std::optional<Sharding> moved = MovedTo(mesh, *sharding);
    if (!moved) return false;
    *sharding = *std::move(moved);
  }
  fields->meshes[m] = mesh;
  return true;
}

// Damages the meshes and ranks of a plan: kinds 25 .. 29.
std::string MutateMeshes(int kind, std::mt19937_64& rng, PlanFields* fields) {
  std::vector<Step>& steps = fields->steps;
  const auto meshes = static_cast<int64_t>(fields->meshes.size());
  const auto m = static_cast<int>(Random(rng, meshes));
  if (kind == 25) {
    if (Random(rng, 3) == 0) {
      (Random(rng, 2) == 0 ? fields->from_mesh : fields->to_mesh) = m;
      return "another mesh of source or target";
    }
    if (steps.empty()) return "";
    Step& step = steps[Random(rng, static_cast<int64_t>(steps.size()))];
    step.mesh = static_cast<int>(Random(rng, 3)) - (Random(rng, 8) == 0 ? 1 : 0);
    return fmt::format("a step is on mesh {}", step.mesh);
  }
  if (kind == 26) {
    constexpr std::array kTopologies = {"flat", "nvlink=2", "nvlink=3", "nvlink=2,rail=4", "h100"};
    const std::string text = kTopologies[Random(rng, kTopologies.size())];
    fields->inputs.options.topology = Topology::Parse(text).value();
    return "topology " + text;
  }
  if (kind == 27) {
    // The same ranks at other places, or other ranks.
    const DeviceMesh& old = fields->meshes[m];
    std::vector<int64_t> ranks = old.Ranks();
    const int64_t first = Random(rng, 3) == 0 ? 1 : 0;
    for (int64_t& rank : ranks) rank += first;
    for (size_t i = ranks.size(); i > 1; --i) {
      std::swap(ranks[i - 1], ranks[Random(rng, static_cast<int64_t>(i))]);
    }
    const std::vector<DeviceMesh::Dim> dims(old.dims().begin(), old.dims().end());
    const DeviceMesh mesh = DeviceMesh::Create(dims, ranks).value();
    if (!ReplaceMesh(m, mesh, fields)) return "";
    return fmt::format("mesh {} is {}", m, mesh.ToString());
  }
  if (steps.empty()) return "";
  Step& step = steps[Random(rng, static_cast<int64_t>(steps.size()))];
  if (kind == 28) {
    std::optional<Sharding> moved = MovedTo(fields->meshes[m], step.after);
    if (!moved) return "";
    step.after = *std::move(moved);
    return fmt::format("a step leaves the value on mesh {}", m);
  }
  // Makes a step lead to mesh m, or stops it from doing so.
  const bool relabels = Random(rng, 2) == 0;
  step.mesh = m;
  step.op = relabels ? StepOp::kRelabel : StepOp::kExchange;
  step.mesh_dims.clear();
  step.tensor_dims.clear();
  step.reduce_op.reset();
  step.reduce_order.reset();
  step.divisor.reset();
  step.accumulate_dtype.reset();
  if (relabels) {
    step.group_size.reset();
    step.groups.reset();
    step.sizes.reset();
    step.wire_dtype.reset();
    step.bytes_sent = 0;
  }
  fields->total.collectives = 0;
  fields->total.bytes_sent = 0;
  for (const Step& s : steps) {
    fields->total.collectives += IsCollective(s.op) ? 1 : 0;
    fields->total.bytes_sent += s.bytes_sent;
  }
  return fmt::format("a step is a {} to mesh {}", Name(step.op), m);
}

// Damages a crossing: it adds contributions that were reduced before, or that no longer are; or
// leaves contributions out: kind 33.
std::string MutateCrossing(std::mt19937_64& rng, PlanFields* fields) {
  std::vector<Step>& steps = fields->steps;
  const auto crossing = std::find_if(steps.begin(), steps.end(), IsCrossing);
  if (crossing == steps.end()) return "";
  if (crossing->reduce_op) {
    crossing->reduce_op.reset();
    crossing->reduce_order.reset();
    crossing->reduce_block.reset();
    crossing->divisor.reset();
    crossing->accumulate_dtype.reset();
    return "contributions do not cross";
  }
  crossing->reduce_op = ReduceOp::kSum;
  crossing->reduce_order = ReduceOrder::kAscending;
  crossing->accumulate_dtype = AccumulateDType(crossing->after.dtype());
  if (crossing == steps.begin() || Random(rng, 4) == 0) return "the crossing adds";
  steps.erase(crossing - 1);
  return "the crossing adds in place of the step before it";
}

// Damages the blocks of ordered reductions: kinds 30 .. 32.
std::string MutateBlocks(int kind, std::mt19937_64& rng, PlanFields* fields) {
  const int64_t block = Random(rng, 5);
  if (kind != 31) {
    if (fields->steps.empty()) return "";
    Step& step = fields->steps[Random(rng, static_cast<int64_t>(fields->steps.size()))];
    if (kind == 32) {
      const int64_t stages = step.reduce_stages && Random(rng, 2) == 0 ? 0 : 1 + Random(rng, 3);
      step.reduce_stages = stages == 0 ? std::nullopt : std::optional(stages);
      return fmt::format("reduce_stages = {}", stages);
    }
    step.reduce_block = block == 0 ? std::nullopt : std::optional(block);
    return fmt::format("reduce_block = {}", block);
  }
  fields->inputs.options.reduce_block = block;
  return fmt::format("option reduce_block = {}", block);
}

// Damages the casts of a plan: kinds 21 .. 24.
std::string MutateCasts(int kind, std::mt19937_64& rng, PlanFields* fields) {
  std::vector<Step>& steps = fields->steps;
  const int64_t c = SomeCast(rng, steps);
  std::string what;
  if (kind == 24) {
    // Adds a cast, and in half of the cases one back again.
    const int64_t i = Random(rng, static_cast<int64_t>(steps.size()) + 1);
    const Sharding like = i == 0 ? fields->from : steps[i - 1].after;
    std::optional<Step> cast = MakeCast(like, like.dtype(), RandomDType(rng));
    if (!cast) return "";
    what = fmt::format("cast to {} added before step {}", Name(cast->after.dtype()), i);
    std::optional<Step> back = MakeCast(like, cast->after.dtype(), like.dtype());
    if (Random(rng, 2) == 0) {
      steps.insert(steps.begin() + i, *std::move(back));
      what += ", and one back";
    }
    steps.insert(steps.begin() + i, *std::move(cast));
  } else if (c < 0) {
    return "";
  } else if (kind == 21) {
    what = fmt::format("cast {} dropped", c);
    steps.erase(steps.begin() + c);
  } else if (kind == 22) {
    const int64_t to = Random(rng, static_cast<int64_t>(steps.size()));
    const DType dtype = steps[c].after.dtype();
    steps.erase(steps.begin() + c);
    const Sharding like = to == 0 ? fields->from : steps[to - 1].after;
    std::optional<Step> cast = MakeCast(like, like.dtype(), dtype);
    if (!cast) return "";
    steps.insert(steps.begin() + to, *std::move(cast));
    what = fmt::format("cast {} moved to {}", c, to);
  } else {
    auto recast = steps[c].after.WithDType(RandomDType(rng));
    if (!recast.ok()) return "";
    steps[c].after = *std::move(recast);
    steps[c].bytes_out = Bytes(steps[c].after.dtype(), steps[c].after.MaxLocalElements());
    what = fmt::format("cast {} is one to {}", c, Name(steps[c].after.dtype()));
  }
  FollowCasts(fields);
  return what;
}

}  // namespace

std::string Mutate(int kind, std::mt19937_64& rng, PlanFields* fields) {
  std::vector<Step>& steps = fields->steps;
  const auto num_steps = static_cast<int64_t>(steps.size());
  // Mutations of the whole plan.
  switch (kind) {
    case 0:
      fields->kept = static_cast<Reproducibility>(Random(rng, 4));
      return fmt::format("kept = {}", Name(fields->kept));
    case 1: {
      const std::array<std::pair<const char*, int64_t*>, 5> totals = {
          {{"collectives", &fields->total.collectives},
           {"bytes_sent", &fields->total.bytes_sent},
           {"est_ns", &fields->total.est_ns},
           {"peak_bytes", &fields->total.peak_bytes},
           {"workspace_bytes", &fields->total.workspace_bytes}}};
      const auto& [name, total] = totals[Random(rng, 5)];
      *total = Nudge(rng, *total);
      return fmt::format("total {} = {}", name, *total);
    }
    case 2:
      fields->lower_bound.bytes_sent = fields->total.bytes_sent + Random(rng, 3);
      return fmt::format("lower bound {}", fields->lower_bound.bytes_sent);
    case 3:
      fields->to = RandomPlacements(rng, fields->to);
      return "to " + fields->to.PlacementsText();
    case 4:
      fields->from = RandomPlacements(rng, fields->from);
      return "from " + fields->from.PlacementsText();
    default:
      break;
  }
  if (kind == 33) return MutateCrossing(rng, fields);
  if (kind >= 30) return MutateBlocks(kind, rng, fields);
  if (kind >= 25) return MutateMeshes(kind, rng, fields);
  if (kind >= 21) return MutateCasts(kind, rng, fields);
  if (num_steps == 0) return "";
  const int64_t i = Random(rng, num_steps);
  Step& step = steps[i];
  const int mesh_dims = step.after.mesh().NumDims();
  const int tensor_rank = static_cast<int>(step.after.shape().size());
  const std::string at = fmt::format("step {}: ", i);
  switch (kind) {
    case 5:
      steps.erase(steps.begin() + i);
      return at + "removed";
    case 6: {
      const int64_t j = Random(rng, num_steps);
      std::swap(steps[i], steps[j]);
      return at + fmt::format("swapped with {}", j);
    }
    case 7: {
      const int64_t j = Random(rng, num_steps);
      const Sharding after = step.after;
      step.after = steps[j].after;
      steps[j].after = after;
      DropUnknownDims(&step);
      DropUnknownDims(&steps[j]);
      return at + fmt::format("after swapped with {}", j);
    }
    case 8:
      steps.insert(steps.begin() + i, Step(step));
      return at + "doubled";
    case 9:
      step.op = static_cast<StepOp>(Random(rng, kNumStepOps));
      return at + fmt::format("op = {}", Name(step.op));
    case 10:
      Toggle(&step.mesh_dims, static_cast<int>(Random(rng, mesh_dims)));
      return at + fmt::format("another mesh dim: {}", step.ToString());
    case 11:
      step.after = RandomPlacements(rng, step.after);
      return at + "after = " + step.after.PlacementsText();
    case 12:
      if (tensor_rank == 0) return "";
      Toggle(&step.tensor_dims, static_cast<int>(Random(rng, tensor_rank)));
      return at + "another tensor dim";
    case 13:
      if (!step.reduce_op) return "";
      step.reduce_op = static_cast<ReduceOp>(Random(rng, kNumReduceOps));
      return at + fmt::format("reduce_op = {}", Name(*step.reduce_op));
    case 14:
      step.reduce_order = Random(rng, 2) == 0 ? std::optional(ReduceOrder::kAscending)
                          : step.reduce_order ? std::nullopt
                                              : std::optional(ReduceOrder::kAny);
      return at + "another reduce_order";
    case 15:
      if (!step.groups) return "";
      (Random(rng, 2) == 0 ? *step.groups : *step.group_size) += Random(rng, 2) == 0 ? 1 : -1;
      return at + "another group";
    case 16:
      step.divisor =
          step.divisor && Random(rng, 2) == 0 ? std::nullopt : std::optional(1 + Random(rng, 6));
      return at + "another divisor";
    case 17:
      step.sizes = static_cast<StepSizes>(Random(rng, 3));
      return at + fmt::format("sizes = {}", Name(*step.sizes));
    case 18: {
      int64_t* const bytes[] = {&step.bytes_in, &step.bytes_out, &step.bytes_sent, &step.est_ns};
      int64_t* const one = bytes[Random(rng, 4)];
      *one = Nudge(rng, *one);
      return at + "other bytes";
    }
    case 19:
      (Random(rng, 2) == 0 ? step.wire_dtype : step.accumulate_dtype) =
          static_cast<DType>(Random(rng, kNumDTypes));
      return at + "another dtype";
    case 20: {
      // Adds a step between two others or at an end.
      Step extra = step;
      extra.op = static_cast<StepOp>(Random(rng, kNumStepOps));
      extra.after = RandomPlacements(rng, step.after);
      steps.insert(steps.begin() + Random(rng, num_steps + 1), extra);
      return at + "a step more: " + extra.ToString();
    }
    default:
      return "";
  }
}

}  // namespace meshift
